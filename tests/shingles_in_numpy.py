"""Make shingles as the definition says it, in numpy: what is in C is compared with it."""

import numpy as np

from t5prep.preparation.near_duplicates.sketches import (
    LONG_WORD,
    Shingles,
    folded,
    long_word_hash,
    mix,
    odd_numbers,
)

# Kana and Han are written without spaces: in UTF-8 their characters begin with these bytes, and each is a word.
_UNSPACED = np.isin(np.arange(256), np.arange(0xE3, 0xEA))
_WORD_BYTES = np.isin(np.arange(256), [*range(0x30, 0x3A), *range(0x61, 0x7B), *range(0x80, 0x100)])
# The first k bytes of eight, as a mask of a little-endian number.
_FIRST_BYTES = np.array([(1 << 8 * k) - 1 for k in range(9)], "<u8")


def shingles(texts: list[str], *, words: int) -> Shingles:
    """The shingles of texts."""
    encoded = [folded(text).encode("utf-8", "surrogatepass") for text in texts]
    data = np.frombuffer(b" ".join([*encoded, bytes(8)]), np.uint8)
    begins = np.concatenate([[0], np.cumsum([len(text) + 1 for text in encoded], dtype=np.int64)]).astype(np.int64)
    return runs_of(*word_hashes(data, begins), words)


def word_hashes(data: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of all words of texts that lie one after the other, and how many words each text has."""
    starts, stops, counts = spans_of(data, begins)
    lengths = stops - starts
    hashes = mix(lengths.astype(np.uint64))
    eights = np.lib.stride_tricks.sliding_window_view(data, 8)
    short = np.flatnonzero(lengths <= LONG_WORD)
    step = 0
    while len(short):
        offsets, byte_counts = starts[short] + step, np.minimum(lengths[short] - step, 8)
        piece = eights[offsets].view("<u8").reshape(-1) & _FIRST_BYTES[byte_counts]
        hashes[short] = mix(hashes[short] ^ mix(piece + np.uint64(step)))
        step += 8
        short = short[lengths[short] > step]
    for word in np.flatnonzero(lengths > LONG_WORD).tolist():
        hashes[word] = long_word_hash(data[starts[word] : stops[word]])
    return hashes, counts


def runs_of(hashes: np.ndarray, counts: np.ndarray, words: int) -> Shingles:
    """Return the hashes of runs of `words` words inside each text, or of the whole text where it has fewer."""
    run_counts = np.maximum(counts - words + 1, np.minimum(counts, 1))
    begins = np.concatenate([[0], np.cumsum(run_counts)]).astype(np.int64)
    first_word = np.concatenate([[0], np.cumsum(counts)])
    text = np.repeat(np.arange(len(counts)), run_counts)
    word_index = first_word[text] + np.arange(begins[-1]) - begins[text]
    total = np.zeros(len(word_index), np.uint64)
    padded = np.concatenate([hashes, np.zeros(words, np.uint64)])
    length = np.minimum(counts, words)[text]
    for offset, factor in enumerate(odd_numbers(words, stream=1)):
        total += np.where(offset < length, padded[word_index + offset] * factor, 0).astype(np.uint64)
    return Shingles(mix(total), begins)


def spans_of(data: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the words of texts begin and end, and how many each text has. The last eight bytes are not text."""
    inside = _WORD_BYTES[data]
    inside[-8:] = False
    starts, stops = _words(data, inside)
    counts = np.diff(np.searchsorted(starts, begins))
    for text in np.flatnonzero((counts == 0) & (np.diff(begins) > 1)).tolist():  # signs only
        text_slice = slice(int(begins[text]), int(begins[text + 1]) - 1)
        inside[text_slice] = data[text_slice] > ord(" ")
    if not counts.all():
        starts, stops = _words(data, inside)
        counts = np.diff(np.searchsorted(starts, begins))
    return starts, stops, counts


def _words(data: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where words begin and end; each character of a script without spaces is a word."""
    was_inside = np.concatenate([[False], inside[:-1]])
    is_start = inside & ~was_inside
    unspaced = _UNSPACED[data] & inside
    if unspaced.any():
        is_start |= unspaced
        is_start[3:] |= unspaced[:-3] & inside[3:]
    is_end = was_inside & (~inside | is_start)
    return np.flatnonzero(is_start), np.flatnonzero(is_end)

"""Hash the runs of words (shingles) of texts, a whole block at a time."""

import functools
import hashlib
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t5prep import _native

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Words longer than this (base64, an address) are hashed one by one; all others eight bytes at a time.
LONG_WORD = 256
# Kana and Han are written without spaces: in UTF-8 their characters begin with these bytes, and each is a word.
_UNSPACED = np.isin(np.arange(256), np.arange(0xE3, 0xEA))
_WORD_BYTES = np.isin(np.arange(256), [*range(0x30, 0x3A), *range(0x61, 0x7B), *range(0x80, 0x100)])


class Shingles(NamedTuple):
    """The shingles of many texts: `hashes` uint64[total], those of text i from `begins[i]` to `begins[i + 1]`."""

    hashes: np.ndarray
    begins: np.ndarray


def mix(values: np.ndarray) -> np.ndarray:
    """Return each of `uint64[n]` with its bits mixed, one to one: the finalizer of SplitMix64 (Steele et al. 2014).

    >>> mix(np.array([1, 2], np.uint64)).tolist()
    [6238072747940578789, 15839785061582574730]
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def odd_numbers(count: int, *, stream: int) -> np.ndarray:
    """Return `uint64[count]` odd numbers, always the same for a stream: the output of SplitMix64."""
    steps = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(stream << 20)
    return mix(steps * _GOLDEN) | np.uint64(1)


def shingles(texts: Sequence[str], *, words: int) -> Shingles:
    """Return the hash of every `words` consecutive words of each text; a shorter text is one shingle.

    Case, punctuation, spaces and compatibility forms do not count (`folded`). A shingle that stands twice in a text is
    there twice. A text of signs only is one word; an empty one has no shingle.
    """
    encoded = [folded(text).encode("utf-8", "surrogatepass") for text in texts]
    data = np.frombuffer(b" ".join([*encoded, bytes(8)]), np.uint8)
    begins = np.concatenate([[0], np.cumsum([len(text) + 1 for text in encoded], dtype=np.int64)]).astype(np.int64)
    hashes, counts = np.empty(len(data), np.uint64), np.empty(len(begins) - 1, np.int64)
    long_words = np.empty((len(data) // LONG_WORD + 1, 3), np.int64)
    total, longs = _native.word_hashes(data, begins, hashes, counts, long_words)
    for word, begin, end in long_words[:longs].tolist():
        hashes[word] = long_word_hash(data[begin:end])
    runs, run_begins = np.empty(total, np.uint64), np.empty(len(begins), np.int64)
    written = _native.run_hashes(hashes, counts, odd_numbers(words, stream=1), runs, run_begins)
    return Shingles(runs[:written], run_begins)


def words_of(text: str) -> list[str]:
    """Return the words of a text, as shingles are made of them.

    >>> words_of("Don't “go”!"), words_of("?!")
    (['don', 't', 'go'], ['?!'])
    """
    encoded = folded(text).encode("utf-8", "surrogatepass")
    data = np.frombuffer(encoded + bytes(9), np.uint8)
    starts, stops, _ = spans_of(data, np.array([0, len(encoded) + 1]))
    return [encoded[a:b].decode("utf-8", "replace") for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


def folded(text: str) -> str:
    """Return a text without case and compatibility forms, its marks outside ASCII as spaces.

    >>> folded("“Why”, asked the ﬁrst")
    ' why , asked the first'
    """
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold()
    for mark in _marks().intersection(
        plain
    ):  # a few different ones: replacing each is faster than looking at every character
        plain = plain.replace(mark, " ")
    return plain


@functools.cache
def _marks() -> frozenset[str]:
    """Return the punctuation marks, symbols and separators outside ASCII (planes 0 and 1)."""
    return frozenset(chr(code) for code in range(0x80, 0x20000) if unicodedata.category(chr(code))[0] in "PSZ")


def long_word_hash(word: np.ndarray) -> int:
    """Return the hash of a word longer than LONG_WORD, uint8[length]."""
    return int.from_bytes(hashlib.blake2b(word.tobytes(), digest_size=8).digest(), "little")


def spans_of(data: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the words of texts begin and end, and how many each text has. The last eight bytes are not text."""
    inside = _WORD_BYTES[data]
    inside[-8:] = False
    starts, stops = _words(data, inside)
    counts = np.diff(np.searchsorted(starts, begins))
    for text in np.flatnonzero((counts == 0) & (np.diff(begins) > 1)).tolist():  # signs only
        own = slice(int(begins[text]), int(begins[text + 1]) - 1)
        inside[own] = data[own] > ord(" ")
    if not counts.all():
        starts, stops = _words(data, inside)
        counts = np.diff(np.searchsorted(starts, begins))
    return starts, stops, counts


def _words(data: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where words begin and end; each character of a script without spaces is a word."""
    before = np.concatenate([[False], inside[:-1]])
    starting = inside & ~before
    unspaced = _UNSPACED[data] & inside
    if unspaced.any():
        starting |= unspaced
        starting[3:] |= unspaced[:-3] & inside[3:]
    ending = before & (~inside | starting)
    return np.flatnonzero(starting), np.flatnonzero(ending)

"""Decode many rows of ids at once: as `tokenizer.decode` does one, but as arithmetic on columns."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import Tokenizer

# A piece is written in one of three ways: inside a run of pieces, at the beginning of the text, or at the beginning of a
# run that follows something else, with a blank before it.
_INSIDE, _FIRST, _LATER = range(3)

# int32[rows, length], and how many ids of each row count, int32[rows] → string[rows].
DecodeRows = Callable[[np.ndarray, np.ndarray], pa.Array]


def row_decoder(tokenizer: Tokenizer, *, keep_newlines: bool) -> DecodeRows:
    """Return a function that decodes rows of ids. The EOS at the end of a row is left out."""

    def one(ids: np.ndarray) -> str:
        row = ids.tolist()
        row = row[:-1] if row[-1:] == [tokenizer.eos_id] else row
        return newlines.decode(row, tokenizer=tokenizer, keep_newlines=keep_newlines)

    def one_by_one(ids: np.ndarray, lengths: np.ndarray) -> pa.Array:
        return pa.array([one(row[:length]) for row, length in zip(ids, lengths, strict=True)], pa.string())

    # What the pieces of a tokenizer.json are written as, and single bytes, depends on their neighbours.
    if isinstance(tokenizer, EncoderTokenizer) or any(map(tokenizer.processor.is_byte, range(tokenizer.vocab_size))):
        return one_by_one
    pieces, special, blank, leading = _written(tokenizer)
    newline = tokenizer.sentinel(newlines.NUMBER) if keep_newlines else -1

    def together(ids: np.ndarray, lengths: np.ndarray) -> pa.Array:
        last = ids[np.arange(len(ids)), np.maximum(lengths - 1, 0)]
        kept = lengths - ((lengths > 0) & (last == tokenizer.eos_id))
        flat = ids[np.arange(ids.shape[1], dtype=np.int32) < kept[:, None]]
        starts = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])
        try:
            others = np.flatnonzero(special.take(flat.view(np.uint32)))  # a negative id is none either
        except IndexError as error:
            raise ValueError("an id is outside of the vocabulary") from error
        # Nearly all pieces stand inside of a run: only where one begins, another way of writing is looked for.
        firsts = starts[:-1][kept > 0]
        if keep_newlines:
            behind = np.flatnonzero(flat == newline) + 1
            firsts = np.union1d(firsts, behind[behind < len(flat)])
        way = np.zeros(len(flat), np.uint8)
        way[others] = _LATER
        way[(others + 1)[others + 1 < len(flat)]] = _LATER
        way[firsts] = _FIRST
        words = pieces.take(pa.array(flat * np.int32(3) + way))
        if keep_newlines:
            words = pc.if_else(pa.array(flat == newline), "\n", words)
        # Words that stand one behind the other are the text already.
        _, ends, letters = words.buffers()
        ends = np.frombuffer(ends, np.int32, len(words) + 1, words.offset * 4) if len(words) else np.zeros(1, np.int32)
        texts = pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends[starts]), letters)
        # SentencePiece leaves out every blank at the beginning of a run. Encoding makes no two of them, a model may.
        begun = np.flatnonzero(way[:-1])
        odd = begun[blank[flat[begun]] & leading[flat[begun + 1]] & (way[begun + 1] == _INSIDE)] + 1
        odd_rows = np.unique(np.searchsorted(starts, odd, "right") - 1)
        if len(odd_rows):
            mask = np.zeros(len(ids), bool)
            mask[odd_rows] = True
            texts = pc.replace_with_mask(texts, pa.array(mask), one_by_one(ids[odd_rows], lengths[odd_rows]))
        return texts

    return together


def _written(tokenizer: Tokenizer) -> tuple[pa.Array, np.ndarray, np.ndarray, np.ndarray]:
    """Return the text of each id in its three ways, string[3 * ids]. Padding has none.

    Then three facts of each, bool[ids]: it is no piece of text; it is only a blank; it begins with a blank.
    """
    specials = [tokenizer.special(token) for token in range(tokenizer.padded_size)]
    plain = [token for token, text in enumerate(specials) if text is None]
    alone = dict(zip(plain, tokenizer.processor.decode([[token] for token in plain]), strict=True))
    # Behind another piece, a piece has the blank that SentencePiece leaves out at the beginning of a text.
    other = next(token for token in plain if alone[token])
    behind = dict(zip(plain, tokenizer.processor.decode([[other, token] for token in plain]), strict=True))
    texts: list[str] = []
    for token, special in enumerate(specials):
        if token == tokenizer.pad_id:
            texts += ["", "", ""]
        elif special is None:
            texts += [behind[token][len(alone[other]) :], alone[token], " " + alone[token]]
        else:
            texts += [" " + special, special, " " + special]
    return (
        pa.array(texts, pa.string()),
        np.array([text is not None for text in specials]),
        np.array([alone.get(token) == "" for token in range(len(specials))]),
        np.array([token in alone and texts[3 * token] != alone[token] for token in range(len(specials))]),
    )

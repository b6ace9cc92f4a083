"""Decode many rows of ids at once: as `tokenizer.decode` does one, in C."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from t5prep._native import write_rows
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import Tokenizer


class Decoded(NamedTuple):
    """The texts of rows of ids, string[rows], how many ids each has, int32[rows], and whether the marker of a cut is one."""

    texts: pa.Array
    lengths: np.ndarray
    marked: np.ndarray  # bool[rows]


# int32[rows, length], and what rows are filled up with → what they say.
DecodeRows = Callable[[np.ndarray, int], Decoded]
# What native/rows.h says of a piece: flags, the most bytes of it, and of these that are left out; bytes behind all of them.
_BYTE, _NEWLINE, _SPECIAL, _MOST, _MOST_SKIPPED, _AT_ONCE = 1 << 61, 1 << 62, 1 << 63, (1 << 16) - 1, (1 << 13) - 1, 16


def row_decoder(tokenizer: Tokenizer, *, keep_newlines: bool) -> DecodeRows:
    """Return a function that decodes rows of ids. The EOS at the end of a row is left out."""
    marker = tokenizer.sentinel(1)

    def one(row: list[int]) -> str:
        row = row[:-1] if row[-1:] == [tokenizer.eos_id] else row
        return newlines.decode(row, tokenizer=tokenizer, keep_newlines=keep_newlines)

    def one_by_one(ids: np.ndarray, fill: int) -> Decoded:
        there = ids != fill
        texts = [one(row[kept].tolist()) for row, kept in zip(ids, there, strict=True)]
        lengths = np.count_nonzero(there, axis=1).astype(np.int32)
        return Decoded(pa.array(texts, pa.string()), lengths, (ids == marker).any(1))

    # What the pieces of a tokenizer.json are written as depends on their neighbours.
    if isinstance(tokenizer, EncoderTokenizer):
        return one_by_one
    if (written := _written(tokenizer, newline=tokenizer.sentinel(newlines.NUMBER) if keep_newlines else -1)) is None:
        return one_by_one
    letters, places = written

    def together(ids: np.ndarray, fill: int) -> Decoded:
        ends, marked = np.zeros(len(ids) + 1, np.int32), np.empty(len(ids), np.uint8)
        lengths = np.empty(len(ids), np.int32)
        how = (tokenizer.eos_id, fill, marker, tokenizer.facts.remove_extra_whitespaces)
        try:
            text = write_rows(letters, places, how, ids, lengths, ends[1:], marked)
        except ValueError as error:
            raise ValueError("an id is outside of the vocabulary") from error
        texts = pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(text))
        return Decoded(texts, lengths, marked == 1)

    return together


def _written(tokenizer: Tokenizer, *, newline: int) -> tuple[bytes, np.ndarray] | None:
    """Return how each id is written, as `write_rows` takes it; None if a piece is not written so."""
    processor = tokenizer.processor
    specials = [tokenizer.special(token) for token in range(tokenizer.padded_size)]
    plain = [token for token, text in enumerate(specials) if text is None]
    pieces = [token for token in plain if not processor.is_byte(token)]
    alone = dict(zip(pieces, processor.decode([[token] for token in pieces]), strict=True))
    # Behind another piece, a piece has the blank that SentencePiece leaves out at the beginning of a text.
    other = next((token for token in pieces if alone[token]), None)
    if other is None:
        return None
    behind = dict(zip(pieces, processor.decode([[other, token] for token in pieces]), strict=True))
    letters, places, before = bytearray(), [], len(alone[other])
    for token, special in enumerate(specials):
        flags = _NEWLINE if token == newline else _SPECIAL if special else 0
        if token == tokenizer.pad_id:
            text, begun = b"", b""
        elif special:
            text, begun = f" {special}".encode(), special.encode()
        elif token in alone:
            text, begun = behind[token][before:].encode(), alone[token].encode()
        else:  # <0x41>
            text = begun = bytes([int(processor.id_to_piece(token)[3:5], 16)])
            flags = _BYTE
        size, skipped = len(text), len(text) - len(begun)
        if not text.endswith(begun) or skipped > _MOST_SKIPPED or size > _MOST:
            return None
        places.append(len(letters) | size << 32 | skipped << 48 | flags)
        letters += text
    return bytes(letters) + bytes(_AT_ONCE), np.array(places, np.uint64)

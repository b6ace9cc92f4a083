"""Decode many rows of ids at once: as `tokenizer.decode` does one, in C."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep._native import write_rows
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import Tokenizer

# int32[rows, length], and how many ids of each row count, int32[rows] → string[rows].
DecodeRows = Callable[[np.ndarray, np.ndarray], pa.Array]
# What native/rows.h says of a piece: flags, the most bytes of it, and of these that are left out; bytes behind all of them.
_NEWLINE, _SPECIAL, _MOST, _MOST_SKIPPED, _AT_ONCE = 1 << 62, 1 << 63, (1 << 16) - 1, (1 << 14) - 1, 16


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
    if (written := _written(tokenizer, newline=tokenizer.sentinel(newlines.NUMBER) if keep_newlines else -1)) is None:
        return one_by_one
    letters, places = written

    def together(ids: np.ndarray, lengths: np.ndarray) -> pa.Array:
        ends, odd = np.zeros(len(ids) + 1, np.int32), np.empty(len(ids), np.uint8)
        try:
            text = write_rows(letters, places, tokenizer.eos_id, np.ascontiguousarray(ids), lengths, ends[1:], odd)
        except ValueError as error:
            raise ValueError("an id is outside of the vocabulary") from error
        texts = pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(text))
        # SentencePiece leaves out every blank at the beginning of a run. Encoding makes no two of them, a model may.
        if len(rows := np.flatnonzero(odd)):
            texts = pc.replace_with_mask(texts, pa.array(odd == 1), one_by_one(ids[rows], lengths[rows]))
        return texts

    return together


def _written(tokenizer: Tokenizer, *, newline: int) -> tuple[bytes, np.ndarray] | None:
    """Return how each id is written, as `write_rows` takes it; None if a piece is not written so."""
    specials = [tokenizer.special(token) for token in range(tokenizer.padded_size)]
    plain = [token for token, text in enumerate(specials) if text is None]
    alone = dict(zip(plain, tokenizer.processor.decode([[token] for token in plain]), strict=True))
    # Behind another piece, a piece has the blank that SentencePiece leaves out at the beginning of a text.
    other = next(token for token in plain if alone[token])
    behind = dict(zip(plain, tokenizer.processor.decode([[other, token] for token in plain]), strict=True))
    letters, places = bytearray(), []
    for token, special in enumerate(specials):
        begun = special or alone.get(token, "")
        text = f" {special}" if special else behind[token][len(alone[other]) :]
        if token == tokenizer.pad_id:
            text = begun = ""
        size, skipped = len(text.encode()), len(text.encode()) - len(begun.encode())
        if not text.endswith(begun) or skipped > _MOST_SKIPPED or size > _MOST:
            return None
        flags = _NEWLINE if token == newline else _SPECIAL if special else 0
        places.append(len(letters) | size << 32 | skipped << 48 | flags)
        letters += text.encode()
    return bytes(letters) + bytes(_AT_ONCE), np.array(places, np.uint64)

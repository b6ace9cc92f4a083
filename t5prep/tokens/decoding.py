"""Decode the ids of many records at once, in C, with the results of `tokenizer.decode`."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from t5prep._native import decode_rows, write_texts
from t5prep.tokens import newlines
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import Tokenizer


class Decoded(NamedTuple):
    """The texts of records, string[records], their numbers of ids, int32[records], and whether they contain a cut's marker."""

    texts: pa.Array
    lengths: np.ndarray
    marked: np.ndarray  # bool[records]


# A function (pages, positions of records in them, name of a feature, its maximum length, value that fills up) → Decoded.
Decode = Callable[[tuple[bytes, ...], np.ndarray, str, int, int], Decoded]
# The layout of a piece in native/rows.h: flags, the maximum bytes of a piece, the maximum bytes that are skipped at the beginning
# of a text, and the bytes of padding behind all pieces.
_BYTE, _NEWLINE, _SPECIAL, _MAX_PIECE_BYTES, _MOST_SKIPPED, _AT_ONCE = (
    1 << 61,
    1 << 62,
    1 << 63,
    (1 << 16) - 1,
    (1 << 13) - 1,
    16,
)


def ids_of(pages: tuple[bytes, ...], places: np.ndarray, name: str, length: int, fill: int) -> np.ndarray:
    """Return the feature `name` of records, int32[records, length], filled up with `fill`.

    Raises ValueError for records that differ from the manifest's features.
    """
    ids = np.empty((len(places), length), np.int32)
    if decode_rows(pages, places, ((name.encode(), ids, length, fill, -1),), None, 0) != len(places):
        raise ValueError("it has other features than the manifest says")
    return ids


def decoder(tokenizer: Tokenizer, *, keep_newlines: bool) -> Decode:
    """Return a function that decodes the ids of records, without the EOS at the end of a row.

    The function raises ValueError for records without such ids.
    """
    marker = tokenizer.sentinel(1)

    def decode_ids(row: list[int]) -> str:
        row = row[:-1] if row[-1:] == [tokenizer.eos_id] else row
        return newlines.decode(row, tokenizer=tokenizer, keep_newlines=keep_newlines)

    def one_by_one(pages: tuple[bytes, ...], places: np.ndarray, name: str, length: int, fill: int) -> Decoded:
        ids = ids_of(pages, places, name, length, fill)
        is_token = ids != fill
        texts = [decode_ids(row[mask].tolist()) for row, mask in zip(ids, is_token, strict=True)]
        lengths = np.count_nonzero(is_token, axis=1).astype(np.int32)
        return Decoded(pa.array(texts, pa.string()), lengths, (ids == marker).any(1))

    # In a tokenizer.json the text of a piece may depend on its neighbours, so rows are decoded one by one.
    if isinstance(tokenizer, EncoderTokenizer):
        return one_by_one
    if (
        written := _written(tokenizer, newline=tokenizer.sentinel(newlines.SENTINEL_NUMBER) if keep_newlines else -1)
    ) is None:
        return one_by_one
    letters, pieces = written
    options = (tokenizer.eos_id, marker, tokenizer.facts.remove_extra_whitespaces)

    def decode_batch(pages: tuple[bytes, ...], places: np.ndarray, name: str, length: int, fill: int) -> Decoded:
        ends, marked = np.zeros(len(places) + 1, np.int32), np.empty(len(places), np.uint8)
        lengths, feature = np.empty(len(places), np.int32), (name.encode(), length, fill)
        try:
            text = write_texts(pages, places, feature, letters, pieces, options, lengths, ends[1:], marked)
        except ValueError as error:
            raise ValueError(
                f"it has no {name}, more of them than the manifest says, or one outside of the vocabulary"
            ) from error
        texts = pa.StringArray.from_buffers(len(places), pa.py_buffer(ends), pa.py_buffer(text))
        return Decoded(texts, lengths, marked == 1)

    return decode_batch


@functools.lru_cache(maxsize=4)  # two decodings of each piece, for every table and page of a dataset
def _written(tokenizer: Tokenizer, *, newline: int) -> tuple[bytes, np.ndarray] | None:
    """Return the text of each id in the format of `write_texts`; None if the format cannot express a piece.

    newline: the id that stands for a newline; -1 for none.
    """
    processor = tokenizer.processor
    specials = [tokenizer.special(token) for token in range(tokenizer.padded_size)]
    plain = [token for token, text in enumerate(specials) if text is None]
    pieces = [token for token in plain if not processor.is_byte(token)]
    alone = dict(zip(pieces, processor.decode([[token] for token in pieces]), strict=True))
    # SentencePiece leaves out the leading space of a text's first piece. Behind another piece, a piece shows its space.
    context_token = next((token for token in pieces if alone[token]), None)
    if context_token is None:
        return None
    behind = dict(zip(pieces, processor.decode([[context_token, token] for token in pieces]), strict=True))
    letters, places, prefix_length = bytearray(), [], len(alone[context_token])
    for token, special in enumerate(specials):
        flags = _NEWLINE if token == newline else _SPECIAL if special else 0
        if token == tokenizer.pad_id:
            text, start_text = b"", b""
        elif special:
            text, start_text = f" {special}".encode(), special.encode()
        elif token in alone:
            text, start_text = behind[token][prefix_length:].encode(), alone[token].encode()
        else:  # <0x41>
            text = start_text = bytes([int(processor.id_to_piece(token)[3:5], 16)])
            flags = _BYTE
        size, skipped = len(text), len(text) - len(start_text)
        if not text.endswith(start_text) or skipped > _MOST_SKIPPED or size > _MAX_PIECE_BYTES:
            return None
        places.append(len(letters) | size << 32 | skipped << 48 | flags)
        letters += text
    return bytes(letters) + bytes(_AT_ONCE), np.array(places, np.uint64)

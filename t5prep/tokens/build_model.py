"""Build SentencePiece models from pieces of another source (sentencepiece_model.proto), without training."""

import dataclasses
import struct
from collections.abc import Sequence

# ModelProto.SentencePiece.Type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
# TrainerSpec.ModelType
UNIGRAM, CHAR = 1, 4


@dataclasses.dataclass(frozen=True)
class Piece:
    """Hold a piece: its text, its log-probability and its type."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclasses.dataclass(frozen=True)
class Normalization:
    """Describe how a text is normalized before it is split: by a map of characters, and T5's rules for spaces."""

    name: str
    charsmap: bytes = b""
    spaces: bool = True  # runs of spaces become one, a space is put before the text, each space is written as ▁


def build(pieces: Sequence[Piece], normalization: Normalization, *, model_type: int = UNIGRAM) -> bytes:
    """Return a serialized ModelProto.

    The index of a piece is its id; `<pad>`, `</s>` and `<unk>` are found by their text.
    """
    places = {piece.text: place for place, piece in enumerate(pieces)}
    spaces = int(normalization.spaces)
    trainer = (
        _number(3, model_type)
        + _number(4, len(pieces))
        + _number(35, int(any(piece.kind == BYTE for piece in pieces)))
        + _number(40, places["<unk>"])
        + _number(41, -1)  # no piece for the beginning of a text
        + _number(42, places.get("</s>", -1))
        + _number(43, places.get("<pad>", -1))
        + b"".join(_bytes(field, text) for field, text in ((45, b"<unk>"), (47, b"</s>"), (48, b"<pad>")))
    )
    normalizer = (
        _bytes(1, normalization.name.encode())
        + _bytes(2, normalization.charsmap)
        + b"".join(_number(field, spaces) for field in (3, 4, 5))
    )
    listed = b"".join(_bytes(1, _piece(piece)) for piece in pieces)
    return listed + _bytes(2, trainer) + _bytes(3, normalizer)


def _piece(piece: Piece) -> bytes:
    score = _varint(2 << 3 | 5) + struct.pack("<f", piece.score)
    return _bytes(1, piece.text.encode()) + score + (_number(3, piece.kind) if piece.kind != NORMAL else b"")


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first; a negative number as 64 bits.

    >>> _varint(300).hex()
    'ac02'
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

"""Read and build serialized SentencePiece models (sentencepiece_model.proto), without training.

Messages are parsed here, because protobuf is no dependency of the package.
"""

import dataclasses
import struct
from collections.abc import Iterator, Sequence

UNIGRAM = 1  # TrainerSpec.ModelType


@dataclasses.dataclass(frozen=True)
class Facts:
    """The entries of a model that say how it was trained and how it normalizes text."""

    model_type: int = UNIGRAM
    normalizer: str = ""
    add_dummy_prefix: bool = True
    escape_whitespaces: bool = True
    whitespace_as_suffix: bool = False
    remove_extra_whitespaces: bool = True
    byte_fallback: bool = False
    charsmap: bytes = b""  # the compiled character map; empty if it changes no character


def facts(model: bytes) -> Facts:
    """Return the facts of a serialized ModelProto. Raises ValueError if the bytes are no such message or are cut short."""
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _specs(model):
        if number == 2 and isinstance(value, bytes):
            trainer = dict(_fields(value))
        elif number == 3 and isinstance(value, bytes):
            normalizer = dict(_fields(value))
    if not trainer or not normalizer:  # they are at the end of the file
        raise ValueError("it is cut short" if model else "it is empty")
    name, charsmap = normalizer.get(1, b""), normalizer.get(2, b"")
    return Facts(
        model_type=int(trainer.get(3, UNIGRAM)),
        normalizer=name.decode() if isinstance(name, bytes) else "",
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        escape_whitespaces=bool(normalizer.get(5, 1)),
        whitespace_as_suffix=bool(trainer.get(24, 0)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=charsmap if isinstance(charsmap, bytes) else b"",
    )


def _specs(model: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return the fields of a model that follow its pieces: the specs of trainer and normalizer."""
    return _fields(memoryview(model)[_pieces(model) :].tobytes())


def _pieces(model: bytes) -> int:
    """Return the end of the pieces at the beginning of a model (field 1 of ModelProto).

    Pieces shorter than 128 bytes, which are nearly all, are skipped by their lengths. This is much faster than parsing them.
    """
    position, end = 0, len(model) - 1
    while (
        position < end
        and model[position] == 0x0A
        and model[position + 1] < 0x80
        and position + 2 + model[position + 1] <= end
    ):
        position += 2 + model[position + 1]
    return position


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, position = _varint(message, position)
        if size is None or position + size > len(message):
            raise ValueError("its bytes are something else")
        yield tag >> 3, message[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64 and position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("its bytes are something else")


# The maximum bytes of a character's replacement in a map. In Unicode's normalization forms they have at most 33 bytes.
MOST_REPLACEMENT_BYTES = 1000


def check_charsmap(charsmap: bytes) -> None:
    """Raise ValueError if a character map has a replacement so long that a few characters would fill the memory."""
    replacements = charsmap[4 + int.from_bytes(charsmap[:4], "little") :]
    longest = max(map(len, replacements.split(b"\0")))
    if longest > MOST_REPLACEMENT_BYTES:
        raise ValueError(f"it makes {longest:,} bytes of one character")


def charsmap(model: bytes) -> bytes:
    """Return the compiled character map of a model's normalizer (field 2 of NormalizerSpec); b"" if it changes nothing."""
    spec = dict(_fields(dict(_specs(model)).get(3, b"")))  # type: ignore[arg-type]
    value = spec.get(2, b"")
    return value if isinstance(value, bytes) else b""


def defined_by_users(model: bytes) -> list[int]:
    """Return the ids of the pieces that the author of a model defined (USER_DEFINED)."""
    pieces = [dict(_fields(value)) for number, value in _fields(model) if number == 1 and isinstance(value, bytes)]
    return [id for id, piece in enumerate(pieces) if piece.get(3) == USER_DEFINED]


# ModelProto.SentencePiece.Type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
# TrainerSpec.ModelType
UNIGRAM, BPE, CHAR = 1, 2, 4


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece: its text, its log-probability and its type."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclasses.dataclass(frozen=True)
class Normalization:
    """The normalization of a text before it is split: a map of characters, and T5's rules for spaces."""

    name: str
    charsmap: bytes = b""
    spaces: bool = True  # a run of spaces becomes one, a space is put before the text, and spaces become ▁


def build(pieces: Sequence[Piece], normalization: Normalization, *, model_type: int = UNIGRAM) -> bytes:
    """Return a serialized ModelProto. The index of a piece is its id; `<pad>`, `</s>` and `<unk>` are found by their text."""
    places = {piece.text: index for index, piece in enumerate(pieces)}
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


def with_sentinels(model: bytes, count: int) -> bytes:
    """Return the serialized `model` with control pieces `<extra_id_{count - 1}>` to `<extra_id_0>` appended.

    Pieces can be appended to the bytes: a concatenation of protobuf messages is a message with the repeated fields of both.
    """
    sentinels = (Piece(f"<extra_id_{number}>", kind=CONTROL) for number in reversed(range(count)))
    return model + b"".join(_bytes(1, _piece(sentinel)) for sentinel in sentinels)


def _piece(piece: Piece) -> bytes:
    score = _packed(2 << 3 | 5) + struct.pack("<f", piece.score)
    return _bytes(1, piece.text.encode()) + score + (_number(3, piece.kind) if piece.kind != NORMAL else b"")


def _number(field: int, value: int) -> bytes:
    return _packed(field << 3) + _packed(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _packed(field << 3 | 2) + _packed(len(value)) + value


def _packed(value: int) -> bytes:
    """Return a number as a varint: groups of seven bits, the lowest first; a negative number as 64 bits.

    >>> _packed(300).hex()
    'ac02'
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


SPECIAL = (Piece("<pad>", kind=CONTROL), Piece("</s>", kind=CONTROL), Piece("<unk>", kind=UNKNOWN))


def model() -> bytes:
    """Return ByT5's vocabulary as a serialized model: id 3 is byte 0, id 258 is byte 255."""
    pieces = [*SPECIAL, *(Piece(f"<0x{byte:02X}>", kind=BYTE) for byte in range(256))]
    return build(pieces, Normalization("identity", spaces=False), model_type=CHAR)

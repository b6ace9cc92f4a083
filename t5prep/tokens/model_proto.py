"""Read the facts of a SentencePiece model file that its Python class does not offer.

The protobuf module generated for it needs one protobuf version, which is not Beam's. So these few fields are read from
the wire format here (sentencepiece_model.proto: ModelProto 2 is trainer_spec, 3 is normalizer_spec).
"""

import dataclasses
from collections.abc import Iterator

UNIGRAM = 1  # TrainerSpec.ModelType


@dataclasses.dataclass(frozen=True)
class Facts:
    """Describe how a model was trained and how it normalizes text."""

    model_type: int = UNIGRAM
    normalizer: str = ""
    add_dummy_prefix: bool = True
    escape_whitespaces: bool = True
    whitespace_as_suffix: bool = False
    byte_fallback: bool = False


def facts(model: bytes) -> Facts:
    """Return the facts of a serialized ModelProto.

    Raises ValueError when the bytes are no such message or are cut short.
    """
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(memoryview(model)[_pieces(model) :].tobytes()):
        if number == 2 and isinstance(value, bytes):
            trainer = dict(_fields(value))
        elif number == 3 and isinstance(value, bytes):
            normalizer = dict(_fields(value))
    if not trainer or not normalizer:  # they are at the end of the file
        raise ValueError("it is cut short" if model else "it is empty")
    name = normalizer.get(1, b"")
    return Facts(
        model_type=int(trainer.get(3, UNIGRAM)),
        normalizer=name.decode() if isinstance(name, bytes) else "",
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        escape_whitespaces=bool(normalizer.get(5, 1)),
        whitespace_as_suffix=bool(trainer.get(24, 0)),
        byte_fallback=bool(trainer.get(35, 0)),
    )


def _pieces(model: bytes) -> int:
    """Return where the pieces (ModelProto 1), which are short, end at the beginning of a model: nothing of them is needed."""
    at, end = 0, len(model) - 1
    while at < end and model[at] == 0x0A and model[at + 1] < 0x80 and at + 2 + model[at + 1] <= end:
        at += 2 + model[at + 1]
    return at


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


def charsmap(model: bytes) -> bytes:
    """Return the compiled character map of a model's normalizer (NormalizerSpec 2), empty where it changes nothing."""
    spec = dict(_fields(dict(_fields(model)).get(3, b"")))  # type: ignore[arg-type]
    value = spec.get(2, b"")
    return value if isinstance(value, bytes) else b""

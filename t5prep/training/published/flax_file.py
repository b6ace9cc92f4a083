"""Read tensors of a `flax_model.msgpack`: nested maps of arrays, as flax.serialization writes them.

An array is an extension of type 1 that holds [shape, dtype, bytes]; an array of more than 1 GiB is a map of flat chunks. Flax
stores matrices as [in, out], the transpose of PyTorch's. MessagePack (github.com/msgpack/msgpack, spec.md) is parsed here
because its libraries copy the bytes of arrays, while this parser returns their positions in the file.
"""

import dataclasses
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from t5prep.json_values import whole_number
from t5prep.training.published.stored import LazyArray, UnreadableError, in_pieces

# The maps of a model are nested nine deep. The limit keeps a forged file from exhausting Python's stack.
MOST_DEPTH = 40

_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_FIXEXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


@dataclasses.dataclass(frozen=True)
class Bytes:
    """A range of the file's bytes; `kind` is the type of an extension, or None for plain bytes."""

    offset: int
    length: int
    kind: int | None = None


# A value of MessagePack in Python.
Value: TypeAlias = "dict[Value, Value] | list[Value] | Bytes | str | int | float | bool | None"


def unpack(data: memoryview, offset: int = 0) -> Value:
    """Return the MessagePack value that begins at `offset`, with bytes and extensions as `Bytes`. Raises UnreadableError."""
    try:
        value, _ = _value(data, offset, 0)
    except (struct.error, IndexError, UnicodeDecodeError, TypeError) as error:
        raise UnreadableError("it is cut short or damaged", code="weights.damaged") from error
    return value


def _value(data: memoryview, offset: int, depth: int) -> tuple[Value, int]:
    """Return the value at `offset`, and the offset of the next value. `depth` counts the nested maps and lists around it."""
    if depth > MOST_DEPTH:
        raise UnreadableError("it is damaged", code="weights.damaged")
    tag = data[offset]
    if tag < 0x80:
        return tag, offset + 1
    if tag >= 0xE0:
        return tag - 256, offset + 1
    if tag in _FIXED:
        return _FIXED[tag], offset + 1
    if tag in _NUMBERS:
        return struct.unpack_from(_NUMBERS[tag], data, offset + 1)[0], offset + 1 + struct.calcsize(_NUMBERS[tag])
    if tag < 0x90 or tag in (0xDE, 0xDF):
        count, offset = (tag & 0x0F, offset + 1) if tag < 0x90 else _length(data, offset + 1, 2 << (tag - 0xDE))
        return _map(data, offset, count, depth)
    if tag < 0xA0 or tag in (0xDC, 0xDD):
        count, offset = (tag & 0x0F, offset + 1) if tag < 0xA0 else _length(data, offset + 1, 2 << (tag - 0xDC))
        return _list(data, offset, count, depth)
    if tag < 0xC0 or tag in (0xD9, 0xDA, 0xDB):
        size, offset = (tag & 0x1F, offset + 1) if tag < 0xC0 else _length(data, offset + 1, 1 << (tag - 0xD9))
        return str(_slice(data, offset, size), "utf-8"), offset + size
    if tag in (0xC4, 0xC5, 0xC6):
        size, offset = _length(data, offset + 1, 1 << (tag - 0xC4))
        return _bytes(data, offset, size, None)
    if tag in _FIXEXT:
        return _bytes(data, offset + 2, _FIXEXT[tag], data[offset + 1])
    if tag in (0xC7, 0xC8, 0xC9):
        size, offset = _length(data, offset + 1, 1 << (tag - 0xC7))
        return _bytes(data, offset + 1, size, data[offset])
    raise UnreadableError("it is damaged", code="weights.damaged")


def _map(data: memoryview, offset: int, count: int, depth: int) -> tuple[dict[Value, Value], int]:
    items = {}
    for _ in range(count):
        key, offset = _value(data, offset, depth + 1)
        items[key], offset = _value(data, offset, depth + 1)
    return items, offset


def _list(data: memoryview, offset: int, count: int, depth: int) -> tuple[list[Value], int]:
    items = []
    for _ in range(count):
        value, offset = _value(data, offset, depth + 1)
        items.append(value)
    return items, offset


def _length(data: memoryview, offset: int, size: int) -> tuple[int, int]:
    return int.from_bytes(_slice(data, offset, size), "big"), offset + size


def _bytes(data: memoryview, offset: int, size: int, kind: int | None) -> tuple[Bytes, int]:
    _slice(data, offset, size)
    return Bytes(offset, size, kind), offset + size


def _slice(data: memoryview, offset: int, size: int) -> memoryview:
    if offset + size > len(data):
        raise UnreadableError("it is cut short", code="weights.damaged")
    return data[offset : offset + size]


ARRAY = 1  # flax.serialization's extension type for an ndarray
CHUNKED = "__msgpack_chunked_array__"


def tensors(path: Path) -> dict[str, LazyArray]:
    """Return the tensors of a file by PyTorch's names. Raises UnreadableError."""
    data = mapped(path)
    return dict(_walk(path, data, unpack(data), ()))


def mapped(path: Path) -> memoryview:
    """Return a memory map of a file, whose pages are read on access. Raises UnreadableError for an empty file."""
    if not path.stat().st_size:
        raise UnreadableError("it is empty", code="weights.damaged")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _walk(path: Path, data: memoryview, value: Value, names: tuple[str, ...]) -> Iterator[tuple[str, LazyArray]]:
    if isinstance(value, dict) and CHUNKED not in value:
        for name, child in value.items():
            yield from _walk(path, data, child, (*names, str(name)))
        return
    stored = array_at(path, data, value)
    name, transposed = pytorch_name(names, stored)
    yield name, stored.transposed if transposed else stored


def pytorch_name(names: tuple[str, ...], stored: LazyArray) -> tuple[str, bool]:
    """Return PyTorch's name of the weight with the path `names`, and whether Flax stores it transposed."""
    *parts, last = names or ("",)
    return ".".join([*parts, re.sub("^(kernel|embedding|scale)$", "weight", last)]), (
        last == "kernel" and len(stored.shape) == 2
    )


def array_at(path: Path, data: memoryview, value: Value) -> LazyArray:
    """Return the array that is `value`, a result of `unpack`: an extension, or the map of an array in chunks."""
    if isinstance(value, dict):
        shape, chunks = _sizes(_listed(value.get("shape"))), _listed(value.get("chunks"))
    else:
        chunks, shape = [value], None
    described = [_described(data, chunk) for chunk in chunks]
    dtypes = {dtype for _, dtype, _ in described}
    if len(dtypes) != 1:
        raise UnreadableError(
            "it contains an array without values, or with values of several types", code="weights.damaged"
        )
    pieces = [(content.offset, content.length) for _, _, content in described]
    return in_pieces(path, dtype=dtypes.pop(), shape=described[0][0] if shape is None else shape, pieces=pieces)


def _described(data: memoryview, value: Value) -> tuple[list[int], str, Bytes]:
    """Return the shape, dtype and bytes of the array in the extension `value`. Raises UnreadableError."""
    if not isinstance(value, Bytes) or value.kind != ARRAY:
        raise UnreadableError(f"it holds a {type(value).__name__} where an array should be", code="weights.damaged")
    described = unpack(data, value.offset)
    if not isinstance(described, list) or len(described) != 3:
        raise UnreadableError("it contains a damaged array", code="weights.damaged")
    shape, dtype, content = described
    if isinstance(dtype, Bytes):  # versions before 2021 wrote the name as bytes
        dtype = str(data[dtype.offset : dtype.offset + dtype.length], "ascii", "replace")
    if not isinstance(content, Bytes) or not isinstance(shape, list):
        raise UnreadableError("it contains a damaged array", code="weights.damaged")
    return _sizes(shape), str(dtype), content


def _sizes(values: list[Value]) -> list[int]:
    """Return `values` as the lengths of axes. Raises UnreadableError if one is no integer."""
    sizes = [value for value in values if isinstance(value, int)]
    if len(sizes) < len(values):
        raise UnreadableError("it contains a damaged array", code="weights.damaged")
    return sizes


def _listed(numbered: Value) -> list[Value]:
    """Return [a, b] from {"0": a, "1": b}, as flax.serialization writes lists. Raises UnreadableError."""
    if not isinstance(numbered, dict):
        raise UnreadableError("it contains a damaged array", code="weights.damaged")
    return [numbered[key] for key in sorted(numbered, key=lambda key: whole_number(str(key)) or 0)]

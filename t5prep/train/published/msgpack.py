"""Read MessagePack without copying its bytes (github.com/msgpack/msgpack, spec.md)."""

import dataclasses
import struct
from typing import Any

from t5prep.train.published.stored import UnreadableError

# The maps of a model are nested nine deep; a file that nests much deeper is not a model.
MOST_DEPTH = 40

_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_FIXEXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


@dataclasses.dataclass(frozen=True)
class Bytes:
    """Locate bytes of the file, from `offset` on; `kind` is an extension's type, or None for plain bytes."""

    offset: int
    length: int
    kind: int | None = None


def read(data: memoryview, offset: int = 0) -> Any:
    """Return the value that begins at `offset`; bytes and extensions as `Bytes`. Raises UnreadableError."""
    try:
        value, _ = _value(data, offset, 0)
    except (struct.error, IndexError, UnicodeDecodeError, TypeError) as error:
        raise UnreadableError("it is cut short or damaged") from error
    return value


def _value(data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    """Return a value, and the offset of the next one."""
    if depth > MOST_DEPTH:
        raise UnreadableError("it is damaged")
    tag = data[at]
    if tag < 0x80:
        return tag, at + 1
    if tag >= 0xE0:
        return tag - 256, at + 1
    if tag in _FIXED:
        return _FIXED[tag], at + 1
    if tag in _NUMBERS:
        return struct.unpack_from(_NUMBERS[tag], data, at + 1)[0], at + 1 + struct.calcsize(_NUMBERS[tag])
    if tag < 0x90 or tag in (0xDE, 0xDF):
        count, at = (tag & 0x0F, at + 1) if tag < 0x90 else _length(data, at + 1, 2 << (tag - 0xDE))
        return _map(data, at, count, depth)
    if tag < 0xA0 or tag in (0xDC, 0xDD):
        count, at = (tag & 0x0F, at + 1) if tag < 0xA0 else _length(data, at + 1, 2 << (tag - 0xDC))
        return _list(data, at, count, depth)
    if tag < 0xC0 or tag in (0xD9, 0xDA, 0xDB):
        size, at = (tag & 0x1F, at + 1) if tag < 0xC0 else _length(data, at + 1, 1 << (tag - 0xD9))
        return str(_slice(data, at, size), "utf-8"), at + size
    if tag in (0xC4, 0xC5, 0xC6):
        size, at = _length(data, at + 1, 1 << (tag - 0xC4))
        return _bytes(data, at, size, None)
    if tag in _FIXEXT:
        return _bytes(data, at + 2, _FIXEXT[tag], data[at + 1])
    if tag in (0xC7, 0xC8, 0xC9):
        size, at = _length(data, at + 1, 1 << (tag - 0xC7))
        return _bytes(data, at + 1, size, data[at])
    raise UnreadableError("it is damaged")


def _map(data: memoryview, at: int, count: int, depth: int) -> tuple[dict[Any, Any], int]:
    items = {}
    for _ in range(count):
        key, at = _value(data, at, depth + 1)
        items[key], at = _value(data, at, depth + 1)
    return items, at


def _list(data: memoryview, at: int, count: int, depth: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(count):
        value, at = _value(data, at, depth + 1)
        items.append(value)
    return items, at


def _length(data: memoryview, at: int, size: int) -> tuple[int, int]:
    return int.from_bytes(_slice(data, at, size), "big"), at + size


def _bytes(data: memoryview, at: int, size: int, kind: int | None) -> tuple[Bytes, int]:
    _slice(data, at, size)
    return Bytes(at, size, kind), at + size


def _slice(data: memoryview, at: int, size: int) -> memoryview:
    if at + size > len(data):
        raise UnreadableError("it is cut short")
    return data[at : at + size]

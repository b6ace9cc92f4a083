"""Describe a tensor in a file: its shape and dtype are known now, its values are read when they are needed."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# The NumPy type of each dtype in a file, little-endian. NumPy has no bfloat16: it is the upper half of a float32.
DTYPES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
}


class UnreadableError(Exception):
    """Say why a file cannot be read, as the end of a sentence: "it is cut short"."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """Describe a tensor in a file, with PyTorch's order of axes. `read` returns its values as a new float32[shape]."""

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]

    @property
    def transposed(self) -> "Stored":
        """Return the same tensor with its axes in reverse order."""
        return Stored(self.shape[::-1], self.dtype, lambda: self.read().T)


def in_file(path: Path, *, dtype: str, shape: Sequence[int], offset: int) -> Stored:
    """Return a tensor whose values are contiguous from byte `offset` on.

    Raises UnreadableError for a dtype that is not a float, and where the file ends before the tensor does.
    """
    return in_pieces(path, dtype=dtype, shape=shape, pieces=[(offset, size_of(dtype, shape))])


def in_pieces(path: Path, *, dtype: str, shape: Sequence[int], pieces: Sequence[tuple[int, int]]) -> Stored:
    """Return a tensor whose values are in several pieces, each (offset, bytes). Raises UnreadableError."""
    size = size_of(dtype, shape)
    if sum(length for _, length in pieces) != size:
        raise UnreadableError(f"a tensor of shape {tuple(shape)} has {sum(n for _, n in pieces):,} bytes, not {size:,}")
    end = path.stat().st_size
    if any(offset < 0 or length < 0 or offset + length > end for offset, length in pieces):
        raise UnreadableError("it is cut short")

    def read() -> np.ndarray:
        values = np.empty(math.prod(shape), np.float32)
        done = 0
        for offset, length in pieces:
            count = length // DTYPES[dtype].itemsize
            values[done : done + count] = widened(_bytes_of(path, offset, count, dtype), dtype)
            done += count
        return values.reshape(shape)

    def read_one() -> np.ndarray:
        offset, length = pieces[0]
        found = _bytes_of(path, offset, length // DTYPES[dtype].itemsize, dtype)
        return widened(found, dtype).reshape(shape)

    return Stored(tuple(shape), dtype, read_one if len(pieces) == 1 else read)


def size_of(dtype: str, shape: Sequence[int]) -> int:
    """Return the bytes of a tensor. Raises UnreadableError for a dtype that is not a float, or an invalid shape."""
    if dtype not in DTYPES:
        raise UnreadableError(f"it has a tensor of {dtype}, and weights are float32, float16 or bfloat16")
    if not all(type(length) is int and length >= 0 for length in shape) or len(shape) > 8:
        raise UnreadableError(f"it has a tensor of shape {tuple(shape)}")
    return math.prod(shape) * DTYPES[dtype].itemsize


def widened(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return values of a file as float32; bfloat16 ones are given as uint16.

    >>> widened(np.array([0x3FC0], np.uint16), "bfloat16").tolist()
    [1.5]
    """
    if dtype == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)


def narrowed(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 values as a file stores another dtype, each rounded to the nearest (ties to even).

    >>> widened(narrowed(np.array([1.5, 3.14159], np.float32), "bfloat16"), "bfloat16").tolist()
    [1.5, 3.140625]
    """
    if dtype != "bfloat16":
        return values.astype(DTYPES[dtype], copy=False)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def _bytes_of(path: Path, offset: int, count: int, dtype: str) -> np.ndarray:
    """Return `count` values of a file, read and not mapped: pages of a map would count as memory until it is closed."""
    raw = np.fromfile(path, DTYPES[dtype], count, offset=offset)
    if len(raw) != count:
        raise UnreadableError("it is cut short")
    return raw

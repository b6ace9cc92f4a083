"""Define lazy arrays: tensors in files whose shapes are known at once, and whose values are read in parts on demand."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from t5prep.io import paths

Index = tuple[slice, ...]  # for each axis a slice with begin and end
ReadPart = Callable[[Index], np.ndarray]
Part = slice | int | tuple[slice | int, ...]  # an index in Python's brackets


class LazyArray:
    """A float32 array that is read in parts: `array[index]` reads one part, `np.asarray(array)` all of it, each time again.

    Indices are slices without steps, and ints. `part(index)` returns the values of a complete index, float32[length of each
    slice]. `stored_dtype` is the dtype of the values in the file.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, shape: Sequence[int], part: ReadPart, *, stored_dtype: str = "float32") -> None:
        self.shape, self.stored_dtype = tuple(shape), stored_dtype
        self._part = part

    @property
    def is_weight(self) -> bool:
        """Check whether the stored values are floats, which can be read as a weight."""
        return self.stored_dtype in DTYPES

    def __getitem__(self, index: Part) -> np.ndarray:
        """Return one part. Raises IndexError for an index with steps or negative numbers."""
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > len(self.shape):
            raise IndexError(f"{len(indices)} indices for an array of {len(self.shape)} axes")
        part = self.read(tuple(_span(axis_index) for axis_index in indices))
        return part[tuple(0 if isinstance(axis_index, int | np.integer) else slice(None) for axis_index in indices)]

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """Return all values, for numpy."""
        return np.asarray(self.read(), dtype)

    def read(self, index: Sequence[slice] = ()) -> np.ndarray:
        """Return the values at `index`, slices without steps for the first axes. Raises UnreadableError."""
        return self._part(full_index(index, self.shape))

    def rows(self, first: int, count: int) -> "LazyArray":
        """Return `count` rows of the first axis, from row `first` on, as a lazy array."""
        if (first, count) == (0, self.shape[0]):
            return self
        return LazyArray(
            (count, *self.shape[1:]),
            lambda index: self._part((slice(first + index[0].start, first + index[0].stop), *index[1:])),
            stored_dtype=self.stored_dtype,
        )

    @property
    def transposed(self) -> "LazyArray":
        """Return the array with its axes in reverse order, as a lazy array."""
        return LazyArray(self.shape[::-1], lambda index: self._part(index[::-1]).T, stored_dtype=self.stored_dtype)


# An array in memory, or one that is read on demand.
Array: TypeAlias = np.ndarray | LazyArray


def full_index(index: Sequence[slice], shape: Sequence[int]) -> Index:
    """Return `index` with begin and end for every axis of `shape`. Raises IndexError for steps.

    >>> full_index((slice(2, None),), (8, 3))
    (slice(2, 8, None), slice(0, 3, None))
    """
    every = [*index, *[slice(None)] * (len(shape) - len(index))]
    spans = [span.indices(length) for span, length in zip(every, shape, strict=True)]
    if any(step != 1 for _, _, step in spans):
        raise IndexError("a part of a file is taken without steps")
    return tuple(slice(begin, max(begin, end)) for begin, end, _ in spans)


def _span(index: slice | int) -> slice:
    """Return `index` as a slice. Raises IndexError for anything but a slice or a number from 0 on."""
    if isinstance(index, slice):
        return index
    if isinstance(index, int | np.integer) and index >= 0:
        return slice(int(index), int(index) + 1)
    raise IndexError(f"{index!r} is neither a slice nor a number from 0 on")


# The NumPy type of each dtype in a file, little-endian.
DTYPES: dict[str, np.dtype] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(tf.bfloat16.as_numpy_dtype),
}
# Other dtypes that a checkpoint's tensors may have (buffers such as BERT's `position_ids`, quantized weights) → their bits.
OTHER_DTYPES = {
    dtype: bits
    for bits, dtypes in {
        4: "float4",
        6: "float6_e2m3 float6_e3m2",
        8: "bool uint8 int8 float8_e4m3 float8_e5m2 float8_e8m0",
        16: "uint16 int16",
        32: "uint32 int32",
        64: "uint64 int64 complex64",
        128: "complex128",
    }.items()
    for dtype in dtypes.split()
}


MOST_DESCRIPTION_BYTES = 1 << 24  # the maximum size of a file that describes an array


class UnreadableError(Exception):
    """Say why a file cannot be read, as the end of a sentence: "it is cut short"; `code` is that of the whole sentence."""

    def __init__(self, reason: str, *, code: str) -> None:
        super().__init__(reason)
        self.code = code


def unreadable_code(error: UnreadableError | OSError) -> str:
    """Return the code of the UsageError that says why a file of weights cannot be read."""
    return error.code if isinstance(error, UnreadableError) else "model.unreadable"


def in_file(path: Path, *, dtype: str, shape: Sequence[int], offset: int) -> LazyArray:
    """Return a tensor whose values are contiguous from byte `offset` of a file on.

    If `dtype` is no dtype of weights, the tensor has a shape, but its values cannot be read. Raises UnreadableError for an
    unknown dtype, and if the file ends before the tensor.
    """
    if dtype in DTYPES:
        return in_pieces(path, dtype=dtype, shape=shape, pieces=[(offset, size_of(dtype, shape))])
    if offset < 0 or offset + size_of(dtype, shape) > path.stat().st_size:
        raise UnreadableError("it is cut short", code="weights.damaged")
    return without_values(dtype=dtype, shape=shape)


def without_values(*, dtype: str, shape: Sequence[int]) -> LazyArray:
    """Return a tensor with only a shape, for a `dtype` that no weight has. Raises UnreadableError for an unknown dtype."""
    size_of(dtype, shape)

    def refuse(_: Index) -> np.ndarray:
        raise UnreadableError(
            f"it has a weight of {dtype}, but weights must be float64, float32, float16 or bfloat16",
            code="weights.unsupported-dtype",
        )

    return LazyArray(shape, refuse, stored_dtype=dtype)


def in_pieces(path: Path, *, dtype: str, shape: Sequence[int], pieces: Sequence[tuple[int, int]]) -> LazyArray:
    """Return a tensor whose values are in several `pieces` of a file, each (offset, bytes). Raises UnreadableError."""
    size = weight_size(dtype, shape)
    if sum(length for _, length in pieces) != size:
        raise UnreadableError(
            f"a tensor of shape {tuple(shape)} has {sum(n for _, n in pieces):,} bytes, not {size:,}",
            code="weights.damaged",
        )
    end = path.stat().st_size
    if any(length % DTYPES[dtype].itemsize for _, length in pieces):
        raise UnreadableError("one of its values is divided between two pieces", code="weights.damaged")
    if any(offset < 0 or length < 0 or offset + length > end for offset, length in pieces):
        raise UnreadableError("it is cut short", code="weights.damaged")

    def part(index: Index) -> np.ndarray:
        """Return the values at `index`. Only the needed rows of the first axis are read from the file."""
        rows, *other_slices = index or (slice(0, 1),)
        row = math.prod(shape[1:])
        values = _values(path, pieces, dtype, first=rows.start * row, count=(rows.stop - rows.start) * row)
        if not index:
            return values.astype(np.float32, copy=False).reshape(())
        selection = values.reshape(rows.stop - rows.start, *shape[1:])[(slice(None), *other_slices)]
        return selection.astype(np.float32, copy=False)

    return LazyArray(shape, part, stored_dtype=dtype)


def size_of(dtype: str, shape: Sequence[int]) -> int:
    """Return the size of a tensor in bytes. Raises UnreadableError for an unknown dtype or an invalid shape."""
    if dtype not in DTYPES and dtype not in OTHER_DTYPES:
        raise UnreadableError(
            f"it has a tensor of the unknown dtype {str(dtype)[:40]}", code="weights.unsupported-dtype"
        )
    if not all(type(length) is int and length >= 0 for length in shape) or len(shape) > 8:
        raise UnreadableError(f"it has a tensor of the invalid shape {tuple(shape)}", code="weights.damaged")
    bits = OTHER_DTYPES[dtype] if dtype in OTHER_DTYPES else 8 * DTYPES[dtype].itemsize
    return -(-math.prod(shape) * bits // 8)


def weight_size(dtype: str, shape: Sequence[int]) -> int:
    """Return the size of a weight in bytes. Raises UnreadableError like `size_of`, and for a dtype that no weight has."""
    size = size_of(dtype, shape)
    if dtype not in DTYPES:
        raise UnreadableError(
            f"it has a tensor of {dtype}, but weights must be float64, float32, float16 or bfloat16",
            code="weights.unsupported-dtype",
        )
    return size


def read_small(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file of at most `max_bytes`. Raises UnreadableError for a larger file, OSError for a pipe."""
    with paths.opened(path) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise UnreadableError(
                f"{path.parent.name}/{path.name} is larger than the format allows", code="weights.damaged"
            )
        return file.read()


def _values(path: Path, pieces: Sequence[tuple[int, int]], dtype: str, *, first: int, count: int) -> np.ndarray:
    """Return `count` values, from value `first` on, in the file's dtype. Raises UnreadableError."""
    size, parts, begin = DTYPES[dtype].itemsize, [], 0
    for offset, length in pieces:
        start, end = max(first, begin), min(first + count, begin + length // size)
        if start < end:
            parts.append(_bytes_of(path, offset + (start - begin) * size, end - start, dtype))
        begin += length // size
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, DTYPES[dtype])


def _bytes_of(path: Path, offset: int, count: int, dtype: str) -> np.ndarray:
    """Return `count` values of a file from byte `offset` on. Raises UnreadableError.

    The file is read and not mapped, because the pages of a map count as used memory until it is closed.
    """
    raw = np.fromfile(path, DTYPES[dtype], count, offset=offset)
    if len(raw) != count:
        raise UnreadableError("it is cut short", code="weights.damaged")
    return raw

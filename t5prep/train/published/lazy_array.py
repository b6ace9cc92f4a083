"""Hold an array whose values are read from a file when a part of it is taken."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Index = tuple[slice, ...]  # one slice with begin and end for each axis
ReadPart = Callable[[Index], np.ndarray]


class LazyArray:
    """Read a float32 array in parts: `array[index]` reads one part, `np.asarray(array)` all of it, anew each time.

    `read(index)` returns the part float32[length of each slice]. An index is made of slices without steps and of ints.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, shape: Sequence[int], read: ReadPart) -> None:
        self.shape = tuple(shape)
        self._read = read

    @property
    def nbytes(self) -> int:
        """Return the size in bytes of the whole array."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return one part. Raises IndexError for an index of another kind."""
        given = index if isinstance(index, tuple) else (index,)
        if len(given) > len(self.shape):
            raise IndexError(f"{len(given)} indices for an array of {len(self.shape)} axes")
        spans = full_index(tuple(_span(one) for one in given), self.shape)
        part = self._read(spans)
        return part[tuple(0 if isinstance(one, int | np.integer) else slice(None) for one in given)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all values, for numpy."""
        return np.asarray(self[()], dtype)


def full_index(index: Sequence[slice], shape: Sequence[int]) -> Index:
    """Return an index with a begin and an end for every axis. Raises IndexError for steps.

    >>> full_index((slice(2, None),), (8, 3))
    (slice(2, 8, None), slice(0, 3, None))
    """
    every = [*index, *[slice(None)] * (len(shape) - len(index))]
    spans = [one.indices(length) for one, length in zip(every, shape, strict=True)]
    if any(step != 1 for _, _, step in spans):
        raise IndexError("a part of a file is taken without steps")
    return tuple(slice(begin, max(begin, end)) for begin, end, _ in spans)


def _span(index: Any) -> slice:
    if isinstance(index, slice):
        return index
    if isinstance(index, int | np.integer) and index >= 0:
        return slice(int(index), int(index) + 1)
    raise IndexError(f"{index!r} is neither a slice nor a number from 0 on")

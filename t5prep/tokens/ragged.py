"""Compute on lists of token ids that are stored one after the other in one array."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

try:
    from t5prep.tokens._native import copy_lists
except ImportError:  # no compiler
    copy_lists = None  # type: ignore[assignment]


class Ragged(NamedTuple):
    """Hold lists of ids, one after the other: int32[ids], and where each list begins: int64[lists + 1]."""

    ids: np.ndarray
    starts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Return how many ids each list has: int64[lists]."""
        return np.diff(self.starts)

    def apart(self) -> list[np.ndarray]:
        """Return the ids of each list: int32[length] each."""
        edges = self.starts.tolist()
        return [self.ids[start:end] for start, end in itertools.pairwise(edges)]


def of(lists: list[np.ndarray]) -> Ragged:
    """Return lists of ids as one Ragged.

    >>> of([np.array([5, 6], np.int32), np.array([], np.int32)]).starts.tolist()
    [0, 2, 2]
    """
    return Ragged(np.concatenate([np.zeros(0, np.int32), *lists]), begins([len(one) for one in lists]))


def begins(lengths: np.ndarray | list[int]) -> np.ndarray:
    """Return where concatenated lists of these lengths begin, and where the last one ends: int64[lists + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def joined(fields: list[Ragged], *, after: int) -> Ragged:
    """Return for each row its list of every field, concatenated, each followed by the id `after`.

    >>> title, body = of([np.array([5], np.int32)]), of([np.array([6, 7], np.int32)])
    >>> joined([title, body], after=1).ids.tolist()
    [5, 1, 6, 7, 1]
    """
    starts = begins(np.sum([field.lengths + 1 for field in fields], axis=0))
    ids = np.empty(int(starts[-1]), np.int32)
    places = starts[:-1].copy()
    for field in fields:
        _copy(field.ids, field.starts[:-1], ids, places, field.lengths)
        places += field.lengths
        ids[places] = after
        places += 1
    return Ragged(ids, starts)


def framed(fields: list[Ragged], *, first: Sequence[int], between: Sequence[int], last: Sequence[int]) -> Ragged:
    """Return for each row the ids `first`, its list of every field with `between` between them, and the ids `last`.

    >>> framed([of([np.array([5, 6], np.int32)])], first=(1,), between=(2,), last=(2,)).ids.tolist()
    [1, 5, 6, 2]
    """
    special = [first, *[between] * (len(fields) - 1), last]
    lengths = np.sum([field.lengths for field in fields], axis=0) + sum(map(len, special))
    starts = begins(lengths)
    ids = np.empty(int(starts[-1]), np.int32)
    places = starts[:-1].copy()
    for number, some in enumerate(special):
        for one in some:
            ids[places] = one
            places += 1
        if number < len(fields):
            field = fields[number]
            _copy(field.ids, field.starts[:-1], ids, places, field.lengths)
            places += field.lengths
    return Ragged(ids, starts)


def cut(lists: Ragged, length: int, *, keep: tuple[int, int], middle: int | None) -> Ragged:
    """Return lists of at most `length` ids; longer lists keep `keep` ids at both ends, with `middle` between, if given.

    >>> cut(of([np.arange(9, dtype=np.int32)]), 4, keep=(1, 2), middle=77).ids.tolist()
    [0, 77, 7, 8]
    """
    lengths, (head, tail) = lists.lengths, keep
    long = lengths > length
    if not long.any():
        return lists
    starts = begins(np.minimum(lengths, length))
    ids = np.empty(int(starts[-1]), np.int32)
    _copy(lists.ids, lists.starts[:-1], ids, starts[:-1], np.where(long, head, lengths))
    if middle is not None:
        ids[starts[:-1][long] + head] = middle
    _copy(lists.ids, lists.starts[1:][long] - tail, ids, starts[1:][long] - tail, np.full(int(long.sum()), tail))
    return Ragged(ids, starts)


def taken(lists: Ragged, rows: np.ndarray) -> Ragged:
    """Return the lists of these rows, int64[rows], in this order.

    >>> taken(of([np.array([5, 6], np.int32), np.array([7], np.int32)]), np.array([1, 0, 1])).ids.tolist()
    [7, 5, 6, 7]
    """
    lengths = lists.lengths[rows]
    starts = begins(lengths)
    ids = np.empty(int(starts[-1]), np.int32)
    _copy(lists.ids, lists.starts[:-1][rows], ids, starts[:-1], lengths)
    return Ragged(ids, starts)


def _copy(source: np.ndarray, begin: np.ndarray, target: np.ndarray, place: np.ndarray, lengths: np.ndarray) -> None:
    """Copy `lengths[i]` ids, starting at `begin[i]`, to `place[i]`, for every i."""
    if copy_lists is not None:
        begin, place, lengths = (np.ascontiguousarray(array, np.int64) for array in (begin, place, lengths))
        copy_lists(np.ascontiguousarray(source), begin, target, place, lengths)
        return
    before = np.cumsum(lengths) - lengths
    each = np.arange(int(lengths.sum()))
    target[each + np.repeat(place - before, lengths)] = source[each + np.repeat(begin - before, lengths)]

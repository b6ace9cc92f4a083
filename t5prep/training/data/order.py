"""Compute the order in which training reads records, as a pure function of (seed, epoch, step).

Shards hold their records in shuffled order already (by hash), so the work per epoch is small:

* the pages of records of the whole split are permuted and concatenated, starting at a record drawn for that epoch;
* that sequence is cut into one contiguous range per *lane*; every batch takes the same number of rows from each lane. A
  page has few records and there are many lanes, so records of one page or one shard meet in a batch no more often than
  any others (docs/decisions/021-mix-records-by-lanes.md);
* the records that a lane reads for some steps (a *window*) are permuted among themselves.

Epochs follow each other without a gap: the rows of the first `records` positions are exactly one epoch, no batch is
short, and nothing is dropped. No buffer holds state, so any step is computed directly, without replaying earlier steps.
Lanes and windows depend on the global batch and the number of records, never on replicas or hosts.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# A window holds about this many records of the global order: some 10 MB of 512-token records.
WINDOW = 8192
# Many lanes keep the records of one page out of the same batch; a lane costs one page in memory.
MAX_LANES = 128
# A window has at most 1 / _PART of all records: _WINDOWS of them are less than _FIRST_READ below.
_PART = 64
# Before the first batch is complete, up to _WINDOWS windows are read, and the whole page that each lane has begun. Together
# they have at most _FIRST_READ of all records; the begun pages alone at most _OF_PAGES.
_WINDOWS, _FIRST_READ, _OF_PAGES = 3, 1 / 20, 1 / 32

_MASK = 2**63 - 1
# The odd constants of splitmix64 (Steele, Lea and Flood 2014), cut to 63 bits, so that they fit int64.
_GOLDEN = 0x1E3779B97F4A7C15
_FIRST = 0x3F58476D1CE4E5B9
_SECOND = 0x14D049BB133111EB
# Each purpose of a hash has a number that is part of the key, so that no hash decides two things.
_START, _ROWS, _PAGES = 2, 3, 4


@dataclasses.dataclass(frozen=True)
class Table:
    """The layout of a global batch: `lanes` times `width` rows, in windows of `steps` steps."""

    lanes: int
    width: int
    steps: int

    @property
    def lane_rows(self) -> int:
        """Return how many records one lane reads for one window."""
        return self.width * self.steps


def table(global_batch: int, *, records: int, every: int, least: int = 1) -> Table:
    """Return the layout of a global batch for datasets of `records` records in all, in pages of at most `every` records.

    A lane has at least `least` rows in a window: a mixture needs several, to deal them to its datasets.

    >>> table(128, records=40_000, every=8)
    Table(lanes=128, width=1, steps=2)
    >>> table(128, records=10_000_000, every=64)
    Table(lanes=128, width=1, steps=64)
    """
    rows = max(min(WINDOW, records // _PART), least)
    max_lanes = max(1, rows // max(every, least))
    if least == 1:
        room = min(records * _OF_PAGES, records * _FIRST_READ - _WINDOWS * global_batch)
        max_lanes = max(max_lanes, int(room // max(every - 1, 1)))
    lanes = next(n for n in range(min(max_lanes, MAX_LANES, global_batch), 0, -1) if global_batch % n == 0)
    if least == 1:
        rows = min(rows, int(records * _FIRST_READ - lanes * (every - 1)) // _WINDOWS)
    return Table(lanes, global_batch // lanes, max(1, -(-least * lanes // global_batch), rows // global_batch))


def shares(rates: Sequence[float], size: int) -> list[int]:
    """Return how many of `size` records each dataset gives, by the method of largest remainders: exact to 1 / size.

    >>> shares([0.7, 0.2, 0.1], 512)
    [358, 103, 51]
    """
    exact = [size * rate / math.fsum(rates) for rate in rates]
    counts = [math.floor(share) for share in exact]
    behind = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in behind[: size - sum(counts)]:
        counts[i] += 1
    return counts


def key(*words: Any) -> Any:
    """Return a hash in [0, 2**63) of integers, or of int64 arrays that broadcast. Integers and arrays give the same hash."""
    mixed = _GOLDEN
    for word in words:  # a step of splitmix64 for each
        mixed = ((mixed ^ (word & _MASK)) + _GOLDEN) & _MASK
        mixed = ((mixed ^ (mixed // 2**30)) * _FIRST) & _MASK
        mixed = ((mixed ^ (mixed // 2**27)) * _SECOND) & _MASK
        mixed = mixed ^ (mixed // 2**31)
    return mixed


@dataclasses.dataclass(frozen=True, eq=False)
class PageOrder:
    """The order of one dataset: the records that each lane reads. A batch takes `width` records from each lane.

    `sizes` (int64[pages]) holds the number of records of each page; `stream` is the dataset's number in its mixture.
    """

    sizes: np.ndarray
    seed: int
    lanes: int
    width: int
    stream: int = 0
    # The page sequences of at most two epochs: a window may end one epoch and begin the next.
    _cached_sequences: dict[int, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict, repr=False)

    @functools.cached_property
    def epoch_records(self) -> int:
        """Return the number of records in an epoch."""
        return int(self.sizes.sum())

    def epoch(self, lane: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Return the epoch of the `index`-th record that a lane reads, counted from the start of training."""
        position = index // self.width * (self.lanes * self.width) + lane * self.width + index % self.width
        return position // self.epoch_records

    def records(self, lane: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the page of the `index`-th record that a lane reads, and its place in the page: int64 each.

        Lanes and indices, int64, broadcast to the shape of the result; `index` counts over all epochs.
        """
        lane, index = np.broadcast_arrays(lane, index)
        epochs = self.epoch(lane, index)
        first, following = epochs * self.epoch_records, (epochs + 1) * self.epoch_records
        # The epoch's sequence is a ring. `begins` is the ring position where the lane's range begins, `read` the number of
        # records that the lane has read in earlier epochs.
        start = key(self.seed, self.stream, _START, epochs) % self.epoch_records
        begins = start + self._count_earlier_rows(lane, following) - self._count_earlier_rows(lane, first)
        read = self._count_earlier_rows(lane + 1, first) - self._count_earlier_rows(lane, first)
        position = (begins + index - read) % self.epoch_records
        page = np.empty_like(position)
        for epoch in np.unique(epochs).tolist():
            in_epoch = epochs == epoch
            permuted, ends = self._sequence(epoch)
            page_index = np.searchsorted(ends, position[in_epoch], side="right")
            page[in_epoch] = permuted[page_index]
            position[in_epoch] -= ends[page_index] - self.sizes[permuted[page_index]]
        return page, position

    def _count_earlier_rows(self, lane: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Return how many of the first `position` rows of the global order belong to lanes before this one."""
        turn = self.lanes * self.width
        return position // turn * (self.width * lane) + np.minimum(position % turn, self.width * lane)

    def _sequence(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the pages in the order of an epoch, and the cumulative number of records at the end of each page."""
        if epoch not in self._cached_sequences:
            for old in list(self._cached_sequences)[:-1]:
                del self._cached_sequences[old]
            numbers = np.arange(len(self.sizes), dtype=np.int64)
            permuted = np.argsort(key(self.seed, self.stream, _PAGES, epoch, numbers))
            self._cached_sequences[epoch] = permuted, np.cumsum(self.sizes[permuted])
        return self._cached_sequences[epoch]


def shuffled(seed: int, lane: np.ndarray, index: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    """Return the permutation of a window: int[..., size], from `lane`, `index` and `epoch`, which broadcast to that shape.

    Records of an earlier epoch stay before those of a later one. `index` counts a lane's rows over all epochs.
    """
    # The sort key has the epoch in its high bits, and below it the upper 44 of the 63 bits of a random key, so epochs never mix.
    random_keys = key(seed, _ROWS, lane, index)
    return np.argsort((epoch - epoch[..., :1]) * 2**44 + random_keys // 2**19)

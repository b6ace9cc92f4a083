"""Compute the order in which training reads records, as a pure function of (seed, epoch, step).

Shards hold their records in shuffled order already (by hash), so the work per epoch is small:

* the pages of records of the whole split are permuted and concatenated, starting at a record drawn for that epoch;
* that sequence is cut into one contiguous range per *lane*; every batch takes the same number of rows from each lane. A
  page has few records and there are many lanes, so that records of one page or one shard stand together in a batch no
  more often than any others;
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
# A window has at most this part of the records.
_PART = 64
# While the first batch is made, up to this many windows are read, and the rest of the page that each lane has begun. All
# together have at most this part of the records, and the begun pages at most that one.
_WINDOWS, _FIRST_READ, _OF_PAGES = 3, 1 / 20, 1 / 32

_MASK = 2**63 - 1
# The odd constants of splitmix64 (Steele, Lea and Flood 2014), cut to 63 bits.
_GOLDEN = 0x1E3779B97F4A7C15
_FIRST = 0x3F58476D1CE4E5B9
_SECOND = 0x14D049BB133111EB
# The purpose of a hash is part of its key, so that no hash decides two things.
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
    """Return the layout of a global batch for datasets with `records` records each, in pages of (at most) `every`.

    A lane has at least `least` rows in a window.

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
    """Return how many of `size` records each dataset gives, by largest remainder: exact to 1 / size.

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
    """Return a hash of integers, or of int64 arrays that broadcast: in [0, 2**63)."""
    h = _GOLDEN
    for word in words:
        h = ((h ^ (word & _MASK)) + _GOLDEN) & _MASK
        h = ((h ^ (h // 2**30)) * _FIRST) & _MASK
        h = ((h ^ (h // 2**27)) * _SECOND) & _MASK
        h = h ^ (h // 2**31)
    return h


@dataclasses.dataclass(frozen=True, eq=False)
class PageOrder:
    """The order of one dataset: which records the lanes read, `width` of them in turn from each lane.

    `sizes` (int64[pages]) are the records of each page; `stream` is the dataset's number.
    """

    sizes: np.ndarray
    seed: int
    lanes: int
    width: int
    stream: int = 0
    # The sequences of the last epochs: two, where a window ends one epoch and begins the next.
    _kept: dict[int, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict, repr=False)

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
        # Where in the epoch's sequence, which is a ring, the lane's range begins, and how many records it has read before.
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
        """Return the pages in the order of an epoch, and how many records there are up to the end of each."""
        if epoch not in self._kept:
            for old in list(self._kept)[:-1]:
                del self._kept[old]
            numbers = np.arange(len(self.sizes), dtype=np.int64)
            permuted = np.argsort(key(self.seed, self.stream, _PAGES, epoch, numbers))
            self._kept[epoch] = permuted, np.cumsum(self.sizes[permuted])
        return self._kept[epoch]


def shuffled(seed: int, lane: np.ndarray, index: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    """Return the permutation of a window: int[..., size], from lanes, indices and epochs that broadcast to that shape.

    Records of an earlier epoch stay before those of a later one. `index` counts a lane's rows over all epochs.
    """
    random_keys = key(seed, _ROWS, lane, index)
    return np.argsort((epoch - epoch[..., :1]) * 2**44 + random_keys // 2**19)

"""Compute which record of a dataset with an index stands where: blocks of records are permuted over the whole split.

This is the order of `t5prep.train.data.order` with blocks in the place of shards: in each epoch all blocks of the split
are permuted and joined, and each lane reads one contiguous range of that sequence. A block has few records and there are
many lanes, so that records of one block or one shard stand together in a batch no more often than any others.
"""

import dataclasses
import functools

import numpy as np

from t5prep.train.data import order
from t5prep.train.data.order import Deal, Table

# Many lanes keep the records of one block out of the same batch; a lane costs one block in memory.
MAX_LANES = 128
# A window has at most this part of the records.
_PART = 64
# While the first batch is made, up to so many windows are read, and the rest of the block that each lane has begun. All
# together have at most this part of the records, and the begun blocks at most that one.
_WINDOWS, _FIRST_READ, _OF_BLOCKS = 3, 1 / 20, 1 / 32

# The purpose of a hash, beside those of `order`.
_BLOCKS = 4


def table(global_batch: int, *, records: int, every: int, least: int = 1) -> Table:
    """Return the layout of a global batch for datasets with so many `records` in blocks of (at most) `every`.

    A lane has at least `least` rows in a window.

    >>> table(128, records=40_000, every=8)
    Table(lanes=128, width=1, steps=2)
    >>> table(128, records=10_000_000, every=64)
    Table(lanes=128, width=1, steps=64)
    """
    rows = max(min(order.WINDOW, records // _PART), least)
    most = max(1, rows // max(every, least))
    if least == 1:
        room = min(records * _OF_BLOCKS, records * _FIRST_READ - _WINDOWS * global_batch)
        most = max(most, int(room // max(every - 1, 1)))
    lanes = next(n for n in range(min(most, MAX_LANES, global_batch), 0, -1) if global_batch % n == 0)
    if least == 1:
        rows = min(rows, int(records * _FIRST_READ - lanes * (every - 1)) // _WINDOWS)
    return Table(lanes, global_batch // lanes, max(1, -(-least * lanes // global_batch), rows // global_batch))


@dataclasses.dataclass(frozen=True, eq=False)
class BlockOrder:
    """Say which records the lanes read. `sizes` (int64[blocks]) are the records of each block; the rest is as for a Deal."""

    sizes: np.ndarray
    seed: int
    lanes: int
    width: int
    stream: int = 0
    # The sequences of the last epochs: two, where a window ends one epoch and begins the next.
    _kept: dict[int, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict, repr=False)

    @functools.cached_property
    def deal(self) -> Deal:
        """Return how rows are distributed over lanes and epochs, whatever the blocks are."""
        return Deal((int(self.sizes.sum()),), self.seed, self.lanes, self.width, self.stream)

    def records(self, lane: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the block of the `index`-th record that a lane reads, and its place in the block: int64 each.

        Lanes and indices, int64, broadcast to the shape of the result; `index` counts over all epochs.
        """
        lane, index = np.broadcast_arrays(lane, index)
        epochs, begins = self.deal.epoch(lane, index), self.deal.begins(np, lane, self.deal.epoch(lane, index))
        place = (begins + index - self.deal.read(np, lane, epochs)) % self.deal.records
        block = np.empty_like(place)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            permuted, ends = self._sequence(epoch)
            at = np.searchsorted(ends, place[here], side="right")
            block[here] = permuted[at]
            place[here] -= ends[at] - self.sizes[permuted[at]]
        return block, place

    def _sequence(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the blocks in the order of an epoch, and how many records there are up to the end of each."""
        if epoch not in self._kept:
            for old in list(self._kept)[:-1]:
                del self._kept[old]
            numbers = np.arange(len(self.sizes), dtype=np.int64)
            permuted = np.argsort(order.key(self.seed, self.stream, _BLOCKS, epoch, numbers))
            self._kept[epoch] = permuted, np.cumsum(self.sizes[permuted])
        return self._kept[epoch]

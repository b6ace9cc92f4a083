"""Compute the order in which training reads records, as a pure function of (seed, epoch, step).

Shards hold their records in shuffled order already (by hash), so the work per epoch is small:

* the shards of an epoch are permuted and concatenated, starting at a record drawn for that epoch;
* that sequence is cut into one contiguous range per *lane*; every batch takes the same number of rows from each lane,
  so a host opens only the files of its own lanes;
* the records that a lane reads for some steps (a *window*) are permuted among themselves.

Epochs follow each other without a gap: the rows of the first `records` positions are exactly one epoch, no batch is
short, and nothing is dropped. No buffer holds state, so any step is computed directly, without replaying earlier steps.
Lanes and windows depend on the global batch and the number of shards, never on replicas or hosts.

Functions take `xp`, numpy or TensorFlow's numpy, so tests and the input graph compute the order with the same code.
Hashing uses 63 bits of an int64 and only the operators `* & ^ //`, which overflow in the same way in both.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

# A window holds about this many records of the global order: some 10 MB of 512-token records.
WINDOW = 8192
# The most files that one host reads at the same time. TensorFlow buffers up to 64 MB for each one on gs://.
MAX_LANES = 32

_MASK = 2**63 - 1
# The odd constants of splitmix64 (Steele, Lea and Flood 2014), cut to 63 bits.
_GOLDEN = 0x1E3779B97F4A7C15
_FIRST = 0x3F58476D1CE4E5B9
_SECOND = 0x14D049BB133111EB
# The purpose of a hash is part of its key, so that no hash decides two things.
_SHARDS, _START, _ROWS = 1, 2, 3


@dataclasses.dataclass(frozen=True)
class Table:
    """Describe the layout of a global batch: `lanes` times `width` rows, in windows of `steps` steps."""

    lanes: int
    width: int
    steps: int

    @property
    def lane_rows(self) -> int:
        """Return how many records one lane reads for one window."""
        return self.width * self.steps


def table(global_batch: int, shards: int) -> Table:
    """Return the layout with the most lanes that divide the batch: at most one for each shard, so that few share one.

    >>> table(128, 16)
    Table(lanes=16, width=8, steps=64)
    >>> table(96, 100).lanes, table(8, 1).lanes, table(10000, 3).steps
    (32, 1, 1)
    """
    most = max(1, min(shards, MAX_LANES, global_batch))
    lanes = next(n for n in range(most, 0, -1) if global_batch % n == 0)
    return Table(lanes, global_batch // lanes, max(1, WINDOW // global_batch))


def shares(rates: Sequence[float], size: int) -> list[int]:
    """Return how many of `size` records each dataset gives, by largest remainder: exact to 1 / size.

    >>> shares([0.7, 0.2, 0.1], 512)
    [358, 103, 51]
    """
    exact = [size * rate / math.fsum(rates) for rate in rates]
    whole = [math.floor(share) for share in exact]
    behind = sorted(range(len(exact)), key=lambda i: (whole[i] - exact[i], i))
    for i in behind[: size - sum(whole)]:
        whole[i] += 1
    return whole


def key(*words: Any) -> Any:
    """Return a hash of integers, or of integer arrays that broadcast: int64 in [0, 2**63)."""
    h = _GOLDEN
    for word in words:
        h = ((h ^ (word & _MASK)) + _GOLDEN) & _MASK
        h = ((h ^ (h // 2**30)) * _FIRST) & _MASK
        h = ((h ^ (h // 2**27)) * _SECOND) & _MASK
        h = h ^ (h // 2**31)
    return h


@dataclasses.dataclass(frozen=True)
class Deal:
    """Distribute one dataset over lanes: `width` records to each lane in turn. `stream` is the dataset's number."""

    counts: tuple[int, ...]
    seed: int
    lanes: int
    width: int
    stream: int = 0

    @property
    def records(self) -> int:
        """Return the number of records in an epoch."""
        return sum(self.counts)

    def epoch(self, lane: Any, index: Any) -> Any:
        """Return the epoch of the `index`-th record that a lane reads, counted from the start of training."""
        position = index // self.width * (self.lanes * self.width) + lane * self.width + index % self.width
        return position // self.records

    def read(self, xp: Any, lane: Any, epoch: Any) -> Any:
        """Return how many records a lane has read when an epoch begins."""
        return self._before(xp, lane + 1, epoch * self.records) - self._before(xp, lane, epoch * self.records)

    def begins(self, xp: Any, lane: Any, epoch: Any) -> Any:
        """Return where in the sequence of an epoch a lane's range begins; the sequence is a ring."""
        this, following = epoch * self.records, (epoch + 1) * self.records
        start = key(self.seed, self.stream, _START, epoch) % self.records
        return start + self._before(xp, lane, following) - self._before(xp, lane, this)

    def pieces(self, xp: Any, lane: Any, epoch: Any, index: Any) -> tuple[Any, Any, Any]:
        """Return what a lane reads in an epoch: shards, how many records to skip in each, and how many to take.

        `index` is the first record to read, over all epochs. All three are int64[2 * shards]: the permuted shards
        twice, because a range may continue past their end. Most numbers of records to take are 0.
        """
        low = self.begins(xp, lane, epoch)
        high = self.begins(xp, lane + 1, epoch)
        low = low + xp.maximum(index - self.read(xp, lane, epoch), 0)
        ring = xp.argsort(key(self.seed, self.stream, _SHARDS, epoch, xp.arange(len(self.counts), dtype=xp.int64)))
        ring = xp.concatenate([ring, ring], 0)
        sizes = xp.take(xp.array(self.counts, dtype=xp.int64), ring)
        ends = xp.cumsum(sizes)
        begins = ends - sizes
        skip = xp.maximum(low - begins, 0)
        return ring, skip, xp.maximum(xp.minimum(ends, high) - xp.maximum(begins, low), 0)

    def _before(self, xp: Any, lane: Any, position: Any) -> Any:
        """Return how many of the first `position` rows of the global order belong to lanes before this one."""
        turn = self.lanes * self.width
        return position // turn * (self.width * lane) + xp.minimum(position % turn, self.width * lane)


def shuffled(xp: Any, seed: int, lane: Any, index: Any, epoch: Any) -> Any:
    """Return the permutation of a window: int[..., size], from lanes, indices and epochs that broadcast to that shape.

    Records of an earlier epoch stay before those of a later one. `index` counts a lane's rows over all epochs.
    """
    drawn = key(seed, _ROWS, lane, index)
    return xp.argsort((epoch - epoch[..., :1]) * 2**44 + drawn // 2**19)

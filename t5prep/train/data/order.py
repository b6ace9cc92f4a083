"""The order in which training sees records: arithmetic on counts, a pure function of (seed, epoch, step).

Shards hold their records shuffled already (placed by hash), so what is left to do per epoch is cheap:

* the shards of an epoch are permuted and laid end to end, beginning at a record drawn for that epoch;
* that sequence is cut into one contiguous range per *lane*; every batch takes the same number of rows from each lane,
  so a host opens only the files of its own lanes;
* the records that a lane reads for some steps (a *window*) are permuted among themselves.

Epochs are laid end to end without a gap: the rows of the first `records` positions are one epoch exactly, no batch is
short, nothing is dropped. No buffer carries state, so any step is computed, never replayed. Lanes and windows depend on
the global batch and the number of shards, never on replicas or hosts.

Every function takes `xp`, numpy or TensorFlow's numpy: the same lines draw the order in tests and in the input graph.
Hashing is done in 63 bits of an int64 with `* & ^ //` alone, which both wrap in the same way.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

# A window holds about this many records of the global order: some 10 MB of 512-token records.
WINDOW = 8192
# Files that one host reads side by side. TensorFlow buffers up to 64 MB for each one on gs://.
MAX_LANES = 32

_MASK = 2**63 - 1
# The odd constants of splitmix64 (Steele, Lea and Flood 2014), cut to 63 bits.
_GOLDEN = 0x1E3779B97F4A7C15
_FIRST = 0x3F58476D1CE4E5B9
_SECOND = 0x14D049BB133111EB
# What is drawn: the same number must not decide two things.
_SHARDS, _START, _ROWS = 1, 2, 3


@dataclasses.dataclass(frozen=True)
class Table:
    """How a global batch is laid: `lanes` times `width` rows, in windows of `steps` steps."""

    lanes: int
    width: int
    steps: int

    @property
    def lane_rows(self) -> int:
        """Records that one lane reads for one window."""
        return self.width * self.steps


def table(global_batch: int, shards: int) -> Table:
    """As many lanes as divide the batch and leave each a shard or more, so that lanes seldom share a file.

    >>> table(128, 16)
    Table(lanes=16, width=8, steps=64)
    >>> table(96, 100).lanes, table(8, 1).lanes, table(10000, 3).steps
    (32, 1, 1)
    """
    most = max(1, min(shards, MAX_LANES, global_batch))
    lanes = next(n for n in range(most, 0, -1) if global_batch % n == 0)
    return Table(lanes, global_batch // lanes, max(1, WINDOW // global_batch))


def shares(rates: Sequence[float], size: int) -> list[int]:
    """How many of `size` records each dataset gives, by largest remainder: exact to 1 / size.

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
    """A hash of integers, or of integer arrays that broadcast: int64 in [0, 2**63)."""
    h = _GOLDEN
    for word in words:
        h = ((h ^ (word & _MASK)) + _GOLDEN) & _MASK
        h = ((h ^ (h // 2**30)) * _FIRST) & _MASK
        h = ((h ^ (h // 2**27)) * _SECOND) & _MASK
        h = h ^ (h // 2**31)
    return h


@dataclasses.dataclass(frozen=True)
class Deal:
    """How one dataset is dealt to lanes. `width` records go to each lane in turn; `stream` tells datasets apart."""

    counts: tuple[int, ...]
    seed: int
    lanes: int
    width: int
    stream: int = 0

    @property
    def records(self) -> int:
        """Records in an epoch."""
        return sum(self.counts)

    def epoch(self, lane: Any, index: Any) -> Any:
        """The epoch of the `index`-th record that a lane reads in its endless life."""
        position = index // self.width * (self.lanes * self.width) + lane * self.width + index % self.width
        return position // self.records

    def read(self, xp: Any, lane: Any, epoch: Any) -> Any:
        """How many records a lane has read when an epoch begins."""
        return self._before(xp, lane + 1, epoch * self.records) - self._before(xp, lane, epoch * self.records)

    def pieces(self, xp: Any, lane: Any, epoch: Any, index: Any) -> tuple[Any, Any, Any]:
        """What a lane reads in an epoch, from its `index`-th record on: which shards, records to skip, records to take.

        All three are int64[2 * shards]: the shards' ring twice, since a range may pass its end. Most takes are 0.
        """
        this, following = epoch * self.records, (epoch + 1) * self.records
        start = key(self.seed, self.stream, _START, epoch) % self.records
        low = start + self._before(xp, lane, following) - self._before(xp, lane, this)
        high = start + self._before(xp, lane + 1, following) - self._before(xp, lane + 1, this)
        low = low + xp.maximum(index - self.read(xp, lane, epoch), 0)
        ring = xp.argsort(key(self.seed, self.stream, _SHARDS, epoch, xp.arange(len(self.counts), dtype=xp.int64)))
        ring = xp.concatenate([ring, ring], 0)
        sizes = xp.take(xp.array(self.counts, dtype=xp.int64), ring)
        ends = xp.cumsum(sizes)
        begins = ends - sizes
        skip = xp.maximum(low - begins, 0)
        return ring, skip, xp.maximum(xp.minimum(ends, high) - xp.maximum(begins, low), 0)

    def _before(self, xp: Any, lane: Any, position: Any) -> Any:
        """How many of the first `position` rows of the global order belong to lanes before this one."""
        turn = self.lanes * self.width
        return position // turn * (self.width * lane) + xp.minimum(position % turn, self.width * lane)


def shuffled(xp: Any, seed: int, lane: Any, index: Any, epoch: Any) -> Any:
    """The permutation of a window: int[..., size], from lanes, indices and epochs that broadcast to that shape.

    Records of an earlier epoch stay before those of a later one. `index` is a lane's endless count of rows.
    """
    drawn = key(seed, _ROWS, lane, index)
    return xp.argsort((epoch - epoch[..., :1]) * 2**44 + drawn // 2**19)

"""Add up what is counted of written shards, split by split."""

import collections
import dataclasses

from t5prep.dataset.manifest import Shard
from t5prep.prepare.record_counts import Counts
from t5prep.prepare.shard_writer import WrittenShard


@dataclasses.dataclass
class SplitTotals:
    """Hold the counts of a split's shards, and by their numbers the shards and their parts of the index.

    A block of the index has `every` records.
    """

    counts: Counts = dataclasses.field(default_factory=Counts)
    shards: dict[int, Shard] = dataclasses.field(default_factory=dict)
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    merged: int = 0
    blocks: dict[int, bytes] = dataclasses.field(default_factory=dict)
    every: int = 0

    def in_order(self) -> list[Shard]:
        """Return the shards in the order of their numbers."""
        return [self.shards[number] for number in sorted(self.shards)]


@dataclasses.dataclass
class ShardTotals:
    """Hold the counts of some shards: those of each split, and the duplicates of each source file."""

    splits: dict[str, SplitTotals] = dataclasses.field(default_factory=dict)
    duplicates: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, written: WrittenShard) -> "ShardTotals":
        """Count one more shard."""
        own = SplitTotals(
            written.counts,
            {written.spec.number: written.shard},
            collections.Counter(written.reasons),
            written.merged,
            {written.spec.number: written.blocks},
            written.spec.every,
        )
        return self.merge(ShardTotals({written.spec.split: own}, collections.Counter(written.duplicates)))

    def merge(self, other: "ShardTotals") -> "ShardTotals":
        """Count what others counted."""
        for split, theirs in other.splits.items():
            mine = self.splits.setdefault(split, SplitTotals())
            mine.counts += theirs.counts
            mine.shards.update(theirs.shards)
            mine.reasons.update(theirs.reasons)
            mine.merged += theirs.merged
            mine.blocks.update(theirs.blocks)
            mine.every = theirs.every
        self.duplicates.update(other.duplicates)
        return self

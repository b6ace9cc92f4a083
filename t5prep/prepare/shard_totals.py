"""Add up what is counted of written shards, split by split."""

import collections
import dataclasses
import struct
from collections.abc import Iterator

from t5prep.dataset import shard_names
from t5prep.dataset.manifest import Shard
from t5prep.prepare.record_counts import Counts
from t5prep.prepare.shard_writer import WrittenShard

# What is kept of each shard, because there may be 100,000: its records, bytes and SHA-256, and behind them its part of the
# index, which has as many bytes as the last number says, and the lengths of its records.
_PACKED = struct.Struct("<QQ32sI")


@dataclasses.dataclass
class SplitTotals:
    """Hold the counts of a split's shards, and by their numbers the shards, packed; in all there are `count`.

    A block of the index has `every` records.
    """

    split: str
    count: int
    every: int
    counts: Counts = dataclasses.field(default_factory=Counts)
    packed: dict[int, bytes] = dataclasses.field(default_factory=dict)
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    merged: int = 0

    def shards(self) -> Iterator[Shard]:
        """Yield the shards in the order of their numbers."""
        for number in sorted(self.packed):
            records, size, sha256, _ = _PACKED.unpack_from(self.packed[number])
            yield Shard(shard_names.name(self.split, number, self.count), records, size, sha256.hex())

    def blocks(self) -> Iterator[bytes]:
        """Yield the part of the index of each shard, in the order of their numbers."""
        for number in sorted(self.packed):
            yield self._behind(number)[0]

    def lengths(self) -> Iterator[bytes]:
        """Yield the compressed lengths of each shard's records, in the order of their numbers."""
        for number in sorted(self.packed):
            yield self._behind(number)[1]

    @property
    def measured(self) -> bool:
        """Check whether the lengths of all records were kept."""
        return all(
            self._behind(number)[1] or not _PACKED.unpack_from(packed)[0] for number, packed in self.packed.items()
        )

    def _behind(self, number: int) -> tuple[bytes, bytes]:
        """Return a shard's part of the index, and its lengths."""
        packed = self.packed[number]
        end = _PACKED.size + _PACKED.unpack_from(packed)[3]
        return packed[_PACKED.size : end], packed[end:]


@dataclasses.dataclass
class ShardTotals:
    """Hold the counts of some shards: those of each split, and the duplicates of each source file."""

    splits: dict[str, SplitTotals] = dataclasses.field(default_factory=dict)
    duplicates: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, written: WrittenShard) -> "ShardTotals":
        """Count one more shard."""
        spec, shard = written.spec, written.shard
        packed = _PACKED.pack(shard.records, shard.bytes, bytes.fromhex(shard.sha256), len(written.blocks))
        packed += written.blocks + written.lengths
        own = SplitTotals(
            spec.split,
            spec.shards,
            spec.every,
            written.counts,
            {spec.number: packed},
            collections.Counter(written.reasons),
            written.merged,
        )
        return self.merge(ShardTotals({spec.split: own}, collections.Counter(written.duplicates)))

    def merge(self, other: "ShardTotals") -> "ShardTotals":
        """Count what others counted."""
        for split, theirs in other.splits.items():
            mine = self.splits.setdefault(split, SplitTotals(split, theirs.count, theirs.every))
            mine.counts += theirs.counts
            mine.packed.update(theirs.packed)
            mine.reasons.update(theirs.reasons)
            mine.merged += theirs.merged
        self.duplicates.update(other.duplicates)
        return self

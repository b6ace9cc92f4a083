"""Add up what is counted of blocks: small however many there are, and the same in whatever order they come."""

import collections
import dataclasses

from t5prep.dataset import row_balance
from t5prep.prepare.block_sorter import SortedSpill


@dataclasses.dataclass
class BlockTotals:
    """Hold the counts of some blocks. `records` and `sizes` (bytes) are those of each split.

    `reasons` counts rejected rows and `reason_tokens` their tokens, `changed` the rows that each filter changed.
    """

    rows: row_balance.Total = dataclasses.field(default_factory=row_balance.Total)
    read: int = 0
    blank: int = 0
    records: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    sizes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    reason_tokens: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    changed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    references: bool = False

    def add(self, spill: SortedSpill) -> "BlockTotals":
        """Count one more block."""
        rejected = sum(spill.reasons.values())
        self.rows.add(spill.file, read=spill.rows, examples=spill.records, rejected=rejected, blank=spill.blank)
        self.read += spill.rows
        self.blank += spill.blank
        self.records.update({split: last - first for split, (first, last) in spill.splits.items()})
        for name in ("sizes", "reasons", "reason_tokens", "changed"):
            getattr(self, name).update(getattr(spill, name))
        self.references |= spill.references
        return self

    def merge(self, other: "BlockTotals") -> "BlockTotals":
        """Count what others counted."""
        self.rows.merge(other.rows)
        self.read += other.read
        self.blank += other.blank
        for name in ("records", "sizes", "reasons", "reason_tokens", "changed"):
            getattr(self, name).update(getattr(other, name))
        self.references |= other.references
        return self

"""Define a row of a source file: its record, or the reason why it has none."""

from collections.abc import Mapping
from typing import Any, NamedTuple

# One row as in its source: column name → value.
Record = Mapping[str, Any]


class Row(NamedTuple):
    """Hold one row: its number in its file (from 1, without the header), and its record or the reason why it has none.

    A blank row has neither a record nor a reason.
    """

    number: int
    record: Record | None
    reason: str = ""

    @property
    def blank(self) -> bool:
        """Check whether this row is blank."""
        return self.record is None and not self.reason

"""Make rows and spills that a test names."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t5prep.preparation import spills
from t5prep.preparation.spills import ENTRY, TOKENS, Columns, Rows, Spill
from t5prep.tokens import ragged
from t5prep.tokens.ragged import Names

# The files that rows of tests come from; an entry has the number of its file.
FILES = ("f", "large", "small")


class Row(NamedTuple):
    """A row: the high half of its position (the low half is 0), its id, and the token ids of both sides."""

    high: int
    id: str
    inputs: Sequence[int] = (5, 1)
    labels: Sequence[int] = (7, 1)


def columns_of(rows: Sequence[Row], *, references: Sequence[Sequence[bytes]] = (), width: int = 2) -> Columns:
    """Return the columns of rows."""
    lists = [row.inputs for row in rows], [row.labels for row in rows]
    sides = [ragged.of([np.array(side, np.int32) for side in column]) for column in lists]
    inputs, labels = (side._replace(ids=side.ids.astype(TOKENS[width])) for side in sides)
    answers = Names.joined([spills.references_of(texts) for texts in references or [[]] * len(rows)])
    return Columns(Names.of([row.id for row in rows]), inputs, labels, answers)


def rows_of(
    rows: Sequence[Row], *, file: str = "f", first_row: int = 1, references: Sequence[Sequence[bytes]] = ()
) -> Rows:
    """Return rows in the order that they have."""
    entries = np.zeros(len(rows), ENTRY)
    entries["high"] = np.array([row.high for row in rows], np.uint64)
    entries["file"] = FILES.index(file)
    entries["row"] = np.arange(len(rows)) + first_row
    entries["tokens"], entries["target_tokens"] = [len(r.inputs) for r in rows], [len(r.labels) for r in rows]
    return spills.join(columns_of(rows, references=references), entries, np.arange(len(rows)))


def spill_of(splits: Mapping[str, Sequence[Row]], *, file: str = "f", first_row: int = 1, path: str = "") -> Spill:
    """Return a spill with some rows in each split. With a path, its bytes are in that file."""
    parts = {split: rows_of(sorted(split_rows), file=file, first_row=first_row) for split, split_rows in splits.items()}
    bounds, sizes, entries, data = {}, {}, [], b""
    for split, rows in parts.items():
        begin = sum(map(len, entries))
        bounds[split], sizes[split] = (begin, begin + len(rows.entries)), len(rows.data)
        rows.entries["begin"] += np.uint64(len(data))
        entries.append(rows.entries)
        data += rows.data.tobytes()
    data = np.concatenate(entries).tobytes() + data
    spill = Spill(sum(map(len, entries)), bounds, sizes, data=data)
    return on_disk(spill, Path(path)) if path else spill


def on_disk(spill: Spill, path: Path) -> Spill:
    """Return the same spill in a file."""
    path.write_bytes(spill.data)
    return dataclasses.replace(spill, data=b"", path=str(path))

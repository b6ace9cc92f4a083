"""The whole search for near-duplicates in one process, as an engine would wire it."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from t5prep.preparation import placement
from t5prep.preparation.near_duplicates import clusters, sketches
from t5prep.preparation.near_duplicates.clusters import Repeats, Search
from t5prep.preparation.near_duplicates.sketches import ROWS, Sketch, shingles, sketch

BANDS = sketches.choose_bands(112, 0.8)


def rows_of(texts: Sequence[tuple[str, str]], *, first_row: int = 1, split: str = "train") -> pa.Table:
    """Return pairs of an id and a text as rows (ROWS)."""
    text_shingles = shingles([text for _, text in texts], words=5)
    positions = placement.positions(placement.digests([id for id, _ in texts], seed=0))
    columns = {
        "row": list(range(first_row, first_row + len(texts))),
        "id": [id for id, _ in texts],
        "split": [split] * len(texts),
        "high": positions["high"].astype("u8"),
        "low": positions["low"].astype("u8"),
        "shingles": pa.ListArray.from_arrays(
            pa.array(text_shingles.begins.astype(np.int32)), pa.array(text_shingles.hashes)
        ),
    }
    return pa.table([pa.array(column, ROWS.field(name).type) for name, column in columns.items()], schema=ROWS)


def sketches_of(
    texts: Sequence[tuple[str, str]],
    *,
    block: int,
    folder: Path | None = None,
    split: str = "train",
    file: str = "a.csv",
) -> list[Sketch]:
    """Return the sketches of texts, so many in a block; in files where a folder is given."""
    block_sketches = []
    for first in range(0, len(texts), block):
        rows = rows_of(texts[first : first + block], first_row=first + 1, split=split)
        block_sketch = sketch(rows, file=file, first_row=first + 1, bands=BANDS)
        block_sketches.append(block_sketch.spooled(folder / f"{file}-{first}") if folder else block_sketch)
    return block_sketches


def search(
    block_sketches: Sequence[Sketch],
    *,
    range_bytes: int = 1 << 24,
    group_bytes: int = 1 << 24,
    drawn_by_id: bool = True,
) -> Repeats:
    """Return all repeats, and their rows in one table."""
    settings = Search(BANDS, 0.8, drawn_by_id)
    plan = settings.plan(block_sketches, range_bytes=range_bytes, group_bytes=group_bytes)
    of = {plan.number(block_sketch): block_sketch for block_sketch in block_sketches}
    ranges: dict[int, list[np.ndarray]] = {}
    for block_sketch in block_sketches:
        for number, entries in plan.cut(block_sketch):
            ranges.setdefault(number, []).append(np.frombuffer(entries, clusters.ENTRY))
    links = [
        links
        for entries in ranges.values()
        for links in clusters.links(lambda range_entries=entries: range_entries, size=1)
    ]
    groups: dict[int, list[pa.Table]] = {}
    for number, placed in clusters.grouped(links, plan=plan, folder=""):
        for group in np.unique(placed["group"]).tolist():
            rows = of[number].rows_of(placed["place"][placed["group"] == group])
            groups.setdefault(group, []).extend(sketches.tables(rows))
    parts = [settings.find(pieces) for pieces in groups.values()]
    rows = pa.concat_tables([clusters.none().dropped, *(part.dropped for part in parts)])
    order = [(name, "ascending") for name in ("split", "high", "low", "file", "row")]
    return dataclasses.replace(functools.reduce(Repeats.merge, parts, clusters.none()), dropped=rows.sort_by(order))

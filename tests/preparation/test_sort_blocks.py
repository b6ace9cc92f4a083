"""A table of features becomes a spill: its order, its index, its splits and what it rejects."""

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from t5prep.dataset.settings import Settings
from t5prep.preparation import placement
from t5prep.preparation.block_tokenizer import SCHEMA
from t5prep.preparation.records import RecordFormat
from t5prep.preparation.sort_blocks import BlockSorter, SortedBlock
from t5prep.preparation.spills import END, Columns
from t5prep.reading.blocks import Block
from t5prep.reading.formats import Format
from t5prep.sources import RawFile
from t5prep.tasks import registry
from t5prep.tokens import loading, ragged
from t5prep.tokens.ragged import Names

UNKNOWN = 2
SETTINGS = Settings(task="text2text", options={}, input_length=8, target_length=4, splits={"train": 0.5, "test": 0.5})


def row(number: int, **changes: Any) -> dict[str, Any]:
    ids = [5 + number, UNKNOWN, 1]
    plain = dict.fromkeys(SCHEMA.names) | {"row": number, "inputs": ids, "labels": [9, 1], "references": []}
    return plain | {"part": 0, "tokens": 3, "target_tokens": 2, "markup": False, "changed": []} | changes


def sort(rows: list[dict[str, Any]], *, own_splits: dict[str, str] | None = None, **settings: Any) -> SortedBlock:
    file = RawFile("a.csv", "/a.csv", 100)
    block = Block(file, Format("csv"), (), first_row=100, rows=len(rows) + 1, begin=0, size=100)
    chosen = dataclasses.replace(SETTINGS, **settings)
    task = registry.get("text2text").task
    sorter = BlockSorter(chosen, task, loading.load("sample:"), files=["a.csv"], own_splits=own_splits or {})
    return sorter(pa.Table.from_pylist(rows, schema=SCHEMA), block)


def rows_of(block: SortedBlock) -> tuple[np.ndarray, Columns]:
    """Return all rows of a block in order: their entries and columns."""
    parts = [part for split in block.spill.splits if (part := block.spill.slice(split, 0, END))]
    ids, inputs, labels, references = zip(*(part.columns() for part in parts), strict=True)
    sides = [ragged.of([ids for part in side for ids in part.to_arrays()]) for side in (inputs, labels)]
    texts = [
        Names.joined([part.encoded(i) for part in column for i in range(len(part))]) for column in (ids, references)
    ]
    return np.concatenate([part.entries for part in parts]), Columns(texts[0], *sides, texts[1])


def test_rows_are_sorted_by_split_and_position() -> None:
    block = sort([row(number) for number in range(40)])
    entries, columns = rows_of(block)
    assert sorted(block.spill.splits) == ["test", "train"]
    assert sorted(entries["row"].tolist()) == list(range(100, 140))
    for split, (first, last) in block.spill.splits.items():
        split_entries = entries[first:last]
        positions = list(zip(split_entries["high"].tolist(), split_entries["low"].tolist(), strict=True))
        assert positions == sorted(positions)
        assert block.spill.sizes[split] == split_entries["size"].sum()
        digests = placement.digests(columns.ids[first:last], seed=0)
        assert positions == [tuple(map(int, position)) for position in placement.positions(digests).tolist()]
    assert (block.totals.read, block.spill.records, block.totals.blank) == (41, 40, 1)


def test_the_index_describes_its_row() -> None:
    entries, columns = rows_of(sort([row(0, inputs=[UNKNOWN, UNKNOWN, 7, 1], tokens=30, markup=True), row(1)]))
    for i, entry in enumerate(entries):
        first = entry["row"] == 100
        assert columns.ids[i] == f"a.csv:{entry['row']}"
        assert columns.inputs.to_arrays()[i].tolist() == ([2, 2, 7, 1] if first else [6, 2, 1])
        assert columns.labels.to_arrays()[i].tolist() == [9, 1]
        assert (entry["inputs"], entry["tokens"], entry["unknown"], entry["markup"]) == (
            (4, 30, 2, 1) if first else (3, 3, 1, 0)
        )
    assert entries["target"][0] == entries["target"][1]
    swapped_entries = rows_of(sort([row(0, labels=[1, 9])]))[0]
    assert swapped_entries["target"][0] != entries["target"][0], "the order of labels matters"


@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
def test_the_bytes_of_records_are_known_before_they_are_framed(layout: str) -> None:
    """The number of shards follows from them. Rows of packed records count without padding."""
    block = sort([row(number) for number in range(40)], layout=layout, splits=None)
    (part,) = (block.spill.slice("train", 0, END),)
    record_format = RecordFormat((8, 4), (0, -100)) if layout == "padded" else RecordFormat()
    assert part is not None
    assert block.totals.record_bytes == {"train": len(record_format(part.columns()).data)}


def test_rows_without_an_example_are_lines_of_json() -> None:
    bad = row(1, id="x", reason="too short: 1 word", inputs=None, labels=None, tokens=7)
    spill = sort([row(0), bad])
    assert (spill.spill.records, spill.totals.reasons, spill.totals.reason_tokens) == (
        1,
        {"too short": 1},
        {"too short": 7},
    )
    assert json.loads(spill.rejected) == {"file": "a.csv", "row": 101, "id": "x", "reason": "too short: 1 word"}


@pytest.mark.parametrize("dedup", ["none", "exact"])
def test_the_position_follows_from_the_id_or_the_text(dedup: str) -> None:
    entries, _ = rows_of(sort([row(0, id="a", same="text"), row(1, id="b", same="text")], dedup=dedup, splits=None))
    assert (entries["high"][0] == entries["high"][1]) == (dedup == "exact")


def test_a_task_says_the_split_before_the_file_and_the_file_before_the_draw() -> None:
    rows = [row(0, split="validation"), row(1)]
    assert {s: b - a for s, (a, b) in sort(rows, own_splits={"a.csv": "test"}).spill.splits.items()} == {
        "test": 1,
        "validation": 1,
    }
    assert sort([row(1)], splits=None).spill.splits == {"train": (0, 1)}

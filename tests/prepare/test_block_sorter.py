"""A table of features becomes a sorted spill: its order, its index, its splits and what it rejects."""

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from t5prep.dataset import tfrecord
from t5prep.dataset.settings import Settings
from t5prep.prepare import placement
from t5prep.prepare.block_sorter import BlockSorter, SortedSpill
from t5prep.prepare.feature_table import SCHEMA
from t5prep.prepare.sorted_runs import INDEX_ENTRY
from t5prep.reading.blocks import Block
from t5prep.reading.formats import Format
from t5prep.sources import RawFile
from t5prep.tasks import registry

UNKNOWN = 2
SETTINGS = Settings(task="text2text", options={}, input_length=8, target_length=4, splits={"train": 0.5, "test": 0.5})


def row(number: int, **changes: Any) -> dict[str, Any]:
    ids = [5 + number, UNKNOWN, 1]
    plain = dict.fromkeys(SCHEMA.names) | {"row": number, "inputs": ids, "labels": [9, 1], "references": []}
    return plain | {"tokens": 3, "target_tokens": 2, "markup": False, "changed": []} | changes


def sort(rows: list[dict[str, Any]], *, own_splits: dict[str, str] | None = None, **settings: Any) -> SortedSpill:
    file = RawFile("a.csv", "/a.csv", 100)
    block = Block(file, Format("csv"), (), first_row=100, rows=len(rows) + 1, begin=0, size=100)
    chosen = dataclasses.replace(SETTINGS, **settings)
    task = registry.get("text2text").task
    sorter = BlockSorter(chosen, task, files=["a.csv"], own_splits=own_splits or {}, pad_id=0, unk_id=UNKNOWN)
    return sorter(pa.Table.from_pylist(rows, schema=SCHEMA), block)


def records(spill: SortedSpill) -> tuple[np.ndarray, list[dict]]:
    entries = np.frombuffer(spill.data, INDEX_ENTRY, spill.records)
    data = spill.data[spill.records * INDEX_ENTRY.itemsize :]
    framed = [data[int(entry["begin"]) : int(entry["begin"]) + int(entry["size"])] for entry in entries]
    assert b"".join(framed) == data, "records stand one after the other"
    return entries, [tfrecord.parse(tfrecord.payload(record)) for record in framed]


def test_records_are_sorted_by_split_and_position() -> None:
    spill = sort([row(number) for number in range(40)])
    entries, parsed = records(spill)
    assert sorted(spill.splits) == ["test", "train"]
    assert sorted(entries["row"].tolist()) == list(range(100, 140))
    for split, (first, last) in spill.splits.items():
        own = entries[first:last]
        positions = list(zip(own["high"].tolist(), own["low"].tolist(), strict=True))
        assert positions == sorted(positions)
        assert spill.sizes[split] == own["size"].sum()
        digests = placement.digests([record["id"][0].decode() for record in parsed[first:last]], seed=0)
        assert positions == [tuple(map(int, position)) for position in placement.positions(digests).tolist()]
    assert (spill.rows, spill.records, spill.blank) == (41, 40, 1)


def test_the_index_describes_its_record() -> None:
    spill = sort([row(0, inputs=[UNKNOWN, UNKNOWN, 7, 1], tokens=30, markup=True), row(1)])
    entries, parsed = records(spill)
    for entry, record in zip(entries, parsed, strict=True):
        first = entry["row"] == 100
        assert record["id"] == [f"a.csv:{entry['row']}".encode()]
        assert record["input_ids"] == ([2, 2, 7, 1, 0, 0, 0, 0] if first else [6, 2, 1, 0, 0, 0, 0, 0])
        assert record["labels"] == [9, 1, -100, -100]
        assert (entry["inputs"], entry["tokens"], entry["unknown"], entry["markup"]) == (
            (4, 30, 2, 1) if first else (3, 3, 1, 0)
        )
    assert entries["target"][0] == entries["target"][1]
    other = records(sort([row(0, labels=[1, 9])]))[0]
    assert other["target"][0] != entries["target"][0], "the order of labels matters"


def test_rows_without_an_example_are_lines_of_json() -> None:
    bad = row(1, id="x", reason="too short: 1 word", inputs=None, labels=None, tokens=7)
    spill = sort([row(0), bad])
    assert (spill.records, spill.reasons, spill.reason_tokens) == (1, {"too short": 1}, {"too short": 7})
    assert json.loads(spill.rejected) == {"file": "a.csv", "row": 101, "id": "x", "reason": "too short: 1 word"}


@pytest.mark.parametrize("dedup", ["none", "exact"])
def test_the_position_follows_from_the_id_or_the_text(dedup: str) -> None:
    entries, _ = records(sort([row(0, id="a", same="text"), row(1, id="b", same="text")], dedup=dedup, splits=None))
    assert (entries["high"][0] == entries["high"][1]) == (dedup == "exact")


def test_a_task_says_the_split_before_the_file_and_the_file_before_the_draw() -> None:
    rows = [row(0, split="validation"), row(1)]
    assert {s: b - a for s, (a, b) in sort(rows, own_splits={"a.csv": "test"}).splits.items()} == {
        "test": 1,
        "validation": 1,
    }
    assert sort([row(1)], splits=None).splits == {"train": (0, 1)}

"""Spills: any range of them is read, and several are merged into one."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raised import raises
from spills import Row, columns_of, on_disk, spill_of

from t5prep.errors import OutputError
from t5prep.preparation import spills
from t5prep.preparation.spills import END, ENTRY, Spill

STEP = 1 << 50


def spilled(*numbers: int, split: str = "train") -> Spill:
    return spill_of({split: [Row(n * STEP, f"record{n}") for n in numbers], "z": [Row(7, "other")]})


def texts(spill: Spill, split: str, start: int = 0, stop: int = END) -> list[str]:
    """The ids of the rows of a range, in order."""
    part = spill.slice(split, start, stop)
    return [] if part is None else list(part.columns().ids)


@pytest.mark.parametrize("records", [5, 4 * spills._READ_ENTRIES])
@pytest.mark.parametrize("disk", [False, True])
def test_any_range_of_a_spill_is_read(records: int, disk: bool, tmp_path: Path) -> None:
    """Also of one whose index is too large to be read at once."""
    run = spilled(*range(records))
    if disk:
        run = on_disk(run, tmp_path / "run")
    for first, last in ((0, records), (0, 1), (2, 4), (records - 1, records), (3, 3)):
        expected = [f"record{n}" for n in range(first, last)]
        assert texts(run, "train", first * STEP, last * STEP) == expected
        assert texts(run, "train", first * STEP, (last - 1) * STEP + 1 if last > first else first * STEP) == expected
    assert texts(run, "train", records * STEP) == []
    assert texts(run, "unknown") == []
    assert texts(run, "z") == ["other"]


@pytest.mark.parametrize("range_bytes", [1, 20, 1 << 20])
def test_merged_spills_are_one(range_bytes: int, tmp_path: Path) -> None:
    parts = [spilled(*range(number, 60, 3), split="b" if number else "a") for number in range(3)]
    runs = [on_disk(part, tmp_path / str(number)) for number, part in enumerate(parts)]
    merged = spills.merge(runs, str(tmp_path / "merged"), range_bytes=range_bytes)
    assert texts(merged, "a") == [f"record{n}" for n in range(0, 60, 3)]
    assert texts(merged, "b") == [f"record{n}" for n in range(60) if n % 3]
    assert texts(merged, "z") == ["other"] * 3
    assert merged.bytes == sum(part.bytes for part in parts)
    in_memory = spills.merged_in_memory(parts)
    assert (tmp_path / "merged").read_bytes() == in_memory.data
    assert dataclasses.replace(merged, path="") == dataclasses.replace(in_memory, data=b"")


def test_an_entry_has_the_file_and_row_that_its_row_came_from() -> None:
    parts = [spill_of({"train": [Row(n, f"r{n}")]}, file=file, first_row=n) for n, file in ((9, "f"), (4, "small"))]
    merged = spills.merged_in_memory(parts)
    entries = np.frombuffer(merged.data, ENTRY, merged.records)
    assert entries[["file", "row"]].tolist() == [(2, 4), (0, 9)]


def test_a_spill_is_read_in_as_many_calls_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux reads 2 GiB at a time, and records with one id lie together, however many they are."""
    run, pread = on_disk(spilled(*range(9)), tmp_path / "run"), os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, offset: pread(file, min(size, 100), offset))
    assert texts(run, "train") == [f"record{n}" for n in range(9)]


def test_a_spill_that_has_become_shorter_is_a_sentence(tmp_path: Path) -> None:
    run = on_disk(spilled(1, 2), tmp_path / "run")
    with open(run.path, "r+b") as file:
        file.truncate((tmp_path / "run").stat().st_size - len(run.slice("z", 0, END).data) - 1)
    with raises(OutputError, "output.scratch-altered"):
        run.slice("train", 0, END)


ids = st.integers(0, 40_000)


@given(
    st.lists(
        st.tuples(
            st.text(max_size=9),
            st.lists(ids, max_size=5),
            st.lists(ids, max_size=3),
            st.lists(st.binary(max_size=4), max_size=3),
        )
    ),
    st.sampled_from([2, 4]),
    st.data(),
)
def test_columns_come_back_in_any_order(rows: list, width: int, data: st.DataObject) -> None:
    given_rows = [Row(0, id, inputs, labels) for id, inputs, labels, _ in rows]
    columns = columns_of(given_rows, references=[answers for *_, answers in rows], width=width)
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    packed = spills.join(columns, np.zeros(len(rows), ENTRY), order)
    restored_columns = packed.take(np.argsort(order)).columns()
    assert list(restored_columns.ids) == [row.id for row in given_rows]
    assert [side.tolist() for side in restored_columns.inputs.to_arrays()] == [list(row.inputs) for row in given_rows]
    assert [side.tolist() for side in restored_columns.labels.to_arrays()] == [list(row.labels) for row in given_rows]
    references = [spills.split_references(restored_columns.references.encoded(i)) for i in range(len(rows))]
    assert references == [answers for *_, answers in rows]

"""Sorted runs: any range of them is read, and several are merged into one."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from spills import framed, spill_of

from t5prep.errors import OutputError
from t5prep.prepare import sorted_runs
from t5prep.prepare.sorted_runs import END, INDEX_ENTRY, Run

STEP = 1 << 50


def run_of(*numbers: int, split: str = "train") -> Run:
    return spill_of({split: [(n * STEP, f"record{n}".encode()) for n in numbers], "z": [(7, b"other")]}).run()


def on_disk(run: Run, path: Path) -> Run:
    path.write_bytes(run.data)
    return dataclasses.replace(run, data=b"", path=str(path))


def texts(run: Run, split: str, start: int = 0, stop: int = END) -> list[str]:
    """The records of a range, in order."""
    part = run.slice(split, start, stop)
    if part is None:
        return []
    places = zip(part.entries["begin"].tolist(), part.entries["size"].tolist(), strict=True)
    return [bytes(part.data[begin : begin + size]).decode() for begin, size in places]


@pytest.mark.parametrize("records", [5, 4 * sorted_runs._READ_ENTRIES])
@pytest.mark.parametrize("disk", [False, True])
def test_any_range_of_a_run_is_read(records: int, disk: bool, tmp_path: Path) -> None:
    """Also of one whose index is too large to be read at once."""
    run = run_of(*range(records))
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
def test_merged_runs_are_one_sorted_run(range_bytes: int, tmp_path: Path) -> None:
    parts = [run_of(*range(number, 60, 3), split="b" if number else "a") for number in range(3)]
    runs = [on_disk(part, tmp_path / str(number)) for number, part in enumerate(parts)]
    merged = sorted_runs.merge(runs, str(tmp_path / "merged"), range_bytes=range_bytes)
    assert texts(merged, "a") == [f"record{n}" for n in range(0, 60, 3)]
    assert texts(merged, "b") == [f"record{n}" for n in range(60) if n % 3]
    assert texts(merged, "z") == ["other"] * 3
    assert merged.bytes == sum(part.bytes for part in parts)
    in_memory = sorted_runs.merged_in_memory(parts)
    assert (tmp_path / "merged").read_bytes() == in_memory.data
    assert dataclasses.replace(merged, path="") == dataclasses.replace(in_memory, data=b"")


def test_runs_are_found_again_where_they_were_saved(tmp_path: Path) -> None:
    runs = [on_disk(run_of(1, 2), tmp_path / "a"), on_disk(run_of(3), tmp_path / "b")]
    sorted_runs.save(tmp_path / "runs", runs)
    assert [texts(run, "train") for run in sorted_runs.load(tmp_path / "runs")] == [["record1", "record2"], ["record3"]]
    with pytest.raises(OutputError, match="is gone"):
        sorted_runs.load(tmp_path / "nowhere")


def test_an_entry_has_the_file_and_row_that_its_record_came_from() -> None:
    files = [
        spill_of({"train": [(n, framed(f"r{n}", labels=[1]))]}, file=file, first_row=n)
        for n, file in ((9, "f"), (4, "small"))
    ]
    merged = sorted_runs.merged_in_memory([spill.run() for spill in files])
    entries = np.frombuffer(merged.data, INDEX_ENTRY, merged.records)
    assert entries[["file", "row"]].tolist() == [(2, 4), (0, 9)]


def test_a_run_is_read_in_as_many_calls_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux reads 2 GiB at a time, and records with one id lie together, however many they are."""
    run, pread = on_disk(run_of(*range(9)), tmp_path / "run"), os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: pread(file, min(size, 100), at))
    assert texts(run, "train") == [f"record{n}" for n in range(9)]


def test_a_run_that_has_become_shorter_is_a_sentence(tmp_path: Path) -> None:
    run = on_disk(run_of(1, 2), tmp_path / "run")
    with open(run.path, "r+b") as file:
        file.truncate((tmp_path / "run").stat().st_size - 6)  # the record of the split z has five bytes
    with pytest.raises(OutputError, match="shorter than it was written"):
        run.slice("train", 0, END)

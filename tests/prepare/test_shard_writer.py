"""Spills become a shard: merged in order, without duplicates, in ranges of any size."""

import json
from pathlib import Path

import pytest
from spills import FILES, framed, spill_of

from t5prep.dataset import tfrecord
from t5prep.prepare import shard_writer
from t5prep.prepare.record_layouts import AsSpilled
from t5prep.prepare.shard_writer import ShardSpec, WrittenShard

HALF = 1 << 63
LABELS = {"input_ids": [5, 1], "labels": [7, 1]}


def write(out: Path, spills: list, *, number: int = 0, shards: int = 1, **options) -> tuple[list[str], WrittenShard]:
    """Write one shard of the split train; return the ids in it, and what was written."""
    out.mkdir(exist_ok=True)
    size = sum(spill.sizes.get("train", 0) for spill in spills)
    before = options.pop("before", ())
    spec = ShardSpec("train", number, shards, size, before)
    runs = [spill.run() for spill in spills]
    written = shard_writer.write(spec, runs, files=FILES, out=str(out), arrange=AsSpilled(marked=False), **options)
    with open(out / spec.name, "rb") as file:
        return [tfrecord.parse(record)["id"][0].decode() for record in tfrecord.read(file)], written


def some(*numbers: int, step: int = 1 << 55) -> list[tuple[int, bytes]]:
    return [(number * step, framed(f"r{number}", **LABELS)) for number in numbers]


def test_records_of_all_spills_are_merged_by_position(tmp_path: Path) -> None:
    spills = [spill_of({"train": some(9, 1, 4)}), spill_of({"train": some(2, 8)}), spill_of({"test": some(3)})]
    ids, written = write(tmp_path, spills)
    assert ids == ["r1", "r2", "r4", "r8", "r9"]
    assert (written.shard.records, written.counts.records) == (5, 5)
    assert written.shard.bytes == (tmp_path / written.shard.name).stat().st_size


@pytest.mark.parametrize("range_bytes", [1, 150, 1 << 20])
@pytest.mark.parametrize("on_disk", [False, True])
def test_ranges_and_files_give_the_same_bytes(range_bytes: int, on_disk: bool, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) if on_disk else "" for name in ("a", "b")]
    spills = [
        spill_of({"train": own}, path=path)
        for own, path in zip((some(*range(0, 40, 2)), some(1, 5, 33)), paths, strict=True)
    ]
    ids, written = write(tmp_path / "out", spills, range_bytes=range_bytes)
    whole, expected = write(tmp_path / "whole", spills)
    assert ids == whole == [f"r{n}" for n in sorted([*range(0, 40, 2), 1, 5, 33])]
    assert written.shard.sha256 == expected.shard.sha256


def test_each_shard_has_the_records_of_its_own_range(tmp_path: Path) -> None:
    highs = {"a": 0, "b": HALF - 1, "c": HALF, "d": 2 * HALF - 1}
    spills = [spill_of({"train": [(high, framed(id, **LABELS)) for id, high in highs.items()]})]
    assert [write(tmp_path, spills, number=number, shards=2)[0] for number in (0, 1)] == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("backwards", [False, True])
def test_of_equal_positions_the_smallest_record_stays_whoever_came_first(backwards: bool, tmp_path: Path) -> None:
    small, large = framed("same", labels=[1], input_ids=[1]), framed("same", labels=[1], input_ids=[2])
    spills = [
        spill_of({"train": [(6, large)]}, file="large", first_row=10),
        spill_of({"train": [(6, small)]}, file="small"),
    ]
    ids, written = write(tmp_path, spills[::-1] if backwards else spills)
    assert ids == ["same"]
    assert (written.duplicates, written.reasons) == ({"large": 1}, {"duplicate id": 1})
    assert json.loads(written.rejected) == {
        "file": "large", "row": 10, "id": "same", "reason": "duplicate id: kept is small:1",
    }  # fmt: skip
    assert (tmp_path / written.shard.name).read_bytes() == small


def test_a_split_gives_up_ids_that_an_earlier_split_has(tmp_path: Path) -> None:
    spills = [spill_of({"train": some(1, 2), "test": some(2)})]
    ids, written = write(tmp_path, spills, before=("test",))
    assert ids == ["r1"]
    assert json.loads(written.rejected)["reason"] == "duplicate id: the split test has it"

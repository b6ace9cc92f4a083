"""Shards are planned, and spills become one: merged in order, without duplicates, in ranges of any size."""

import json
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from raised import raises
from spills import FILES, Row, spill_of

from t5prep.dataset import tfrecord
from t5prep.errors import UsageError
from t5prep.preparation import shards
from t5prep.preparation.record_counts import Counts
from t5prep.preparation.records import PlainRows, RecordFormat
from t5prep.preparation.shards import ShardSpec, ShardSummary, ShardTotals, SplitTotals, WrittenShard
from t5prep.preparation.spills import Spill

HALF = 1 << 63


def counts(splits: dict[str, tuple[int, int]], *, number: int | None = None) -> dict[str, int]:
    """Return the number of shards of each split, given so many records and so many bytes of each."""
    specs = plan(splits, number=number, drawn_by_id=True)
    assert [(spec.split, spec.number) for spec in specs] == sorted((spec.split, spec.number) for spec in specs)
    return {spec.split: spec.shards for spec in specs}


def plan(splits: dict[str, tuple[int, int]], *, number: int | None, drawn_by_id: bool) -> list[ShardSpec]:
    records, sizes = ({split: both[i] for split, both in splits.items()} for i in (0, 1))
    return shards.plan_shards(records, sizes, shards=number, drawn_by_id=drawn_by_id)


def test_the_largest_split_gets_what_was_asked_and_others_their_share() -> None:
    splits = {"train": (800, 8000), "test": (40, 400), "validation": (200, 2000)}
    assert counts(splits, number=8) == {"train": 8, "validation": 2, "test": 1}


@pytest.mark.parametrize(
    ("records", "size", "number"),
    [
        (10, 1000, 1),
        (shards.RECORDS_A_SHARD * 3, 1000, 4),
        (shards.RECORDS_A_SHARD * 100, 1000, shards.FEWEST_SHARDS),
        (10, 9 * shards.SHARD_BYTES, 16),
    ],
)
def test_chosen_numbers_are_powers_of_two(records: int, size: int, number: int) -> None:
    assert counts({"train": (records, size)}) == {"train": number}


def test_more_shards_than_examples_are_refused() -> None:
    with raises(UsageError, "option.out-of-range", "7"):
        plan({"train": (7, 70)}, number=8, drawn_by_id=True)


def test_no_example_makes_no_shard() -> None:
    assert plan({}, number=None, drawn_by_id=True) == []


def test_evaluation_keeps_an_id_that_the_source_has_in_two_splits() -> None:
    splits = dict.fromkeys(("train", "validation", "test", "dev2"), (9, 90))
    earlier_splits = {spec.split: set(spec.preceding_splits) for spec in plan(splits, number=1, drawn_by_id=False)}
    assert earlier_splits == {
        "test": set(),
        "validation": {"test"},
        "dev2": {"test", "validation"},
        "train": {"test", "validation", "dev2"},
    }
    assert not any(spec.preceding_splits for spec in plan(splits, number=1, drawn_by_id=True))


def write(
    out: Path,
    spills: Sequence[Spill],
    *,
    number: int = 0,
    count: int = 1,
    earlier_splits: tuple[str, ...] = (),
    **options: Any,
) -> tuple[list[str], WrittenShard]:
    """Write one shard of the split train; return the ids in it, and what was written."""
    out.mkdir(exist_ok=True)
    size = sum(spill.sizes.get("train", 0) for spill in spills)
    spec, record_format = ShardSpec("train", number, count, size, earlier_splits), RecordFormat()
    layout = PlainRows(record_format, marked=False)
    written = shards.write(
        spec, spills, files=FILES, out=str(out), layout=layout, record_format=record_format, **options
    )
    with open(out / spec.name, "rb") as file:
        return [tfrecord.parse(record)["id"][0].decode() for record in tfrecord.read(file)], written


def make_rows(*numbers: int, step: int = 1 << 55) -> list[Row]:
    return [Row(number * step, f"r{number}") for number in numbers]


def test_records_of_all_spills_are_merged_by_position(tmp_path: Path) -> None:
    spills = [
        spill_of({"train": make_rows(9, 1, 4)}),
        spill_of({"train": make_rows(2, 8)}),
        spill_of({"test": make_rows(3)}),
    ]
    ids, written = write(tmp_path, spills)
    assert ids == ["r1", "r2", "r4", "r8", "r9"]
    assert (written.shard.records, written.totals.splits["train"].counts.records) == (5, 5)
    assert written.shard.bytes == (tmp_path / written.shard.name).stat().st_size


@pytest.mark.parametrize("range_bytes", [1, 150, 1 << 20])
@pytest.mark.parametrize("on_disk", [False, True])
def test_ranges_and_files_give_the_same_bytes(range_bytes: int, on_disk: bool, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) if on_disk else "" for name in ("a", "b")]
    spills = [
        spill_of({"train": rows}, path=path)
        for rows, path in zip((make_rows(*range(0, 40, 2)), make_rows(1, 5, 33)), paths, strict=True)
    ]
    ids, written = write(tmp_path / "out", spills, range_bytes=range_bytes)
    expected_ids, expected = write(tmp_path / "whole", spills)
    assert ids == expected_ids == [f"r{n}" for n in sorted([*range(0, 40, 2), 1, 5, 33])]
    assert written.shard.sha256 == expected.shard.sha256


def test_each_shard_has_the_records_of_its_own_range(tmp_path: Path) -> None:
    highs = {"a": 0, "b": HALF - 1, "c": HALF, "d": 2 * HALF - 1}
    spills = [spill_of({"train": [Row(high, id) for id, high in highs.items()]})]
    assert [write(tmp_path, spills, number=number, count=2)[0] for number in (0, 1)] == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("backwards", [False, True])
def test_of_equal_positions_the_smallest_record_stays_whoever_came_first(backwards: bool, tmp_path: Path) -> None:
    small, large = Row(6, "same", [1], [1]), Row(6, "same", [2], [1])
    spills = [
        spill_of({"train": [large]}, file="large", first_row=10),
        spill_of({"train": [small]}, file="small"),
    ]
    ids, written = write(tmp_path, spills[::-1] if backwards else spills)
    assert ids == ["same"]
    assert written.totals.duplicates == {"large": 1}
    assert written.totals.splits["train"].reasons == {"duplicate id": 1}
    assert json.loads(b"".join(written.rejected)) == {
        "file": "large", "row": 10, "id": "same", "reason": "duplicate id: kept is small:1",
    }  # fmt: skip
    with open(tmp_path / written.shard.name, "rb") as file:
        assert [tfrecord.parse(record)["input_ids"] for record in tfrecord.read(file)] == [[1]]


def test_which_of_two_rows_stays_is_decided_by_the_records_they_would_make(tmp_path: Path) -> None:
    """A shorter row makes a longer record where the padding of its labels takes ten bytes each."""
    short, long = Row(6, "same", [5, 1], [9, 1]), Row(6, "same", [5, 6, 1], [9, 9, 9, 1])
    spills = [spill_of({"train": [short]}, file="small"), spill_of({"train": [long]}, file="large")]
    duplicates = {}
    for name, record_format in (("bare", RecordFormat()), ("padded", RecordFormat((4, 4)))):
        (tmp_path / name).mkdir()
        spec = ShardSpec("train", 0, 1, 100)
        layout = PlainRows(record_format, marked=False)
        written = shards.write(
            spec, spills, files=FILES, out=str(tmp_path / name), layout=layout, record_format=record_format
        )
        duplicates[name] = dict(written.totals.duplicates)
    assert duplicates == {"bare": {"large": 1}, "padded": {"small": 1}}


def test_a_split_gives_up_ids_that_an_earlier_split_has(tmp_path: Path) -> None:
    spills = [spill_of({"train": make_rows(1, 2), "test": make_rows(2)})]
    ids, written = write(tmp_path, spills, earlier_splits=("test",))
    assert ids == ["r1"]
    assert json.loads(b"".join(written.rejected))["reason"] == "duplicate id: the split test has it"


def one_written(number: int, *, split: str = "train", shards: int = 3) -> ShardTotals:
    """Return what is counted of one shard, as it comes from a worker, with a part of the index of its own."""
    summaries = {number: ShardSummary(number, 100 + number, bytes([number % 256] * 32), bytes([number % 256] * 4), b"")}
    split_totals = SplitTotals(split, shards, 64, Counts(records=number), summaries, Counter(["duplicate id"]), 1)
    return ShardTotals({split: split_totals}, Counter(["a.csv"]))


def test_shards_come_out_in_order_whoever_counted_them() -> None:
    parts = [one_written(number) for number in (2, 0, 1)]
    parts[1].merge(one_written(0, split="test", shards=1))
    total = ShardTotals().merge(parts[0]).merge(parts[1]).merge(parts[2])
    train = total.splits["train"]
    names = [f"train.tfrecord-{number:05d}-of-00003" for number in range(3)]
    assert [(shard.name, shard.records, shard.sha256[:2]) for shard in train.shards()] == [
        (name, number, f"{number:02x}") for number, name in enumerate(names)
    ]
    assert [summary.pages for summary in train.in_order()] == [bytes([number] * 4) for number in range(3)]
    assert [shard.name for shard in total.splits["test"].shards()] == ["test.tfrecord-00000-of-00001"]
    assert (train.counts.records, train.merged, train.reasons["duplicate id"]) == (3, 3, 3)
    assert (train.every, total.duplicates["a.csv"]) == (64, 4)


def test_a_shard_needs_few_bytes_of_the_totals() -> None:
    total = ShardTotals()
    tracemalloc.start()
    try:
        for number in range(2000):
            total.merge(one_written(number, shards=2000))
        assert tracemalloc.get_traced_memory()[0] < 500 * 2000  # 50 MB of 100,000 shards
    finally:
        tracemalloc.stop()

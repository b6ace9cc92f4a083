"""The lengths of records beside the index: those of the records, the same by any way of preparing, checked when read."""

from pathlib import Path

import numpy as np
import pytest
from preparing import prepared, questions, records, write_csv

from t5prep.dataset import manifest, record_lengths
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError
from t5prep.io import paths
from t5prep.prepare import memory_budget
from t5prep.prepare.memory_budget import Budget

SPLITS = {"train": 0.8, "validation": 0.2}


def prepare(folder: Path, **choices: object) -> manifest.Manifest:
    if not (folder.parent / "rows.csv").exists():
        write_csv(folder.parent / "rows.csv", questions(60) + questions(70, words=3)[60:])
    choices = {"tokenizer": "sample:", "shards": 2, "splits": SPLITS, **choices}
    return prepared(folder.parent / "rows.csv", folder, **choices)


def read(data: Path, split: str) -> np.ndarray:
    made = manifest.load(data)
    assert made.lengths
    counts = [shard.records for shard in made.splits[split].shards]
    return record_lengths.read(data, made.lengths, split=split, counts=counts)


@pytest.mark.parametrize(("layout", "length"), [("padded", 200), ("ragged", 512)])
def test_they_are_the_tokens_of_each_record(tmp_path: Path, layout: str, length: int) -> None:
    made = prepare(tmp_path / "out", layout=layout, input_length=length)
    assert made.lengths
    assert made.lengths.bytes == 70 * 2 * (1 if length < 256 else 2)
    for split, own in records(tmp_path / "out").items():
        kept = [
            [sum(token != 0 for token in one["input_ids"]), sum(token != IGNORED_LABEL for token in one["labels"])]
            for one in own
        ]
        assert read(tmp_path / "out", split).tolist() == kept
        assert len({tokens for tokens, _ in kept}) > 1, split


def test_packed_rows_have_none(tmp_path: Path) -> None:
    made = prepare(tmp_path / "out", layout="packed", input_length=256)
    assert made.lengths is None
    assert not (tmp_path / "out" / record_lengths.NAME).exists()


def test_splits_with_very_many_records_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_lengths, "MOST_RECORDS", 30)
    made = prepare(tmp_path / "out")
    assert made.lengths
    assert set(made.lengths.records) == {"validation"}
    assert len(read(tmp_path / "out", "validation")) == made.splits["validation"].records <= 30
    verify(tmp_path / "out")


def test_a_shard_in_ranges_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path / "whole")
    monkeypatch.setattr(memory_budget, "share", lambda memory, workers: Budget(workers, 2 << 20, 2 << 10))
    prepare(tmp_path / "ranges")
    names = (record_lengths.NAME, manifest.NAME)
    whole, ranges = ([(tmp_path / folder / name).read_bytes() for name in names] for folder in ("whole", "ranges"))
    assert whole == ranges


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "shards.lengths cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "shards.lengths has SHA-256"),
    ],
)
def test_what_was_altered_is_found(tmp_path: Path, spoil, message: str) -> None:
    prepare(tmp_path / "out")
    verify(tmp_path / "out")
    spoil(tmp_path / "out" / record_lengths.NAME)
    with pytest.raises(DatasetError, match=message):
        verify(tmp_path / "out")


def test_lengths_of_other_shards_are_refused(tmp_path: Path) -> None:
    written = record_lengths.write(str(tmp_path), {"a": [record_lengths.compressed(np.ones((3, 2)))]}, longest=9)
    assert record_lengths.read(tmp_path, written, split="a", counts=[1, 2]).tolist() == [[1, 1]] * 3
    with pytest.raises(DatasetError, match="does not have the lengths of the split a"):
        record_lengths.read(tmp_path, written, split="a", counts=[1, 1])


def test_a_shard_without_records_has_none(tmp_path: Path) -> None:
    made = prepare(tmp_path / "out", shards=30)
    assert 0 in [shard.records for shard in made.splits["train"].shards]
    verify(tmp_path / "out")
    assert len(read(tmp_path / "out", "train")) == made.splits["train"].records


def test_verifying_reads_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(prepare(tmp_path / "out").splits) == 2
    read: list[str] = []
    monkeypatch.setattr(paths, "read", lambda path: read.append(Path(path).name) or Path(path).read_bytes())
    verify(tmp_path / "out")
    assert read.count(record_lengths.NAME) == 1


def test_lengths_of_another_split_are_found_when_all_are_checked(tmp_path: Path) -> None:
    shards = {name: [record_lengths.compressed(np.ones((3, 2)))] for name in ("a", "b")}
    written = record_lengths.write(str(tmp_path), shards, longest=9)
    record_lengths.check(tmp_path, written, records={"a": 3, "b": 3, "packed": 1})
    with pytest.raises(DatasetError, match="does not have the lengths of the split b"):
        record_lengths.check(tmp_path, written, records={"a": 3, "b": 2})


@pytest.mark.parametrize("longest", [255, 256, 1 << 16])
def test_any_length_is_kept(tmp_path: Path, longest: int) -> None:
    lengths = {name: np.array([[longest, number], [0, 1]]) for number, name in enumerate("ba")}
    shards = {
        name: [record_lengths.compressed(rows[:1]), record_lengths.compressed(rows[1:])]
        for name, rows in lengths.items()
    }
    written = record_lengths.write(str(tmp_path), shards, longest=longest)
    for name, rows in lengths.items():
        assert record_lengths.read(tmp_path, written, split=name, counts=[1, 1]).tolist() == rows.tolist()

"""The index of a dataset's shards: made with them, the same by any way of preparing, checked where it is read."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import records_in_python
from raised import raises
from small_corpora import prepared, questions, records, write_csv

from t5prep.dataset import manifest, shard_files, tfrecord
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError
from t5prep.io import paths
from t5prep.preparation import memory_budget
from t5prep.preparation.memory_budget import Budget

SPLITS = {"train": 0.8, "validation": 0.2}


def indexed(data: Path) -> dict[str, list[np.ndarray]]:
    dataset_manifest = manifest.load(data)
    assert dataset_manifest.index
    return shard_files.read_index(
        data, dataset_manifest.index, {name: split.shards for name, split in dataset_manifest.splits.items()}
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    write_csv(folder / "rows.csv", questions(60))
    prepared(folder / "rows.csv", folder / "out", tokenizer="sample:", shards=2, splits=SPLITS)
    return folder / "out"


@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
def test_each_page_begins_where_the_index_says(tmp_path: Path, layout: str) -> None:
    write_csv(tmp_path / "rows.csv", questions(70))
    dataset_manifest = prepared(
        tmp_path / "rows.csv", tmp_path / "out", tokenizer="sample:", shards=3, layout=layout, splits=SPLITS
    )
    pages = indexed(tmp_path / "out")
    assert dataset_manifest.index
    for name, split in dataset_manifest.splits.items():
        for shard, sizes in zip(split.shards, pages[name], strict=True):
            with open(tmp_path / "out" / shard.name, "rb") as file:
                records = [len(records_in_python.frame(record)) for record in tfrecord.read(file)]
            every = dataset_manifest.index.every[name]
            assert sizes.tolist() == [sum(records[start : start + every]) for start in range(0, len(records), every)]


def test_a_large_shard_is_written_in_ranges_and_indexed_as_one(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of two kilobytes end inside pages."""
    monkeypatch.setattr(memory_budget, "share", lambda memory, workers: Budget(workers, 2 << 20, 2 << 10))
    prepared(data.parent / "rows.csv", tmp_path, tokenizer="sample:", shards=2, splits=SPLITS)
    assert (tmp_path / "shards.index").read_bytes() == (data / "shards.index").read_bytes()
    assert (tmp_path / "manifest.json").read_bytes() == (data / "manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), ("dataset.unreadable", "shards.index")),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), ("dataset.altered", "shards.index", "32")),
        (lambda path: path.write_bytes(b"\1" + path.read_bytes()[1:]), ("dataset.altered", "shards.index")),
    ],
)
def test_an_index_that_was_altered_is_found(data: Path, spoil, message: tuple[str, ...]) -> None:
    path = data / shard_files.INDEX
    original_bytes = path.read_bytes()
    spoil(path)
    try:
        with raises(DatasetError, *message):
            verify(data)
    finally:
        path.write_bytes(original_bytes)
    verify(data)


def test_an_index_of_other_shards_is_refused(data: Path, tmp_path: Path) -> None:
    dataset_manifest = manifest.load(data)
    index = shard_files.write_index(str(tmp_path), [b"\1\0\0\0"], every={"train": 8, "validation": 8})
    with raises(DatasetError, "dataset.altered", "shards.index", "train.tfrecord"):
        shard_files.read_index(tmp_path, index, {name: split.shards for name, split in dataset_manifest.splits.items()})


def test_the_index_stays_small() -> None:
    """16,384 shards of 128 MB with records of 512 tokens: an index of 32 MB for two terabytes."""
    records = 16_384 * (128 << 20) // 1100
    assert 4 * records / shard_files.records_per_page(records) < 33 << 20
    counts = [10**power for power in range(3, 10)]
    spacings = [shard_files.records_per_page(count) for count in counts]
    assert spacings == sorted(spacings)
    assert all(spacing & (spacing - 1) == 0 for spacing in spacings)


def test_pages_of_a_shard_without_records() -> None:
    assert shard_files.page_sizes(np.zeros(0, np.uint32), every=8).tolist() == []
    sizes = np.arange(1, 30, dtype=np.uint32)
    pages = shard_files.page_sizes(sizes, every=8).tolist()
    assert pages == [int(sizes[a:b].sum()) for a, b in itertools.pairwise([0, 8, 16, 24, 29])]


SPLITS = {"train": 0.8, "validation": 0.2}


def prepare(folder: Path, **choices: object) -> manifest.Manifest:
    if not (folder.parent / "rows.csv").exists():
        write_csv(folder.parent / "rows.csv", questions(60) + questions(70, words=3)[60:])
    choices = {"tokenizer": "sample:", "shards": 2, "splits": SPLITS, **choices}
    return prepared(folder.parent / "rows.csv", folder, **choices)


def read(data: Path, split: str) -> np.ndarray:
    dataset_manifest = manifest.load(data)
    assert dataset_manifest.lengths
    return shard_files.read_lengths(
        data, dataset_manifest.lengths, records={split: dataset_manifest.splits[split].records}
    )[split]


@pytest.mark.parametrize(("layout", "length"), [("padded", 200), ("ragged", 512)])
def test_they_are_the_tokens_of_each_record(tmp_path: Path, layout: str, length: int) -> None:
    dataset_manifest = prepare(tmp_path / "out", layout=layout, input_length=length)
    assert dataset_manifest.lengths
    assert dataset_manifest.lengths.bytes == 70 * 2 * (1 if length < 256 else 2)
    for split, split_records in records(tmp_path / "out").items():
        expected = [
            [
                sum(token != 0 for token in record["input_ids"]),
                sum(token != IGNORED_LABEL for token in record["labels"]),
            ]
            for record in split_records
        ]
        assert read(tmp_path / "out", split).tolist() == expected
        assert len({tokens for tokens, _ in expected}) > 1, split


def test_packed_rows_have_none(tmp_path: Path) -> None:
    dataset_manifest = prepare(tmp_path / "out", layout="packed", input_length=256)
    assert dataset_manifest.lengths is None
    assert not (tmp_path / "out" / shard_files.LENGTHS).exists()


def test_splits_with_very_many_records_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_files, "MOST_RECORDS", 30)
    dataset_manifest = prepare(tmp_path / "out")
    assert dataset_manifest.lengths
    assert set(dataset_manifest.lengths.records) == {"validation"}
    assert len(read(tmp_path / "out", "validation")) == dataset_manifest.splits["validation"].records <= 30
    verify(tmp_path / "out")


def test_a_shard_in_ranges_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path / "whole")
    monkeypatch.setattr(memory_budget, "share", lambda memory, workers: Budget(workers, 2 << 20, 2 << 10))
    prepare(tmp_path / "ranges")
    names = (shard_files.LENGTHS, manifest.NAME)
    whole_files, ranges = (
        [(tmp_path / folder / name).read_bytes() for name in names] for folder in ("whole", "ranges")
    )
    assert whole_files == ranges


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), ("dataset.unreadable", "shards.lengths")),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), ("dataset.altered", "shards.lengths")),
    ],
)
def test_what_was_altered_is_found(tmp_path: Path, spoil, message: str) -> None:
    prepare(tmp_path / "out")
    verify(tmp_path / "out")
    spoil(tmp_path / "out" / shard_files.LENGTHS)
    with raises(DatasetError, *message):
        verify(tmp_path / "out")


def test_lengths_of_other_shards_are_refused(tmp_path: Path) -> None:
    written = shard_files.write_lengths(str(tmp_path), {"a": [shard_files.compressed(np.ones((3, 2)))]}, longest=9)
    assert shard_files.read_lengths(tmp_path, written, records={"a": 3})["a"].tolist() == [[1, 1]] * 3
    with raises(DatasetError, "dataset.altered", "a"):
        shard_files.read_lengths(tmp_path, written, records={"a": 2})


def test_a_shard_without_records_has_none(tmp_path: Path) -> None:
    dataset_manifest = prepare(tmp_path / "out", shards=30)
    assert 0 in [shard.records for shard in dataset_manifest.splits["train"].shards]
    verify(tmp_path / "out")
    assert len(read(tmp_path / "out", "train")) == dataset_manifest.splits["train"].records


def test_verifying_reads_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(prepare(tmp_path / "out").splits) == 2
    read: list[str] = []
    monkeypatch.setattr(paths, "read", lambda path: read.append(Path(path).name) or Path(path).read_bytes())
    verify(tmp_path / "out")
    assert read.count(shard_files.LENGTHS) == 1


def test_lengths_of_another_split_are_found_when_all_are_checked(tmp_path: Path) -> None:
    shards = {name: [shard_files.compressed(np.ones((3, 2)))] for name in ("a", "b")}
    written = shard_files.write_lengths(str(tmp_path), shards, longest=9)
    shard_files.read_lengths(tmp_path, written, records={"a": 3, "b": 3})
    with raises(DatasetError, "dataset.altered", "b"):
        shard_files.read_lengths(tmp_path, written, records={"a": 3, "b": 2})


@pytest.mark.parametrize("longest", [255, 256, 1 << 16])
def test_any_length_is_kept(tmp_path: Path, longest: int) -> None:
    lengths = {name: np.array([[longest, number], [0, 1]]) for number, name in enumerate("ba")}
    shards = {
        name: [shard_files.compressed(rows[:1]), shard_files.compressed(rows[1:])] for name, rows in lengths.items()
    }
    written = shard_files.write_lengths(str(tmp_path), shards, longest=longest)
    for name, rows in lengths.items():
        assert shard_files.read_lengths(tmp_path, written, records={name: 2})[name].tolist() == rows.tolist()

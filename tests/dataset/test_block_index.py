"""The index of a dataset's shards: made with them, the same by any way of preparing, checked where it is read."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from preparing import prepared, questions, write_csv

from t5prep.dataset import block_index, manifest, tfrecord
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError
from t5prep.prepare import memory_budget
from t5prep.prepare.memory_budget import Budget

SPLITS = {"train": 0.8, "validation": 0.2}


def indexed(data: Path) -> dict[str, list[np.ndarray]]:
    made = manifest.load(data)
    assert made.index
    return block_index.read(data, made.index, {name: split.shards for name, split in made.splits.items()})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    write_csv(folder / "rows.csv", questions(60))
    prepared(folder / "rows.csv", folder / "out", tokenizer="sample:", shards=2, splits=SPLITS)
    return folder / "out"


@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
def test_each_block_begins_where_the_index_says(tmp_path: Path, layout: str) -> None:
    write_csv(tmp_path / "rows.csv", questions(70))
    made = prepared(
        tmp_path / "rows.csv", tmp_path / "out", tokenizer="sample:", shards=3, layout=layout, splits=SPLITS
    )
    blocks = indexed(tmp_path / "out")
    assert made.index
    for name, split in made.splits.items():
        for shard, sizes in zip(split.shards, blocks[name], strict=True):
            with open(tmp_path / "out" / shard.name, "rb") as file:
                records = [len(tfrecord.frame(record)) for record in tfrecord.read(file)]
            every = made.index.every[name]
            assert sizes.tolist() == [sum(records[at : at + every]) for at in range(0, len(records), every)]


def test_a_large_shard_is_written_in_ranges_and_indexed_as_one(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of two kilobytes end inside blocks."""
    monkeypatch.setattr(memory_budget, "share", lambda memory, workers: Budget(workers, 2 << 20, 2 << 10))
    prepared(data.parent / "rows.csv", tmp_path, tokenizer="sample:", shards=2, splits=SPLITS)
    assert (tmp_path / "shards.index").read_bytes() == (data / "shards.index").read_bytes()
    assert (tmp_path / "manifest.json").read_bytes() == (data / "manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "shards.index cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "shards.index has SHA-256"),
        (lambda path: path.write_bytes(b"\1" + path.read_bytes()[1:]), "shards.index has SHA-256"),
    ],
)
def test_an_index_that_was_altered_is_found(data: Path, spoil, message: str) -> None:
    path = data / block_index.NAME
    whole = path.read_bytes()
    spoil(path)
    try:
        with pytest.raises(DatasetError, match=message):
            verify(data)
    finally:
        path.write_bytes(whole)
    verify(data)


def test_an_index_of_other_shards_is_refused(data: Path, tmp_path: Path) -> None:
    made = manifest.load(data)
    index = block_index.write(str(tmp_path), [b"\1\0\0\0"], every={"train": 8, "validation": 8})
    with pytest.raises(DatasetError, match=r"shards\.index is not the index of train\.tfrecord"):
        block_index.read(tmp_path, index, {name: split.shards for name, split in made.splits.items()})


def test_a_dataset_of_an_earlier_version_has_no_index_and_the_digest_it_had(data: Path) -> None:
    facts = json.loads((data / "manifest.json").read_text())
    del facts["index"]
    facts["digest"] = manifest.digest(dataclasses.replace(manifest.load(data), index=None))
    earlier = manifest.loads(json.dumps(facts), where="manifest.json")
    assert earlier.index is None
    assert earlier.digest != manifest.load(data).digest  # they are read in another order


def test_the_index_stays_small() -> None:
    """16,384 shards of 128 MB with records of 512 tokens: an index of 32 MB for two terabytes."""
    records = 16_384 * (128 << 20) // 1100
    assert 4 * records / block_index.spacing(records) < 33 << 20
    counts = [10**power for power in range(3, 10)]
    spacings = [block_index.spacing(count) for count in counts]
    assert spacings == sorted(spacings)
    assert all(one & (one - 1) == 0 for one in spacings)


def test_blocks_of_a_shard_without_records() -> None:
    assert block_index.block_sizes(np.zeros(0, np.uint32), every=8).tolist() == []
    sizes = np.arange(1, 30, dtype=np.uint32)
    blocks = block_index.block_sizes(sizes, every=8).tolist()
    assert blocks == [int(sizes[a:b].sum()) for a, b in itertools.pairwise([0, 8, 16, 24, 29])]

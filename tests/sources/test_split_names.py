"""Splits by names of files: as `datasets` resolves them, or a sentence."""

import os
import random
from pathlib import Path

import pytest
from raised import raises
from random_seeds import seeds

from t5prep.errors import SourceError
from t5prep.sources import split_names

WORDS = [
    "train",
    "training",
    "dev",
    "val",
    "valid",
    "validation",
    "test",
    "testing",
    "eval",
    "evaluation",
    "holdout",
    "data",
    "extra",
    "x",
    "latest",
    "7",
]
SEPARATORS = ["-", ".", "_", " ", "0", "", "/"]


def random_name(random_state: random.Random) -> str:
    """Return a path of some words, one of them often a keyword."""
    words = [random_state.choice(WORDS) for _ in range(random_state.randint(1, 3))]
    path = words[0] + "".join(random_state.choice(SEPARATORS) + word for word in words[1:])
    folder = random_state.choice(["", "", "", "data/"])
    return folder + path + random_state.choice([".csv", ".csv", "-00000-of-00001.csv", ".csv.gz"])


@pytest.mark.fuzz
@pytest.mark.extra("datasets")
@pytest.mark.parametrize("seed", seeds(30))
def test_names_tell_the_splits_that_datasets_finds(seed: int, tmp_path: Path) -> None:
    from datasets import data_files

    random_state = random.Random(seed)
    names = sorted({random_name(random_state) for _ in range(random_state.randint(1, 4))})
    names = [name for name in names if not any(other_name.startswith(f"{name}/") for other_name in names)]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    try:
        patterns = data_files.get_data_patterns(str(tmp_path))
    except ValueError:  # a name of a split has a blank
        with pytest.raises(SourceError) as raised:
            split_names.find({name: name for name in names})
        assert raised.value.code in ("split.invalid-name", "split.ambiguous")
        return
    expected: dict[str, set[str]] = {}
    for split, paths in data_files.DataFilesDict.from_patterns(patterns, base_path=str(tmp_path)).items():
        for path in paths:
            expected.setdefault(os.path.relpath(path, tmp_path.resolve()), set()).add(str(split))
    try:
        splits = split_names.find({name: name for name in names}).split_by_name or dict.fromkeys(names, "train")
    except SourceError:
        return
    assert {name: {split} for name, split in splits.items()} == expected


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["Train.csv", "TEST.csv"], ["train", "test"]),
        (["training.csv", "evaluation.csv", "val.csv"], ["train", "test", "validation"]),
        (["test/train.csv"], ["test"]),
        (["data/train_sft-00000-of-00001.csv", "data/test_sft-00000-of-00001.csv"], ["train_sft", "test_sft"]),
        (["train_a-00000-of-00001.csv", "train_b-00000-of-00001.csv"], ["train_a", "train_b"]),
        (["train-00000-of-00001.csv", "train_b-00000-of-00001.csv"], ["train", "train"]),
        (["latest.csv", "contest.csv", "trainer.csv", "devices.csv"], []),
    ],
)
def test_a_name_tells_its_split(names: list[str], splits: list[str]) -> None:
    assert list(split_names.find({name: name for name in names}).split_by_name.values()) == splits


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["eval/a.csv", "train.csv"], "split.ambiguous"),
        (["train_test.csv"], "split.ambiguous"),
        (["data/a b-00000-of-00001.csv"], "split.invalid-name"),
    ],
)
def test_names_that_tell_two_things_are_refused(names: list[str], code: str) -> None:
    with raises(SourceError, code, *names, "--split-files"):
        split_names.find({name: name for name in names})

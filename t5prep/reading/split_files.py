"""Find the files of a source that are splits, by their names."""

import re
from collections.abc import Sequence

_NAMES = {
    "train": "train",
    "training": "train",
    "valid": "validation",
    "validation": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
_WORD = re.compile(r"[a-z]+")


def of_files(names: Sequence[str]) -> dict[str, str]:
    """Return the split of each file, where every name tells one and there are several splits; else an empty dict.

    >>> of_files(["data/train.csv", "data/valid.csv"])
    {'data/train.csv': 'train', 'data/valid.csv': 'validation'}
    >>> of_files(["train.tsv"]), of_files(["train.csv", "notes.csv"])
    ({}, {})
    """
    splits = {name: split for name in names if (split := _of(name))}
    return splits if len(splits) == len(names) and len(set(splits.values())) > 1 else {}


def _of(name: str) -> str:
    """Return the split that a name tells: by the word nearest to its end, so that `train/latest.csv` is of train."""
    words = _WORD.findall(name.lower().rpartition(".")[0] or name.lower())
    return next((_NAMES[word] for word in reversed(words) if word in _NAMES), "")

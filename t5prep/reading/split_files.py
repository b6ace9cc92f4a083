"""Which files of a source are splits themselves, told by their names."""

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
    """Return file name → split, where each file's name tells one and there is more than one; else nothing.

    >>> of_files(["data/train.csv", "data/valid.csv"])
    {'data/train.csv': 'train', 'data/valid.csv': 'validation'}
    >>> of_files(["train.tsv"]), of_files(["train.csv", "notes.csv"])
    ({}, {})
    """
    found = {name: split for name in names if (split := _of(name))}
    return found if len(found) == len(names) and len(set(found.values())) > 1 else {}


def _of(name: str) -> str:
    """Return the split that a name tells: by the word nearest to its end, so that `train/latest.csv` is of train."""
    words = _WORD.findall(name.lower().rpartition(".")[0] or name.lower())
    return next((_NAMES[word] for word in reversed(words) if word in _NAMES), "")

"""Find the folder where t5prep keeps files that it may need again, show its size, and clear it."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from t5prep.errors import UsageError
from t5prep.io import byte_sizes

DEFAULT_LIMIT = "20GB"
# These may be removed at any time; making them again costs only time.
KINDS = {
    "tokenized": "tokenized blocks, for runs that begin again",
    "sources": "downloaded corpora",
    "plan": "answers of the TPU compiler",
    "tables": "tables of texts, for `explore`",
    "programs": "compiled programs of training and predicting",
}


class Kept(NamedTuple):
    """Describe one kind of cached files: how many files, how many bytes, and the folder."""

    kind: str
    what: str
    files: int
    bytes: int
    folder: Path


def root() -> Path:
    """Return the cache folder: $T5PREP_CACHE, else $XDG_CACHE_HOME/t5prep, else ~/.cache/t5prep."""
    if own := os.environ.get("T5PREP_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "t5prep"


def tokenized() -> Path:
    """Return the folder of tokenized blocks, each named by the digest of its inputs."""
    return root() / "tokenized"


def limit() -> int:
    """Return how many bytes of tokenized blocks are kept: $T5PREP_CACHE_LIMIT (`50GB`), else 20 GB.

    Raises UsageError.
    """
    return byte_sizes.parse(os.environ.get("T5PREP_CACHE_LIMIT") or DEFAULT_LIMIT, name="T5PREP_CACHE_LIMIT")


def show() -> list[Kept]:
    """Return what the cache holds now, kind by kind."""
    kept = []
    for kind, what in KINDS.items():
        folder = root() / kind
        sizes = list(_sizes(folder))
        kept.append(Kept(kind, what, len(sizes), sum(sizes), folder))
    return kept


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the bytes of each file below a folder; one that another process removes meanwhile is passed over."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.stat(os.path.join(place, name)).st_size


def clear(kinds: list[str]) -> list[Kept]:
    """Remove all files of these kinds; return what was removed. Raises UsageError for an unknown kind."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f'"{unknown[0]}" is not kept; there are {", ".join(KINDS)}')
    there = [kept for kept in show() if kept.kind in kinds]
    for kept in there:
        shutil.rmtree(kept.folder, ignore_errors=True)
    return there

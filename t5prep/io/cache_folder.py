"""Where t5prep keeps what it may need again, and how much of it."""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from t5prep.errors import UsageError

DEFAULT_LIMIT = "20GB"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
# What may be removed at any time, and costs only time to have again.
KINDS = {
    "tokenized": "tokenized blocks, for runs that begin again",
    "sources": "downloaded corpora",
    "plan": "answers of the TPU compiler",
}


class Kept(NamedTuple):
    """One kind of what is kept: how many files, how many bytes, and where."""

    kind: str
    what: str
    files: int
    bytes: int
    folder: Path


def root() -> Path:
    """$T5PREP_CACHE, else $XDG_CACHE_HOME/t5prep, else ~/.cache/t5prep."""
    if own := os.environ.get("T5PREP_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "t5prep"


def tokenized() -> Path:
    """Tokenized blocks, each under the digest of what made it."""
    return root() / "tokenized"


def limit() -> int:
    """How many bytes of tokenized blocks are kept: $T5PREP_CACHE_LIMIT (`50GB`), else 20 GB. Raises UsageError."""
    return parse_bytes(os.environ.get("T5PREP_CACHE_LIMIT") or DEFAULT_LIMIT, name="T5PREP_CACHE_LIMIT")


def parse_bytes(text: str, *, name: str) -> int:
    """`512MB`, `2 GiB`, `1.5g` or a plain number as bytes. Raises UsageError.

    >>> parse_bytes("2GiB", name="--memory"), parse_bytes("1.5 GB", name="--memory")
    (2147483648, 1500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if not found:
        raise UsageError(f'{name} "{text}": it is a number of bytes, as 512MB or 2GiB')
    number, unit, binary = found[1], found[2].lower(), found[3]
    scale = 1024 ** "kmgt".index(unit) * 1024 if binary and unit else _UNITS[unit]
    return int(float(number) * scale)


def show() -> list[Kept]:
    """What is kept now, kind by kind."""
    kept = []
    for kind, what in KINDS.items():
        folder = root() / kind
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        kept.append(Kept(kind, what, len(sizes), sum(sizes), folder))
    return kept


def clear(kinds: list[str]) -> list[Kept]:
    """Removes all of these kinds; returns what there was. Raises UsageError for a kind there is not."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f'"{unknown[0]}" is not kept; there are {", ".join(KINDS)}')
    there = [kept for kept in show() if kept.kind in kinds]
    for kept in there:
        shutil.rmtree(kept.folder, ignore_errors=True)
    return there

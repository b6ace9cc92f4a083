"""Check the balance of a dataset: every row of every file is an example, rejected, a duplicate or blank."""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import BinaryIO

from t5prep.errors import BalanceError


@dataclasses.dataclass(frozen=True)
class Rows:
    """Count the rows of one file: those that were read, and what each of them became."""

    read: int
    examples: int
    rejected: int
    duplicates: int
    blank: int


@dataclasses.dataclass(frozen=True)
class RejectedFile:
    """Describe the file of rows that made no record of their own: its lines, bytes and SHA-256."""

    name: str
    lines: int
    bytes: int
    sha256: str


def check(rows: Mapping[str, Rows], *, examples: int, rejected: int) -> None:
    """Raise BalanceError where a file's rows do not add up, or all of them not to the dataset's examples and rejected rows.

    >>> check({"a.csv": Rows(read=4, examples=1, rejected=1, duplicates=1, blank=1)}, examples=1, rejected=2)
    """
    for name, file in rows.items():
        became = file.examples + file.rejected + file.duplicates + file.blank
        if file.read != became or min(dataclasses.astuple(file)) < 0:
            raise BalanceError(
                f"{name}: {file.read:,} rows were read, and {became:,} are accounted for ({file.examples:,} examples, "
                f"{file.rejected:,} rejected, {file.duplicates:,} duplicates, {file.blank:,} blank). {_MISTAKE}"
            )
    for what, total, counted in (
        ("examples", examples, sum(file.examples for file in rows.values())),
        ("rejected rows and duplicates", rejected, sum(file.rejected + file.duplicates for file in rows.values())),
    ):
        if total != counted:
            raise BalanceError(f"{counted:,} {what} were made, and {total:,} are in the dataset. {_MISTAKE}")


# Beyond that they say what is wrong with single rows.
DIFFERENT_REASONS = 10_000
_MISTAKE = "This is a mistake of t5prep: the dataset is not whole. Please report it with this message"


class Total:
    """Add up rows of files, given one after the other."""

    def __init__(self) -> None:
        self._counts: dict[str, collections.Counter[str]] = {}

    def add(self, file: str, **counts: int) -> None:
        """Count some rows of a file, by the names that Rows has."""
        self._counts.setdefault(file, collections.Counter()).update(counts)

    def merge(self, other: "Total") -> None:
        """Count what another one counted."""
        for file, counts in other._counts.items():
            self._counts.setdefault(file, collections.Counter()).update(counts)

    def rows(self) -> dict[str, Rows]:
        """Return the rows of each file, in the order of their names."""
        names = [field.name for field in dataclasses.fields(Rows)]
        return {file: Rows(**{name: counts[name] for name in names}) for file, counts in sorted(self._counts.items())}


def write_rejected(
    file: BinaryIO, lines: Iterable[bytes], *, name: str, different: int = DIFFERENT_REASONS
) -> tuple[RejectedFile, collections.Counter[str]]:
    """Write finished JSON lines into an open file; return what the manifest says of it, and how often each reason stands.

    Only so many `different` reasons are counted, the first, which are the same whatever ran the preparation.
    """
    digest, size, count = hashlib.sha256(), 0, 0
    reasons: collections.Counter[str] = collections.Counter()
    for some in lines:
        file.write(some)
        digest.update(some)
        size += len(some)
        for line in some.splitlines():
            count += 1
            reason = json.loads(line)["reason"]
            if reason in reasons or len(reasons) < different:
                reasons[reason] += 1
    return RejectedFile(name, count, size, digest.hexdigest()), reasons


def read_rejected(file: BinaryIO, *, name: str) -> tuple[RejectedFile, collections.Counter[str]]:
    """Return what a file of rejected rows is, and how many lines it has of each source file."""
    digest, size, counts = hashlib.sha256(), 0, collections.Counter[str]()
    for line in file:
        digest.update(line)
        size += len(line)
        try:
            counts[str(json.loads(line)["file"])] += 1
        except (ValueError, KeyError, TypeError):
            counts[""] += 1
    return RejectedFile(name, sum(counts.values()), size, digest.hexdigest()), counts

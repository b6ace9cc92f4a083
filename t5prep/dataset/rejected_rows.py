"""Account for every row of every source file (example, rejected, duplicate or blank), and read and write rejected rows.

Rejected rows and duplicates are lines of `rejected.jsonl`. If these have many bytes, they are in several parts, and the
manifest names all parts by one pattern: `rejected.jsonl@16` are the files `rejected.jsonl-00000-of-00016` and so on. Its
`lines` and `bytes` are those of all parts. Its SHA-256 is that of the parts' SHA-256 values, so threads can hash the parts.
"""

import collections
import dataclasses
import hashlib
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO

from t5prep.errors import BalanceError
from t5prep.json_values import whole_number

NAME = "rejected.jsonl"
# Up to this many bytes are one file. More bytes become parts of about PART_BYTES each, at most MOST_PARTS.
LARGEST_BYTES = 256 << 20
PART_BYTES = 64 << 20
MOST_PARTS = 256
# This many consecutive rows of a source file are in the same part.
_ROWS_A_GROUP = 1024
# The last key of each line. The reason of a line is the text after it, without parsing the JSON.
_REASON = b', "reason": '
_PART = re.compile(rf"{re.escape(NAME)}(-\d{{5}}-of-\d{{5}})?")
# Maximum number of reasons that are counted. A task that writes a row's values into its reasons makes one for each row.
DIFFERENT_REASONS = 10_000
# The end of the messages about counts that do not add up.
_MISTAKE = (
    "The dataset is incomplete. If files of an earlier run were removed from --out, run the command again with --fresh. "
    "Otherwise this is a bug of t5prep. Report it with this message."
)


_SIMILARITY = " (Jaccard similarity "
# A regular expression for the reason of a near-duplicate; its group `id` is the id of the row that remains.
NEAR = rf"(?s)^near duplicate: kept is .*?:\d+, id (?P<id>.*){re.escape(_SIMILARITY)}[0-9.]+\)$"


def near_duplicate(file: str, row: int, id: str, similarity: float) -> str:
    """Return the reason of a row that is removed as a near-duplicate of the row `id`, which is `file`:`row`.

    >>> reason = near_duplicate("a.csv", 7, "q7", 0.912)
    >>> re.match(NEAR, reason)["id"], without_similarity(reason)
    ('q7', 'near duplicate: kept is a.csv:7, id q7')
    """
    return f"near duplicate: kept is {file}:{row}, id {id}{_SIMILARITY}{similarity:.2f})"


def without_similarity(reason: str) -> str:
    """Return `reason` without its similarity, so that near-duplicates of one row are counted together."""
    return reason.rpartition(_SIMILARITY)[0] or reason


@dataclasses.dataclass(frozen=True)
class Rows:
    """Count the rows of one source file: `read`, and what they became.

    A long row that is split becomes several examples; `parts` counts those beyond the first. So `read + parts` equals
    `examples + rejected + duplicates + blank`.
    """

    read: int
    examples: int
    rejected: int
    duplicates: int
    blank: int
    parts: int = 0


_ROW_FIELDS = [field.name for field in dataclasses.fields(Rows)]


@dataclasses.dataclass(frozen=True)
class RejectedFile:
    """Describe the file of rejected rows and duplicates: its name or pattern, lines, bytes and SHA-256 (hex)."""

    name: str
    lines: int
    bytes: int
    sha256: str


def check(rows: Mapping[str, Rows], *, examples: int, rejected: int) -> None:
    """Raise BalanceError if the counts of a file in `rows` do not add up.

    The counts of all files must also add up to the dataset's `examples` and `rejected` rows (with duplicates).

    >>> check({"a.csv": Rows(read=4, examples=1, rejected=1, duplicates=1, blank=1)}, examples=1, rejected=2)
    """
    for name, file in rows.items():
        became = file.examples + file.rejected + file.duplicates + file.blank
        if file.read + file.parts != became or min(vars(file).values()) < 0:
            raise BalanceError(
                f"{name} has {file.read + file.parts:,} rows and parts, but {became:,} are accounted for "
                f"({file.examples:,} examples, {file.rejected:,} rejected, {file.duplicates:,} duplicates, "
                f"{file.blank:,} blank). {_MISTAKE}",
                code="pipeline.row-count-mismatch",
            )
    for kind, total, row_total in (
        ("examples", examples, sum(file.examples for file in rows.values())),
        ("rejected rows and duplicates", rejected, sum(file.rejected + file.duplicates for file in rows.values())),
    ):
        if total != row_total:
            raise BalanceError(
                f"{row_total:,} {kind} were made, but the dataset has {total:,}. {_MISTAKE}",
                code="pipeline.row-count-mismatch",
            )


class Total:
    """Add up the counts of rows by source file."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def add(self, file: str, **counts: int) -> None:
        """Add to the counts of `file`; the keywords are fields of Rows."""
        self._add(file, [counts.get(name, 0) for name in _ROW_FIELDS])

    def merge(self, other: "Total") -> None:
        """Add all counts of `other`."""
        for file, counts in other._counts.items():
            self._add(file, counts)

    def _add(self, file: str, counts: list[int]) -> None:
        mine = self._counts.get(file)
        self._counts[file] = list(map(operator.add, mine, counts)) if mine else counts

    def rows(self) -> dict[str, Rows]:
        """Return the counts of each file, sorted by file name."""
        return {file: Rows(*counts) for file, counts in sorted(self._counts.items())}


def write_rejected(
    file: BinaryIO, lines: Iterable[bytes], *, name: str, different: int = DIFFERENT_REASONS
) -> tuple[RejectedFile, collections.Counter[str]]:
    """Write JSON lines into an open file, and return the file's description and the frequency of each reason.

    `lines` are byte strings of one or more complete lines, in an order that does not depend on the machine. Only the first
    `different` reasons are counted, so these are the same on every machine.
    """
    digest, size, count = hashlib.sha256(), 0, 0
    reasons = collections.Counter[bytes]()
    for chunk in lines:
        file.write(chunk)
        digest.update(chunk)
        size += len(chunk)
        for line in chunk.splitlines():
            count += 1
            reason = line.rpartition(_REASON)[2]  # JSON escapes quotes inside strings, so only the key matches
            if reason in reasons or len(reasons) < different:
                reasons[reason] += 1
    reason_counts = collections.Counter({json.loads(reason[:-1]): number for reason, number in reasons.items()})
    return RejectedFile(name, count, size, digest.hexdigest()), reason_counts


def read_rejected(file: BinaryIO, *, name: str) -> tuple[RejectedFile, collections.Counter[str]]:
    """Return the description of a file of rejected rows, and the number of its lines by source file.

    A malformed line counts for the source file "".
    """
    digest, size, counts = hashlib.sha256(), 0, collections.Counter[str]()
    for line in file:
        digest.update(line)
        size += len(line)
        try:
            counts[str(json.loads(line)["file"])] += 1
        except (ValueError, KeyError, TypeError, RecursionError):
            counts[""] += 1
    return RejectedFile(name, sum(counts.values()), size, digest.hexdigest()), counts


def is_rejected(file: str) -> bool:
    """Check whether `file` is the name of a file of rejected rows, or of a part.

    >>> is_rejected("rejected.jsonl"), is_rejected("rejected.jsonl-00003-of-00016"), is_rejected("rejected.json")
    (True, True, False)
    """
    return bool(_PART.fullmatch(file))


def files_for(size: int) -> int:
    """Return the number of files for `size` bytes of rejected rows.

    >>> files_for(1000), files_for(1 << 30), files_for(1 << 40)
    (1, 16, 256)
    """
    return 1 if size <= LARGEST_BYTES else min(MOST_PARTS, -(-size // PART_BYTES))


def names_of(pattern: str) -> list[str]:
    """Return the names of the files of rejected rows that `pattern`, a name in the manifest, stands for.

    >>> names_of("rejected.jsonl"), names_of("rejected.jsonl@2")
    (['rejected.jsonl'], ['rejected.jsonl-00000-of-00002', 'rejected.jsonl-00001-of-00002'])
    """
    name, _, suffix = pattern.partition("@")
    parts = whole_number(suffix)
    if parts is None or parts > MOST_PARTS:
        return [pattern]
    return [_name(name, number, parts) for number in range(parts)]


def numbered(number: int, parts: int) -> str:
    """Return the name of the file `number` of `parts` files of rejected rows."""
    return NAME if parts == 1 else _name(NAME, number, parts)


def part_of(line: bytes, *, parts: int) -> int:
    """Return the number of the part for a JSON line.

    It depends on the line's file and row alone, so it is the same for any number of workers and for any runner.
    """
    if parts == 1:
        return 0
    row = json.loads(line)
    row_key = f"{row['file']}\0{row['row'] // _ROWS_A_GROUP}".encode("utf-8", "surrogatepass")
    # Not Python's `hash`, which differs from process to process.
    return int.from_bytes(hashlib.blake2b(row_key, digest_size=8).digest(), "big") % parts


def merge_parts(parts: Sequence[RejectedFile]) -> RejectedFile:
    """Return the description of all parts together, given those of the parts in order."""
    if len(parts) == 1:
        return parts[0]
    digest = hashlib.sha256("".join(part.sha256 for part in parts).encode()).hexdigest()
    lines, size = sum(part.lines for part in parts), sum(part.bytes for part in parts)
    return RejectedFile(f"{NAME}@{len(parts)}", lines, size, digest)


def _name(name: str, number: int, parts: int) -> str:
    return f"{name}-{number:05d}-of-{parts:05d}"

"""Name the files of rejected rows: `rejected.jsonl`, or many parts of it where the rows are many.

The manifest names many parts by one pattern, `rejected.jsonl@16`: the files `rejected.jsonl-00000-of-00016` and so on,
with the lines and bytes of all of them. Their SHA-256 is that of the parts' own, so that parts are read side by side.
"""

import hashlib
import json
import re
from collections.abc import Sequence

from t5prep.dataset.row_balance import RejectedFile

NAME = "rejected.jsonl"
# So many bytes are one file; of more, each part has about PART_BYTES, and there are at most MOST_PARTS.
LARGEST_BYTES = 256 << 20
PART_BYTES = 64 << 20
MOST_PARTS = 256
# Neighbours stay together: so many rows of a file are in one part.
_ROWS_TOGETHER = 1024
_PART = re.compile(rf"{re.escape(NAME)}(-\d{{5}}-of-\d{{5}})?")


def is_rejected(file: str) -> bool:
    """Return whether a file's name is that of rejected rows, or of a part of them.

    >>> is_rejected("rejected.jsonl"), is_rejected("rejected.jsonl-00003-of-00016"), is_rejected("rejected.json")
    (True, True, False)
    """
    return bool(_PART.fullmatch(file))


def count(size: int) -> int:
    """Return how many files so many bytes of rejected rows make.

    >>> count(1000), count(1 << 30), count(1 << 40)
    (1, 16, 256)
    """
    return 1 if size <= LARGEST_BYTES else min(MOST_PARTS, -(-size // PART_BYTES))


def names(pattern: str) -> list[str]:
    """Return the names of the files that the manifest names by one name or pattern.

    >>> names("rejected.jsonl"), names("rejected.jsonl@2")
    (['rejected.jsonl'], ['rejected.jsonl-00000-of-00002', 'rejected.jsonl-00001-of-00002'])
    """
    name, _, parts = pattern.partition("@")
    if not (parts.isdecimal() and int(parts) <= MOST_PARTS):
        return [pattern]
    return [_name(name, number, int(parts)) for number in range(int(parts))]


def numbered(number: int, parts: int) -> str:
    """Return the name of one of the files."""
    return NAME if parts == 1 else _name(NAME, number, parts)


def part_of(line: bytes, *, parts: int) -> int:
    """Return the number of the part that a finished JSON line is in: by its file and row alone, whatever ran the preparation."""
    if parts == 1:
        return 0
    row = json.loads(line)
    place = f"{row['file']}\0{row['row'] // _ROWS_TOGETHER}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(place, digest_size=8).digest(), "big") % parts


def together(parts: Sequence[RejectedFile]) -> RejectedFile:
    """Return what the manifest says of all parts, given in order."""
    if len(parts) == 1:
        return parts[0]
    digest = hashlib.sha256("".join(part.sha256 for part in parts).encode()).hexdigest()
    lines, size = sum(part.lines for part in parts), sum(part.bytes for part in parts)
    return RejectedFile(f"{NAME}@{len(parts)}", lines, size, digest)


def _name(name: str, number: int, parts: int) -> str:
    return f"{name}-{number:05d}-of-{parts:05d}"

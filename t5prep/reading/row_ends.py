r"""Find where rows end in bytes, by one definition for cutting, Python's parsers and Arrow.

A row ends at `\n`, `\r\n` or a single `\r`, as in Python's universal newlines; in CSV only outside of quotes. `\r\r\n`
ends a row and a blank row after it.
"""

import io
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from t5prep import _native
from t5prep.reading import csv_rows

_END = re.compile(rb"\r\n|\r|\n")


class Ends(NamedTuple):
    """The end of the last whole row in a buffer, the number of rows, and whether they are regular (RFC 4180)."""

    end: int
    rows: int
    regular: bool


def count(data: bytes) -> int:
    r"""Return the number of row ends in bytes without quotes.

    >>> count(b"a\nb\r\nc\rd\r\r\n")
    5
    """
    characters = np.frombuffer(data, np.uint8)
    newlines = characters == ord("\n")  # bytes.count looks at one byte after the other
    if b"\r" not in data:
        return int(np.count_nonzero(newlines))
    returns = characters == ord("\r")
    return int(np.count_nonzero(newlines) + np.count_nonzero(returns) - np.count_nonzero(returns[:-1] & newlines[1:]))


def lines(text: str) -> Iterator[str]:
    r"""Yield the lines of a text without their ends: `\n`, `\r\n` or `\r`.

    str.splitlines is not used, because it also splits at U+2028 and other characters that are text.
    """
    for line in io.StringIO(text, newline=None):
        yield line.removesuffix("\n")


def of_buffer(buffer: bytes, *, quoted: bool, final: bool, delimiter: str = ",") -> Ends:
    """Return the whole rows at the beginning of a buffer. `final`: nothing follows, so the last row is whole."""
    if quoted and b'"' in buffer:
        # What is in C knows commas alone.
        swapped = bytes.maketrans(f"{delimiter},".encode(), f",{delimiter}".encode())
        if (match := _native.csv_rows(buffer if delimiter == "," else buffer.translate(swapped), final)) is not None:
            return Ends(*match, True)
        return Ends(*csv_rows.ends(buffer, final=final, delimiter=delimiter), False)
    if final:
        return Ends(len(buffer), count(buffer) + (bool(buffer) and not buffer.endswith((b"\n", b"\r"))), quoted)
    end = _last(buffer)
    return Ends(end, count(buffer[:end]), quoted)


def of_first(buffer: bytes, *, quoted: bool, final: bool, delimiter: str = ",") -> int:
    """Return where the first row of a buffer ends; 0 where more bytes are needed to know it."""
    match = _END.search(buffer)
    if quoted and b'"' in buffer[: match.start() if match else None]:
        return csv_rows.ends(buffer, final=final, most=1, delimiter=delimiter)[0]
    if match and (final or match.end() < len(buffer) or match[0] != b"\r"):
        return match.end()
    return len(buffer) if final else 0


def _last(buffer: bytes) -> int:
    r"""Return where the last row ends for certain: a `\r` at the very end may be half of `\r\n`."""
    size = len(buffer) - buffer.endswith(b"\r")
    return max(buffer.rfind(b"\n", 0, size), buffer.rfind(b"\r", 0, size)) + 1

r"""Find where rows end in bytes, by one definition for cutting, Python's parsers and Arrow.

A row ends at `\n`, `\r\n` or a single `\r`, as in Python's universal newlines; in CSV only outside of quotes. `\r\r\n`
ends a row and a blank row after it.
"""

import re
from typing import NamedTuple

import numpy as np

from t5prep.reading import csv_rows

try:
    from t5prep.reading._native import csv_rows as _ends_in_c
except ImportError:  # no compiler: numpy does it
    _ends_in_c = None  # type: ignore[assignment]

_END = re.compile(rb"\r\n|\r|\n")


class Ends(NamedTuple):
    """Hold the end of the last whole row in a buffer, the number of rows, and whether they are regular (RFC 4180)."""

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


def of_buffer(buffer: bytes, *, quoted: bool, final: bool) -> Ends:
    """Return the whole rows at the beginning of a buffer. `final`: nothing follows, so the last row is whole."""
    if quoted and b'"' in buffer:
        match = _by_quotes(buffer, final=final) if _ends_in_c is None else _ends_in_c(buffer, final)
        return Ends(*match, True) if match is not None else Ends(*csv_rows.ends(buffer, final=final), False)
    if final:
        return Ends(len(buffer), count(buffer) + (bool(buffer) and not buffer.endswith((b"\n", b"\r"))), quoted)
    end = _last(buffer)
    return Ends(end, count(buffer[:end]), quoted)


def of_first(buffer: bytes, *, quoted: bool, final: bool) -> int:
    """Return where the first row of a buffer ends; 0 where more bytes are needed to know it."""
    match = _END.search(buffer)
    if quoted and b'"' in buffer[: match.start() if match else None]:
        return csv_rows.ends(buffer, final=final, most=1)[0]
    if match and (final or match.end() < len(buffer) or match[0] != b"\r"):
        return match.end()
    return len(buffer) if final else 0


def _last(buffer: bytes) -> int:
    r"""Return where the last row ends for certain: a `\r` at the very end may be half of `\r\n`."""
    size = len(buffer) - buffer.endswith(b"\r")
    return max(buffer.rfind(b"\n", 0, size), buffer.rfind(b"\r", 0, size)) + 1


def _by_quotes(buffer: bytes, *, final: bool) -> tuple[int, int] | None:
    """Return the end of the last whole row and the number of rows, for CSV that follows RFC 4180.

    There, a quote opens only at the beginning of a field and closes only at its end. Returns None where this does not
    hold (`5" disk,`) and the rows must be parsed.
    """
    data = np.frombuffer(buffer, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    # Two quotes together are an escaped quote: the first counts as closing the field, the second as opening it again.
    opening, closing = quotes[::2], quotes[1::2]
    before, after = data[opening[opening > 0] - 1], data[closing[closing < len(data) - 1] + 1]
    closed = len(opening) == len(closing)
    if not (_BEFORE_QUOTES[before].all() and _AFTER_QUOTES[after].all()) or (final and not closed):
        return None
    ends = data == ord("\n")
    if b"\r" in buffer:
        alone = data == ord("\r")
        alone[:-1] &= ~ends[1:]
        alone[-1] &= final
        ends |= alone
    places = np.flatnonzero(ends)
    outside = places[np.searchsorted(quotes, places) % 2 == 0]
    if final:
        return len(buffer), len(outside) + (not buffer.endswith((b"\n", b"\r")) and bool(buffer))
    return (int(outside[-1]) + 1, len(outside)) if len(outside) else (0, 0)


def _among(characters: bytes) -> np.ndarray:
    """Return which of all bytes are among these, bool[256]."""
    return np.isin(np.arange(256), list(characters))


_BEFORE_QUOTES, _AFTER_QUOTES = _among(b',\r\n"'), _among(b',\r\n"')

"""Parse CSV by Python's own reader, and continue after rows that it cannot read."""

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from t5prep.reading.rows import Record

NEVER_CLOSED = "broken quoting: a quote opens in this row and does not close"
csv.field_size_limit(sys.maxsize)  # the default of 128 kB refuses real documents


class Parsed(NamedTuple):
    """Hold one row: its fields or why it cannot be read, and the number of characters up to its end.

    `open` is true where the text ended before the row was known to be whole.
    """

    fields: list[str] | str
    end: int
    open: bool = False


def split(text: str) -> Iterator[Parsed]:
    """Yield the rows of CSV text.

    A quote that never closes costs the line in which it opens, not the rest of the file.
    """
    lines = io.StringIO(text, newline="").readlines()
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    begin = 0
    while begin < len(lines):
        reader = csv.reader(iter(lines[begin:]) if begin else iter(lines), strict=True)
        origin = begin
        while True:
            try:
                fields: list[str] | str = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                unfinished = "unexpected end of data" in str(error)
                if unfinished or origin + reader.line_num > begin + 1:
                    yield Parsed(NEVER_CLOSED, ends[begin + 1], unfinished)
                    begin += 1
                    break
                fields = f"broken quoting: {error}"
            begin = origin + reader.line_num
            yield Parsed(fields, ends[begin], ends[begin] == len(text))


def rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield each row of CSV text as its record, {} where it is blank, or as the reason why it cannot be read."""
    try:
        parsed: Iterable[list[str] | str] = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        parsed = (row.fields for row in split(text))
    for fields in parsed:
        yield fields if isinstance(fields, str) else named(fields, columns)


def named(fields: list[str], columns: Sequence[str]) -> Record | str:
    """Return the record of some fields, {} where there are none, or the reason why they make none."""
    if fields and len(fields) != len(columns):
        return f"wrong number of fields: {len(fields)} where the header has {len(columns)}"
    return dict(zip(columns, fields, strict=False))


def ends(buffer: bytes, *, final: bool, most: int = 0) -> tuple[int, int]:
    """Return where the last whole row of a buffer ends, and the number of rows; only the first `most`, if it is not 0.

    Every encoding that is read so writes quotes, commas and newlines as ASCII does, and uses their bytes for nothing
    else. So Latin-1 finds them, one character for each byte.
    """
    end = rows = 0
    for row in split(buffer.decode("latin-1")):
        if row.open and not final:
            break  # the row may continue in bytes that are not read yet
        end, rows = row.end, rows + 1
        if rows == most:
            break
    return end, rows

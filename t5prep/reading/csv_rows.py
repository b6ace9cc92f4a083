"""Read CSV: by Arrow where it follows RFC 4180, in a sixth of the time of Python's own reader, which reads the rest.

The two readers must give the same rows, so Arrow reads only data that cannot be read in two ways. Where Arrow fails (a
row of another length, bytes that are not UTF-8), Python's reader is used, which says what is wrong with which row.
"""

import codecs
import csv
import functools
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from t5prep.reading.rows import Record

NEVER_CLOSED = "broken quoting: a quote opens in this row and does not close"
# The line that Excel reads and writes before the one with the columns' names.
SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?(?:\r\n|\r|\n)')
_QUOTED = re.compile(rb'"[^"]*"')
csv.field_size_limit(sys.maxsize)  # the default of 128 kB refuses real documents


class Parsed(NamedTuple):
    """One row: its fields or why it cannot be read, and the number of characters up to its end.

    `open` is true where the text ended before the row was known to be whole.
    """

    fields: list[str] | str
    end: int
    open: bool = False


def delimiter_of(line: bytes) -> str:
    """Return what divides the columns that a first line names: a comma, or the semicolon of Excel in most of Europe.

    >>> delimiter_of(b'id,text'), delimiter_of(b'id;"a, b"'), delimiter_of(b"a;b,c"), delimiter_of(b"text")
    (',', ';', ',', ',')
    """
    plain = _QUOTED.sub(b"", line)
    return ";" if b";" in plain and b"," not in plain else ","


def split(text: str, delimiter: str = ",") -> Iterator[Parsed]:
    """Yield the rows of CSV text.

    A quote that never closes costs the line in which it opens, not the rest of the file.
    """
    lines = io.StringIO(text, newline="").readlines()
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    begin = 0
    # An earlier row that came to nothing was in quotes at the beginning of each line up to this one, and open at its end or not.
    # So a row that goes on in one of these lines comes to nothing too: this needs no look at them.
    hopeless, unfinished = 0, False
    while begin < len(lines):
        origin, alone = begin, begin < hopeless
        ahead = [lines[begin]] if alone else map(lines.__getitem__, range(begin, len(lines)))
        reader = csv.reader(ahead, delimiter=delimiter, strict=True)
        while True:
            try:
                fields: list[str] | str = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                goes_on, last = "unexpected end of data" in str(error), origin + reader.line_num - 1
                if goes_on or last > begin:
                    if not alone:
                        hopeless, unfinished = last, goes_on
                    yield Parsed(NEVER_CLOSED, ends[begin + 1], unfinished)
                    begin += 1
                    break
                fields = f"broken quoting: {error}"
            begin = origin + reader.line_num
            yield Parsed(fields, ends[begin], ends[begin] == len(text))


def rows(text: str, columns: Sequence[str], delimiter: str = ",") -> Iterator[Record | str]:
    """Yield each row of CSV text as its record, {} where it is blank, or as the reason why it cannot be read."""
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        parsed: Iterable[list[str] | str] = list(reader)
    except csv.Error:
        parsed = (row.fields for row in split(text, delimiter))
    for fields in parsed:
        yield fields if isinstance(fields, str) else named(fields, columns)


def named(fields: list[str], columns: Sequence[str]) -> Record | str:
    """Return the record of some fields, {} where there are none, or the reason why they make none."""
    if fields and len(fields) != len(columns):
        return f"wrong number of fields: {len(fields)} where the header has {len(columns)}"
    return dict(zip(columns, fields, strict=False))


def ends(buffer: bytes, *, final: bool, most: int = 0, delimiter: str = ",") -> tuple[int, int]:
    """Return where the last whole row of a buffer ends, and the number of rows; only the first `most`, if it is not 0.

    Every encoding that is read so writes quotes, commas and newlines as ASCII does, and uses their bytes for nothing
    else. So Latin-1 finds them, one character for each byte.
    """
    end = rows = 0
    for row in split(buffer.decode("latin-1"), delimiter):
        if row.open and not final:
            break  # the row may continue in bytes that are not read yet
        end, rows = row.end, rows + 1
        if rows == most:
            break
    return end, rows


def read(
    data: bytes, encoding: str, *, columns: Sequence[str], wanted: Sequence[str] = (), delimiter: str = ","
) -> list[Record] | None:
    """Return the records of whole rows whose quotes are regular; None where Python's reader must be used.

    >>> read(b'1,"a, ""b"" c"', "utf-8", columns=("id", "text"))
    [{'id': '1', 'text': 'a, "b" c'}]
    """
    parsed = table(data, encoding, columns=columns, wanted=wanted, delimiter=delimiter)
    if parsed is None:
        return None
    names = parsed.column_names
    rows = zip(*(column.to_pylist() for column in parsed), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def table(
    data: bytes, encoding: str, *, columns: Sequence[str], wanted: Sequence[str] = (), delimiter: str = ","
) -> pa.Table | None:
    """Return the same rows as columns of large_string."""
    try:
        if codecs.lookup(encoding).name != "utf-8":
            data = data.decode(encoding).encode()
    except UnicodeError:
        return None
    # Readers differ about a lone carriage return; an empty line is ambiguous with one column; Arrow drops a BOM.
    if len(columns) < 2 or b"\0" in data or data.startswith(codecs.BOM_UTF8) or _ends_a_row_alone(data):
        return None
    if len(set(columns)) != len(columns):
        return None
    try:
        parsed = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=columns, use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.large_string()),
                include_columns=[column for column in columns if column in wanted],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    # Arrow reads an empty line as a row of empty fields.
    lengths = [pc.binary_length(column) for column in parsed.columns]
    empty = functools.reduce(pc.and_, (pc.equal(length, 0) for length in lengths)) if lengths else pa.array([True])
    return None if pc.any(empty).as_py() else parsed.combine_chunks()


def _ends_a_row_alone(data: bytes) -> bool:
    """Check whether a carriage return without a newline occurs outside of quotes."""
    if b"\r" not in data:
        return False
    characters = np.frombuffer(data, np.uint8)
    returns = np.flatnonzero(characters == ord("\r"))
    alone = returns[characters[np.minimum(returns + 1, len(characters) - 1)] != ord("\n")]
    if not len(alone):
        return False
    quotes = np.flatnonzero(characters == ord('"'))
    return bool((np.searchsorted(quotes, alone) % 2 == 0).any())

"""CSV that keeps to RFC 4180, read by Arrow: a sixth of the time that Python's own reader takes.

The two must never differ, so Arrow is asked only where nothing is open to two readings, and what it refuses (a row of
another length, bytes that are not UTF-8) is left to Python's reader, which says what is wrong with which row.
"""

import codecs
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv

from t5prep.reading.rows import Record


def read(data: bytes, encoding: str, *, columns: Sequence[str], wanted: Sequence[str] = ()) -> list[Record] | None:
    """The records of whole rows whose quotes have been found regular; None where Python's reader has to be asked.

    >>> read(b'1,"a, ""b"" c"', "utf-8", columns=("id", "text"))
    [{'id': '1', 'text': 'a, "b" c'}]
    """
    try:
        if codecs.lookup(encoding).name != "utf-8":
            data = data.decode(encoding).encode()
    except UnicodeError:
        return None
    # A lone carriage return ends a row for some; one column alone makes an empty line ambiguous; Arrow drops the mark.
    if (
        len(columns) < 2
        or b"\0" in data
        or data.startswith(codecs.BOM_UTF8)
        or data.count(b"\r") != data.count(b"\r\n")
    ):
        return None
    if len(set(columns)) != len(columns):
        return None
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=columns, use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=[column for column in columns if column in wanted],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    names = table.column_names
    rows = list(zip(*(column.to_pylist() for column in table), strict=True))
    # To Arrow an empty line is a row of empty fields.
    return [dict(zip(names, row, strict=True)) for row in rows] if all(map(any, rows)) else None

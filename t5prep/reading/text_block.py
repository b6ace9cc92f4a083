"""Parse the rows of a block of bytes in any text format: CSV, TSV, JSON lines, plain lines.

A row that cannot be read gives a reason, not an exception: it goes to rejected.jsonl, and the other rows continue.
Reasons are counted by their text before the first colon.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

from t5prep.reading import csv_rows, json_lines, row_ends, rows
from t5prep.reading.csv_rows import named
from t5prep.reading.formats import Format
from t5prep.reading.rows import Record, Row

# Escapes of JSON that may give invalid text: a NUL, half of a surrogate pair.
_ESCAPED = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def read(
    data: bytes,
    format: Format,
    *,
    columns: Sequence[str],
    first: int,
    wanted: Sequence[str] = (),
    regular: bool = False,
) -> Iterator[Row]:
    """Yield every row of a block that consists of whole rows; `first` is the number of its first row.

    CSV that is known to be `regular` is read faster, and then only its `wanted` columns (none: all).
    """
    if (
        regular
        and (
            records := csv_rows.read(data, format.encoding, columns=columns, wanted=wanted, delimiter=format.delimiter)
        )
        is not None
    ):
        yield from itertools.starmap(Row, enumerate(records, first))
        return
    try:
        text, broken = data.decode(format.encoding), False
    except UnicodeDecodeError:
        # Undecodable bytes become lone surrogates, which mark the rows they are in and no others.
        text, broken = data.decode(format.encoding, "surrogateescape"), True
    suspicious = broken or b"\0" in data or (format.kind == "jsonl" and _ESCAPED.search(data) is not None)
    # In the other formats every value is text.
    check_types = wanted if format.kind == "jsonl" else ()
    divided = (format.delimiter,) if format.kind == "csv" else ()
    for number, row in enumerate(_PARSERS[format.kind](text, columns, *divided), first):
        if isinstance(row, str):
            yield Row(number, None, row)
        elif not row:
            yield Row(number, None)
        else:
            row = rows.with_paths(row, check_types)
            reason = rows.damage(row, format, broken=broken) if suspicious else ""
            reason = reason or (rows.not_text(row, check_types) if check_types else "")
            yield Row(number, None if reason else row, reason)


def tsv_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the record of each line, {} for an empty one, or the reason why a line holds none."""
    for line in row_ends.lines(text):
        yield named(line.split("\t") if line else [], columns)


def text_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield each line as the column `text`, {} for a blank one."""
    for line in row_ends.lines(text):
        yield {"text": line} if line.strip() else {}


_PARSERS = {"csv": csv_rows.rows, "tsv": tsv_rows, "jsonl": json_lines.rows, "text": text_rows}

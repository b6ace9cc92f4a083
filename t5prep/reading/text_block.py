"""Parse the rows of a block of bytes in any text format: CSV, TSV, JSON lines, plain lines.

A row that cannot be read gives a reason, not an exception: it goes to rejected.jsonl, and the other rows continue.
Reasons are counted by their text before the first colon.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

from t5prep.reading import csv_by_arrow, csv_rows, line_rows, nested, values
from t5prep.reading.formats import Format
from t5prep.reading.rows import Row

# Escapes of JSON that may give invalid text: a NUL, half of a surrogate pair.
_ESCAPED = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_PARSERS = {
    "csv": csv_rows.rows,
    "tsv": line_rows.tsv_rows,
    "jsonl": line_rows.json_rows,
    "text": line_rows.text_rows,
}


def rows(
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
    if regular and (records := csv_by_arrow.read(data, format.encoding, columns=columns, wanted=wanted)) is not None:
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
    for number, row in enumerate(_PARSERS[format.kind](text, columns), first):
        if isinstance(row, str):
            yield Row(number, None, row)
        elif not row:
            yield Row(number, None)
        else:
            row = nested.with_paths(row, check_types)
            reason = values.damage(row, format, broken=broken) if suspicious else ""
            reason = reason or (values.not_text(row, check_types) if check_types else "")
            yield Row(number, None if reason else row, reason)

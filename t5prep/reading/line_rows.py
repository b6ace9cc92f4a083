"""Parse formats in which every line is a row: JSON lines, TSV, plain text."""

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from t5prep.reading.csv_rows import named
from t5prep.reading.rows import Record


def json_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the object of each line, {} for a blank one, or the reason why a line holds none."""
    for line in lines(text):
        if not line.strip():
            yield {}
            continue
        try:
            row = _decode(line)
        except (ValueError, RecursionError) as error:
            yield f"not JSON: {error}"
            continue
        if isinstance(row, dict):
            yield row or "no columns: an empty JSON object"
        else:
            yield f"not a JSON object: {type(row).__name__}"


def tsv_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the record of each line, {} for an empty one, or the reason why a line holds none."""
    for line in lines(text):
        yield named(line.split("\t") if line else [], columns)


def text_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield each line as the column `text`, {} for a blank one."""
    for line in lines(text):
        yield {"text": line} if line.strip() else {}


def lines(text: str) -> Iterator[str]:
    r"""Yield the lines of a text without their ends: `\n`, `\r\n` or `\r`, as in row_ends.

    str.splitlines is not used, because it also splits at U+2028 and other characters that are text.
    """
    for line in io.StringIO(text, newline=None):
        yield line.removesuffix("\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ValueError where a name occurs twice, because one value would be lost."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the name "{twice}" stands twice in an object')
    return fields


_decode = json.JSONDecoder(object_pairs_hook=_object).decode

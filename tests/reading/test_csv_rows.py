"""Rows of CSV whose quotes are broken are found in time that grows with their number alone."""

import csv
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from t5prep.reading import text_rows


# Quotes that close in the next row, with what may not follow them; and quotes that each row leaves open to the end.
@pytest.mark.parametrize("row", ['"a\n', 'a","\n', 'a","\r', '"",a"b,"\n'])
def test_a_line_is_read_few_times_however_many_are_broken(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(lines: Iterable[str], **how: Any) -> Any:
        def each() -> Iterator[str]:
            nonlocal read
            for line in lines:
                read += 1
                yield line

        return real(each(), **how)

    real = csv.reader
    monkeypatch.setattr(text_rows.csv, "reader", counted)
    rows = list(text_rows.split(row * 500))
    assert read <= 3 * 500
    assert len(rows) == 500
    assert rows[0].fields == text_rows.NEVER_CLOSED

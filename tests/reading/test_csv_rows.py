"""Rows of CSV whose quotes are broken are found in time that grows with their number alone."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import t5prep
from t5prep.reading import text_rows


# Quotes that close in the next row, with what may not follow them; and quotes that each row leaves open to the end.
@pytest.mark.parametrize("row", ['"a\n', 'a","\n', 'a","\r', '"",a"b,"\n'])
def test_a_line_is_read_few_times_however_many_are_broken(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def count_lines(lines: Iterable[str], **options: Any) -> Any:
        def iterate_lines() -> Iterator[str]:
            nonlocal read
            for line in lines:
                read += 1
                yield line

        return real(iterate_lines(), **options)

    real = csv.reader
    monkeypatch.setattr(text_rows.csv, "reader", count_lines)
    rows = list(text_rows.split(row * 500))
    assert read <= 3 * 500
    assert len(rows) == 500
    assert rows[0].fields == text_rows.NEVER_CLOSED


@pytest.mark.parametrize(
    ("row", "is_escaped"),
    [
        (r'"a \" b, c",x', True),
        (r'"never \" closed, x', True),
        (r"a\, b,x", True),
        ('"a " b",x', False),
        ('"never closed, x', False),
        ("a, b,x", False),
    ],
)
def test_a_row_that_an_escape_character_explains_names_the_option(row: str, is_escaped: bool) -> None:
    (reason,) = text_rows.csv_rows(row + "\n", ["text", "label"])
    assert isinstance(reason, str)
    assert reason.endswith(text_rows.ESCAPED) == is_escaped
    assert ("--escape '\\'" in reason) == is_escaped
    (unescaped_row,) = text_rows.csv_rows(row + "\n", ["text", "label"], escape="\\")
    assert text_rows.ESCAPED not in unescaped_row


def test_rows_with_escapes_are_counted_with_the_option_that_reads_them(tmp_path: Path) -> None:
    rows = [{"text": f'say "{n}", or not' if n % 2 else f"plain {n}", "label": "good"} for n in range(40)]
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["text", "label"], doublequote=False, escapechar="\\", quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    options = {"inputs_column": "text", "targets_column": "label", "tokenizer": "sample:", "workers": 0}
    manifest = t5prep.prepare("text2text", source=str(tmp_path / "rows.csv"), out=tmp_path / "out", **options)
    assert manifest.rejected == {"broken quoting": 20}
    assert any("20 rows with a backslash" in warning and "--escape '\\'" in warning for warning in manifest.warnings)
    manifest = t5prep.prepare(
        "text2text", source=str(tmp_path / "rows.csv"), out=tmp_path / "read", escape="\\", **options
    )
    assert manifest.rejected == {}

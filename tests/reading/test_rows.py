"""What of JSON and Parquet is text, and what is the reason of its row."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raised import raises

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.reading import blocks, formats
from t5prep.reading.rows import Row, as_text


def rows_of(path: Path, *columns: str) -> list[Row]:
    (file,) = sources.resolve(str(path)).files
    return [
        row for block in blocks.scan(file, formats.detect(file.name)) for row in blocks.read(block, columns=columns)
    ]


def test_binary_columns_are_text_where_they_are_utf_8(tmp_path: Path) -> None:
    table = pa.table({
        "q": pa.array(["é".encode(), b"\xff", None], pa.binary()),
        "a": pa.array([[b"x"], [b"y"], [b"\xff"]], pa.list_(pa.large_binary())),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    assert rows_of(tmp_path / "rows.parquet", "q") == [
        Row(1, {"q": "é"}), Row(2, None, "not utf-8: byte 0xff"), Row(3, {"q": None})
    ]  # fmt: skip
    assert [row.reason for row in rows_of(tmp_path / "rows.parquet", "q", "a")] == [
        "", "not utf-8: byte 0xff", "not utf-8: byte 0xff"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"text": ["x"], "start": [1]}, "not text: a holds an object with a list in it"),
        ([{"text": "x"}], "not text: a holds a list with an object in it"),
        ([1], ""),
        ([float("nan")], "not text: a holds a list with nan, which is not a number in it"),
        ([["x"]], "not text: a holds a list with a list in it"),
        ([None, "x"], ""),
        (True, ""),
        ([True], ""),
        (float("nan"), "not text: a holds nan, which is not a number"),
        (float("-inf"), "not text: a holds -inf, which is not a number"),
        (1.5, ""),
        (7, ""),
        (None, ""),
        (["x", "y"], ""),
        ({"en": "x", "ro": "y"}, ""),
    ],
)
def test_a_value_that_is_no_text_is_a_reason(tmp_path: Path, value: Any, reason: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"q": "x", "a": value}) + "\n")
    pq.write_table(pa.table({"q": ["x"], "a": [value]}), tmp_path / "rows.parquet")
    for name in ("rows.jsonl", "rows.parquet"):
        (row,) = rows_of(tmp_path / name, "q", "a")
        assert row.reason == reason
        (row,) = rows_of(tmp_path / name, "q")
        assert row == Row(1, {"q": "x"} if name.endswith("parquet") else row.record)


def test_dates_of_parquet_are_texts_and_maps_are_none(tmp_path: Path) -> None:
    table = pa.table({
        "day": [datetime.date(2026, 1, 2)],
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    (day,) = rows_of(tmp_path / "rows.parquet", "day")
    assert as_text((day.record or {})["day"]) == "2026-01-02"
    assert rows_of(tmp_path / "rows.parquet", "map")[0].reason == "not text: map holds a list with a list in it"


def test_a_time_of_parquet_that_python_has_not_is_a_reason(tmp_path: Path) -> None:
    """Arrow counts seconds to the year 292 billion, Python to the year 9999."""
    table = pa.table({"when": pa.array([10**15, 0], pa.timestamp("s")), "text": ["a", "b"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = rows_of(tmp_path / "rows.parquet", "when")
    assert rows[0].reason.startswith("not text: a value that Python cannot hold (")
    assert as_text((rows[1].record or {})["when"]) == "1970-01-01 00:00:00"
    assert [row.record for row in rows_of(tmp_path / "rows.parquet", "text")] == [{"text": "a"}, {"text": "b"}]


def test_a_name_that_stands_twice_in_an_object_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"q": "first", "q": "second"}\n{"q": "x"}\n')
    assert rows_of(tmp_path / "rows.jsonl", "q") == [
        Row(1, None, 'not JSON: the name "q" stands twice in an object'),
        Row(2, {"q": "x"}),
    ]


def test_a_column_that_is_there_twice_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,text,text\n1,a,b\n")
    (tmp_path / "rows.tsv").write_text("id\ttext\ttext\n1\ta\tb\n")
    pq.write_table(pa.Table.from_arrays([pa.array(["1"])] * 3, ["id", "text", "text"]), tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.tsv", "rows.parquet"):
        with raises(SourceError, "column.duplicate", str(name), "2", "text"):
            rows_of(tmp_path / name, "id", "text")
        assert [row.record["id"] for row in rows_of(tmp_path / name, "id") if row.record] == ["1"]

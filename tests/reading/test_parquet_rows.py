"""Test that the parts of a row group give its rows in whatever order they are read, and decode it once in its own order."""

import itertools
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raised import raises

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.reading import parquet_rows
from t5prep.sources import RawFile


def written(folder: Path, *, rows: int) -> RawFile:
    pq.write_table(pa.table({"n": range(rows), "text": ["a"] * rows}), folder / "rows.parquet", row_group_size=rows)
    (file,) = sources.resolve(str(folder / "rows.parquet")).files
    return file


def parts_of(file: RawFile) -> list[parquet_rows.Part]:
    with sources.open_random(file) as opened:
        return parquet_rows.parts(opened, name=file.name)[1]


def numbers_of(file: RawFile, part: parquet_rows.Part, column: str = "n") -> list[object]:
    batches = parquet_rows.batches(file, part, columns=[column])
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def test_parts_in_any_order_have_their_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "PART_BYTES", 30_000)
    file = written(tmp_path, rows=10_000)
    parts = parts_of(file)
    assert len(parts) > 2
    for permutation in itertools.permutations(parts[:3]):
        for part in permutation:
            assert numbers_of(file, part) == list(range(part.skip, part.skip + part.rows))
            assert numbers_of(file, part, "text") == ["a"] * part.rows


def test_parts_in_order_open_their_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "PART_BYTES", 30_000)
    file, opened = written(tmp_path, rows=10_000), list[str]()
    parts, open_random = parts_of(file), sources.open_random

    def watched(file: RawFile) -> BinaryIO:
        opened.append(file.name)
        return open_random(file)

    monkeypatch.setattr(sources, "open_random", watched)
    digests = set()
    for part in parts:
        digests.add(parquet_rows.digest(file, part.group, columns=["n"]))
        assert numbers_of(file, part) == list(range(part.skip, part.skip + part.rows))
    assert len(digests) == len(opened) == 1
    assert parquet_rows.digest(file, 0, columns=["text"]) not in digests


def test_a_reader_that_stops_leaves_nothing_half_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "PART_BYTES", 30_000)
    file = written(tmp_path, rows=10_000)
    first, second, *_ = parts_of(file)
    next(parquet_rows.batches(file, first, columns=["n"]))
    assert numbers_of(file, second) == list(range(second.skip, second.skip + second.rows))


def test_a_damaged_group_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, rows=10_000)
    (part,) = parts_of(file)
    path = tmp_path / "rows.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 2000 + content[2004:])
    (file,) = sources.resolve(str(path)).files
    with raises(SourceError, "file.damaged", "rows.parquet"):
        numbers_of(file, part)


def test_names_that_column_chunks_repeat_may_be_any_bytes(tmp_path: Path) -> None:
    """Arrow reads such a file: its columns are named by the schema."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "other": ["c", "d"]}), path)
    content = path.read_bytes()
    begin = content.rindex(b"text")
    assert begin > content.index(b"text")
    path.write_bytes(content[:begin] + b"\xff\xfext" + content[begin + 4 :])
    file = RawFile("rows.parquet", str(path), path.stat().st_size)
    (part,) = parts_of(file)
    assert numbers_of(file, part, "text") == ["a", "b"]
    digests = [parquet_rows.digest(file, 0, columns=[name]) for name in ("text", "other")]
    assert len({*digests, parquet_rows.digest(file, 0, columns=[])}) == 3

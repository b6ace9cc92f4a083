"""Blocks: however a file is cut, its rows are those that Python's own csv module reads."""

import codecs
import csv
import gzip
import io
import itertools
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raised import raises

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.options.files import FileOptions
from t5prep.reading import blocks, formats
from t5prep.reading.rows import Row

SIZES = [1, 7, 64, 4096]


def rows_of(path: Path, *, size: int, encoding: str = "utf-8", kind: str = "") -> list[Row]:
    (file,) = sources.resolve(str(path)).files
    form = formats.detect(file.name, FileOptions(kind, encoding))
    cut = list(blocks.scan(file, form, block_bytes=size))
    rows = [row for block in cut for row in blocks.read(block)]
    assert all(block.first_row + block.rows == next_block.first_row for block, next_block in itertools.pairwise(cut))
    return rows


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blocks_that_are_read_again_are_the_whole_file(tmp_path: Path, end: str) -> None:
    """Rows longer and shorter than what is read at a time, in blocks that hold no bytes of their own."""
    path, lengths = tmp_path / "rows.txt", [70_000, 3, 400_000, 5, 99_990, 250_000, 0, 12, 69_000, 130_000] * 3
    path.write_bytes("".join(f"{number}{'x' * length}{end}" for number, length in enumerate(lengths)).encode())
    (file,) = sources.resolve(str(path)).files
    cut = list(blocks.scan(file, formats.detect(file.name), block_bytes=100_000))
    assert any(block.data is None for block in cut)
    assert b"".join(blocks.content(block) for block in cut) == path.read_bytes()
    numbers = [row.number for block in cut for row in blocks.read(block)]
    assert numbers == list(range(1, len(lengths) + 1))


FIELD = st.text(st.sampled_from('ab," \n\té'), max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=8), st.sampled_from(SIZES), st.sampled_from(["\n", "\r\n"])
)
def test_any_csv_that_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list, size: int, end: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end)
    writer.writerow(("one", "two"))
    writer.writerows(rows)
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_bytes(text.getvalue().encode())
    parsed_rows = rows_of(path, size=size)
    assert [tuple((row.record or {}).values()) for row in parsed_rows] == rows
    assert [row.number for row in parsed_rows] == list(range(1, len(rows) + 1))


BROKEN = 'a,b\n1,"x\ny ""q"" z"\n2,5" disk\n3,"ok"\n\n4,"never closed\n5,five\n6,"six"\n7,"bad" tail\n8,eight,9\n9,nine'


@pytest.mark.parametrize("size", SIZES)
def test_broken_rows_cost_only_themselves(tmp_path: Path, size: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(BROKEN)
    rows = rows_of(path, size=size)
    good = {row.number: row.record["b"] for row in rows if row.record}
    assert good == {1: 'x\ny "q" z', 2: '5" disk', 3: "ok", 6: "five", 7: "six", 10: "nine"}
    assert {row.number: row.reason.partition(":")[0] for row in rows if row.reason} == {
        5: "broken quoting", 8: "broken quoting", 9: "wrong number of fields"
    }  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252", "latin-1"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes('a,b\n1,"café\nüber"\n2,x\n'.encode(encoding))
    declared_encoding = (
        "utf-8" if encoding in ("utf-8-sig", "utf-16", "utf-32") else encoding
    )  # a byte order mark says it itself
    assert [row.record for row in rows_of(path, size=5, encoding=declared_encoding)] == [
        {"a": "1", "b": "café\nüber"},
        {"a": "2", "b": "x"},
    ]


def test_a_field_of_many_megabytes(tmp_path: Path) -> None:
    huge = 'lorem ipsum, "dolor"\n' * 400_000
    path = tmp_path / "rows.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("a", "b"), ("1", huge), ("2", "small")])
    assert [row.record["b"] for row in rows_of(path, size=1 << 20) if row.record] == [huge, "small"]


def test_compressed_files_and_members_have_the_rows_of_the_plain_one(tmp_path: Path) -> None:
    text = "a,b\n" + "".join(f'{i},"line\n{i}"\n' for i in range(2000))
    (tmp_path / "plain.csv").write_text(text)
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(text.encode()))
    with zipfile.ZipFile(tmp_path / "packed.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside/rows.csv", text)
    plain = rows_of(tmp_path / "plain.csv", size=4096)
    assert len(plain) == 2000
    assert rows_of(tmp_path / "packed.csv.gz", size=4096) == plain
    assert rows_of(tmp_path / "packed.zip", size=4096) == plain


def test_json_lines_and_plain_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"q": "a\\u2028b"}\n\n{broken\n[1]\n' + json.dumps({"q": "é"}, ensure_ascii=False), encoding="utf-8"
    )
    rows = rows_of(path, size=3)
    assert [(row.number, row.record) for row in rows if row.record] == [(1, {"q": "a\u2028b"}), (5, {"q": "é"})]
    assert [(row.number, row.reason.partition(":")[0]) for row in rows if row.reason] == [
        (3, "not JSON"), (4, "not a JSON object")
    ]  # fmt: skip
    (tmp_path / "lines.txt").write_text("one\n\ntwo\u2028half\r\nthree")
    assert [row.record for row in rows_of(tmp_path / "lines.txt", size=2)] == [
        {"text": "one"}, None, {"text": "two\u2028half"}, {"text": "three"}
    ]  # fmt: skip


def test_text_that_is_none_is_the_reason_of_its_row(tmp_path: Path) -> None:
    """As JSON spells it: a NUL, half of a pair of surrogates; and brackets that no parser follows to their end."""
    path = tmp_path / "rows.jsonl"
    lines = [
        '{"q": "a\\u0000b"}',
        '{"q": ["ok", "\\uD83D"]}',
        "[" * 100_000,
        '{"q": {"a": "\\udc80"}}',
    ]
    path.write_text("\n".join([*lines, json.dumps({"q": "🙂 \\ud800"})]))
    rows = rows_of(path, size=1 << 20)
    assert [(row.number, row.reason.partition(":")[0]) for row in rows[:4]] == [
        (1, "NUL byte"), (2, "no text"), (3, "not JSON"), (4, "no text")
    ]  # fmt: skip
    assert rows[1].reason == "no text: half of a surrogate pair (U+D83D) in q"
    assert rows[4] == Row(5, {"q": "🙂 \\ud800"})  # a backslash that is text


def test_parquet_whose_strings_are_none_is_read_around_them(tmp_path: Path) -> None:
    """Arrow writes and reads strings of any bytes, and stumbles when it makes Python's of them."""
    values = pa.array([b"ok", b"a\xffb", b"c\0d", b"fine"], pa.binary())
    table = pa.table({"q": pa.Array.from_buffers(pa.string(), len(values), values.buffers())})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert rows_of(tmp_path / "rows.parquet", size=1) == [
        Row(1, {"q": "ok"}), Row(2, None, "not utf-8: byte 0xff"), Row(3, None, "NUL byte: in q"), Row(4, {"q": "fine"})
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis", "gb18030", "euc_jp", "big5"])
@pytest.mark.parametrize("prefix", ["", "x"])
def test_a_character_may_stand_across_the_end_of_what_is_sniffed(tmp_path: Path, encoding: str, prefix: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(f"a,b\n1,{prefix}{'中' * 99}\n2,x\n".encode(encoding))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "SNIFFED_BYTES", 21)
        rows = rows_of(path, size=5, encoding=encoding)
        assert [row.record["b"] for row in rows if row.record] == [f"{prefix}{'中' * 99}", "x"]
        patch.setattr(blocks, "SNIFFED_BYTES", 22)
        assert rows_of(path, size=5, encoding=encoding) == rows
        path.write_bytes(path.read_bytes()[:20] + b"\xff\n")
        with raises(SourceError, "file.wrong-encoding", str(encoding)):
            rows_of(path, size=5, encoding=encoding)


def test_parquet_by_row_groups(tmp_path: Path) -> None:
    table = pa.table({"q": [f"question {i}" for i in range(100)], "a": [["x", "y"]] * 100, "unused": [b"\0"] * 100})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=30)
    (file,) = sources.resolve(str(tmp_path / "rows.parquet")).files
    cut = list(blocks.scan(file, formats.detect(file.name)))
    assert [block.rows for block in cut] == [30, 30, 30, 10]
    rows = [row for block in cut for row in blocks.read(block, columns=("q", "a"))]
    assert rows[99] == Row(100, {"q": "question 99", "a": ["x", "y"]})


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_bytes(codecs.BOM_UTF8 + b"a\tb\n1\t2\n")
    assert [row.record for row in rows_of(path, size=10)] == [{"a": "1", "b": "2"}]


def test_utf_16_that_begins_with_a_nul_is_not_taken_for_utf_32(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes(codecs.BOM_UTF16_LE + "\0a\nword\n".encode("utf-16-le"))
    assert [row.record for row in rows_of(tmp_path / "rows.txt", size=64)] == [None, {"text": "word"}]
    (tmp_path / "rows.txt").write_bytes(codecs.BOM_UTF32_LE + "a\nword\n".encode("utf-32-le"))
    assert [row.record for row in rows_of(tmp_path / "rows.txt", size=64)] == [{"text": "a"}, {"text": "word"}]

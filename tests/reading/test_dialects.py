"""Tables as other programs write them, read as pandas, Python's csv module and the programs themselves read them."""

import csv
import io
import json
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raised import raises

from t5prep import sources
from t5prep.errors import SourceError, UsageError
from t5prep.options.files import FileOptions, parse_columns, parse_escape
from t5prep.reading import blocks, columns, text_rows
from t5prep.reading.rows import Record


def rows_of(
    path: Path, *, size: int = 1 << 20, kind: str = "", column_names: Sequence[str] = (), **file_options: str
) -> list[Record | str]:
    """The records and reasons of a file, read by rows and as columns; both are the same."""
    (file,) = sources.resolve(str(path)).files
    options = FileOptions(format=kind, columns=",".join(column_names), **file_options)
    scanned = list(blocks.scan_element(file, options, block_bytes=size))
    by_row = [row for block in scanned for row in blocks.read(block) if not row.blank]
    names = tuple(dict.fromkeys(name for row in by_row for name in row.record or ()))
    by_column = [row for block in scanned for row in columns.read(block, names=names).rows()]
    assert [(row.number, row.record or row.reason) for row in by_row] == [
        (row.number, row.record or row.reason) for row in by_column
    ]
    return [row.record or row.reason for row in by_row]


TEXTS = (
    "a b",
    'say "hi"',
    "tab\there",
    "two\nlines",
    'all\t"of"\nit',
    "semi;colon, comma",
    "",
    "é中",
    "back\\slash",
    " x ",
)


def table(seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [[str(n), draw.choice(TEXTS) + draw.choice(TEXTS), draw.choice("ab")] for n in range(draw.randrange(1, 30))]


NAMES = ("id", "text", "label")


def records(rows: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    return [dict(zip(NAMES, row, strict=True)) for row in rows]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_table_without_a_header_has_all_its_rows(tmp_path: Path, delimiter: str, quoting: int) -> None:
    for seed in range(6):
        rows, path = table(seed), tmp_path / "rows.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=delimiter, quoting=quoting).writerows(rows)  # type: ignore[arg-type]
        for size in (64, 1 << 20):
            assert rows_of(path, column_names=NAMES, delimiter=delimiter, size=size) == records(rows), (seed, size)


def test_what_divides_columns_without_names_is_found(tmp_path: Path) -> None:
    path = tmp_path / "emotions.csv"
    path.write_text("i felt this, and this, and that;joy\ni felt that;fear\n")
    assert rows_of(path, column_names=("text", "label")) == [
        {"text": "i felt this, and this, and that", "label": "joy"},
        {"text": "i felt that", "label": "fear"},
    ]
    path.write_text("i felt this, and that;joy\ni felt that;fear\n")
    with raises(SourceError, "file.ambiguous-delimiter", "2"):
        rows_of(path, column_names=("text", "label"))
    path.write_text("ham\tsee, you; there\nspam\tbuy\n")
    assert rows_of(path, column_names=("label", "text"), kind="tsv")[0] == {"label": "ham", "text": "see, you; there"}


def test_names_that_the_first_line_gives_already_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,b\n")
    with raises(SourceError, "file.redundant-columns", "text,label"):
        rows_of(tmp_path / "rows.csv", column_names=("text", "label"))
    assert (
        rows_of(tmp_path / "rows.csv", column_names=("a", "b", "c"))
        == ["wrong number of fields: 2 where there are 3 columns"] * 2
    )


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis", "utf-16"])
def test_an_escape_character_is_read_as_python_reads_it(tmp_path: Path, encoding: str) -> None:
    for seed in range(8):
        # The second byte of ソ in Shift JIS is a backslash.
        rows = [[text.replace("é", "ソ") for text in row] for row in table(seed)]
        file, quoting = io.StringIO(), csv.QUOTE_ALL if seed % 2 else csv.QUOTE_MINIMAL
        csv.writer(file, doublequote=False, escapechar="\\", quoting=quoting).writerows([NAMES, *rows])
        (path := tmp_path / "rows.csv").write_bytes(file.getvalue().encode(encoding))
        for size in (64, 1 << 20):
            assert rows_of(path, escape="\\", size=size, encoding=encoding) == records(rows), (seed, size)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_tsv_with_quotes_is_read_as_pandas_reads_it(tmp_path: Path, encoding: str, quoting: int) -> None:
    for seed in range(8):
        rows, file = table(seed), io.StringIO()
        csv.writer(file, delimiter="\t", quoting=quoting).writerows([NAMES, *rows])  # type: ignore[arg-type]
        (path := tmp_path / "rows.tsv").write_bytes(file.getvalue().encode(encoding))
        for size in (64, 1 << 20):
            assert rows_of(path, size=size, encoding=encoding) == records(rows), (seed, size)


@pytest.mark.parametrize("text", ['"Quoted" in part', 'open "quote', '"open', 'a "b" c', '5" disk'])
def test_a_tsv_without_quoting_keeps_its_quotes(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.tsv").write_text(f'text\tlabel\n"whole"\ta\n{text}\tb\n')
    assert rows_of(tmp_path / "rows.tsv") == [{"text": '"whole"', "label": "a"}, {"text": text, "label": "b"}]
    (tmp_path / "rows.tsv").write_text('text\tlabel\n"whole"\ta\n')
    assert rows_of(tmp_path / "rows.tsv") == [{"text": "whole", "label": "a"}]
    assert rows_of(tmp_path / "rows.tsv", kind="tsv") == [{"text": '"whole"', "label": "a"}]


@pytest.mark.parametrize("blank", ["\n", "\r\n\r\n", "\n  \n", "\n" * 200])
@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv"])
@pytest.mark.parametrize("size", [16, 1 << 20])
def test_blank_lines_before_the_names_are_skipped(tmp_path: Path, blank: str, name: str, size: int) -> None:
    divider = "," if name == "rows.csv" else "\t"
    (tmp_path / name).write_text(blank + f"text{divider}label\na{divider}b\n", newline="")
    assert rows_of(tmp_path / name, size=size) == [{"text": "a", "label": "b"}]
    (tmp_path / name).write_text(blank, newline="")
    with raises(SourceError, "file.missing-header", name):
        rows_of(tmp_path / name, size=size)


ROWS = [{"text": f"row {n}", "label": "ab"[n % 2], "n": n} for n in range(12)]


@pytest.mark.extra("pandas")
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("orient", ["columns", "index", "split", "list", "table", "records"])
def test_a_table_in_one_object_has_the_rows_that_pandas_wrote(tmp_path: Path, orient: str, indent: int | None) -> None:
    import pandas

    frame = pandas.DataFrame(ROWS)
    path = tmp_path / "rows.json"
    if orient == "list":
        path.write_text(json.dumps(frame.to_dict("list"), indent=indent))
    else:
        frame.to_json(path, orient=orient, indent=indent)
    rows = rows_of(path)
    assert [{name: row[name] for name in ROWS[0]} for row in rows if not isinstance(row, str)] == ROWS


def test_objects_in_several_lines_each_are_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text("\n".join(json.dumps(row, indent=2) for row in ROWS))
    assert rows_of(tmp_path / "rows.json") == ROWS


def test_one_row_of_lists_is_a_row_of_json_lines(tmp_path: Path) -> None:
    row = {"tokens": ["Ann", "lives"], "tags": ["B", "O"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    assert rows_of(tmp_path / "rows.jsonl") == [row]
    (tmp_path / "rows.json").write_text(json.dumps(row) + "\n" + json.dumps(row))
    assert rows_of(tmp_path / "rows.json") == [row, row]


CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
# NN B-NP O

# id = 7
Peter NNP B-NP B-PER


short NN
row NN B-NP O
"""


@pytest.mark.parametrize("size", [16, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_sentence_of_conll_is_a_row(tmp_path: Path, size: int, end: str) -> None:
    (tmp_path / "train.conll").write_text(CONLL.replace("\n", end), newline="")
    names = ("tokens", "column_2", "column_3", "tags")
    rows = rows_of(tmp_path / "train.conll", size=size)
    assert rows == [
        dict(
            zip(
                names,
                (["EU", "rejects", "#"], ["NNP", "VBZ", "NN"], ["B-NP", "B-VP", "B-NP"], ["B-ORG", "O", "O"]),
                strict=True,
            )
        ),
        dict(zip(names, (["Peter"], ["NNP"], ["B-NP"], ["B-PER"]), strict=True)),
        "wrong number of fields: 4 where there are 2 columns, at the word row",
    ]
    (tmp_path / "wnut.txt").write_text("New York\tB-LOC\nis\tO\n")
    assert rows_of(tmp_path / "wnut.txt", kind="conll", column_names=("words", "ner")) == [
        {"words": ["New York", "is"], "ner": ["B-LOC", "O"]}
    ]


def test_a_spreadsheet_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "rows.xlsx").write_bytes(b"PK\3\4")
    with raises(UsageError, "file.unsupported-format", "rows.xlsx"):
        rows_of(tmp_path / "rows.xlsx")


def test_a_long_window_of_zstandard_is_read(tmp_path: Path) -> None:
    import zstandard

    text = "text,label\n" + "".join(f"row {n % 700},a\n" for n in range(20_000))
    settings = zstandard.ZstdCompressionParameters.from_level(
        19, window_log=31, enable_ldm=True, write_content_size=False
    )
    packed = zstandard.ZstdCompressor(compression_params=settings)
    file = io.BytesIO()
    with packed.stream_writer(file, closefd=False) as writer:
        writer.write(text.encode())
    path = tmp_path / "rows.csv.zst"
    path.write_bytes(file.getvalue() + zstandard.compress(b"last,b\n"))  # a second frame
    rows = rows_of(path)
    assert (len(rows), rows[-1]) == (20_001, {"text": "last", "label": "b"})
    path.write_bytes(file.getvalue()[:-5])
    with raises(SourceError, "file.damaged", "rows.csv.zst"):
        rows_of(path)


def test_a_field_of_very_many_lines_costs_a_few_times_its_bytes() -> None:
    text = '"' + "a\n" * 40_000 + '","b"x\n'
    tracemalloc.start()
    try:
        assert sum(1 for _ in text_rows.split(text)) == 40_001
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * len(text)


def test_a_longer_field_is_refused_at_a_said_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LONGEST_QUOTED_BYTES", 1 << 20)
    (tmp_path / "rows.csv").write_text("text,label\n" + "a" * (3 << 20))
    with raises(SourceError, "row.oversized", "rows.csv"):
        rows_of(tmp_path / "rows.csv", size=1 << 16)


def test_a_column_of_parquet_whose_name_is_not_utf_8_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a"], "labXY": ["x"]}), path)
    path.write_bytes(path.read_bytes().replace(b"labXY", b"lab\xff\xfe"))
    with raises(SourceError, "column.invalid-name", "rows.parquet"):
        rows_of(path)


@pytest.mark.parametrize(
    ("parse", "text"), [(parse_escape, "ab"), (parse_escape, '"'), (parse_columns, "a,,b"), (parse_columns, "a,a")]
)
def test_what_names_no_dialect_is_a_sentence(parse: Any, text: str) -> None:
    with raises(UsageError, "option.malformed"):
        parse(text)


def test_options_of_files_are_checked_wherever_they_come_from() -> None:
    options = FileOptions(delimiter="tab", columns="text, label")
    assert (options.delimiter, options.names, FileOptions().names) == ("\t", ["text", "label"], [])
    for wrong in ({"delimiter": "ab"}, {"escape": "ab"}, {"columns": "a,,b"}):
        with raises(UsageError, "option.malformed"):
            FileOptions(**wrong)

"""Every row of a file is read, and ends where Python's csv module has it end, whatever the blocks."""

import random
from pathlib import Path

import pytest
from damage_kit import ENCODINGS, ENDS, SNIFFED_BYTES, Nasty, generate, write
from raised import raises

from t5prep import _native, sources
from t5prep.errors import BalanceError
from t5prep.options.files import FileOptions
from t5prep.reading import blocks, formats, text_rows
from t5prep.reading.rows import Row

SIZES = (1, 64, 100, 1 << 20)


def rows_of(path: Path, *, size: int, encoding: str = "utf-8", columns: tuple[str, ...] = ("id", "text")) -> list[Row]:
    (file,) = sources.resolve(str(path)).files
    form = formats.detect(file.name, FileOptions(encoding=encoding))
    return [row for block in blocks.scan(file, form, block_bytes=size) for row in blocks.read(block, columns=columns)]


def plain(row: Row) -> dict | str:
    return dict(row.record) if row.record is not None else "blank" if row.blank else "rejected"


@pytest.fixture(autouse=True)
def _a_short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SNIFFED_BYTES", SNIFFED_BYTES)


def check(nasty: Nasty, folder: Path, *, size: int) -> None:
    rows = rows_of(write(nasty, folder), size=size, encoding=nasty.encoding)
    assert [plain(row) for row in rows] == nasty.rows, nasty
    assert [row.number for row in rows] == list(range(1, len(nasty.rows) + 1)), nasty


def test_nasty_files_have_the_rows_of_an_independent_reader(tmp_path: Path) -> None:
    for seed in range(400):
        check(generate(seed, encoding=ENCODINGS[seed % len(ENCODINGS)]), tmp_path, size=SIZES[seed % 3])


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.txt", "rows.jsonl"])
def test_no_row_vanishes_whatever_ends_it(tmp_path: Path, name: str) -> None:
    mark = "\t" if name.endswith("tsv") else ","
    lines = [f"{i}{mark}text {i}" for i in range(1000)]
    if name.endswith("jsonl"):
        lines = [f'{{"text": "text {i}"}}' for i in range(1000)]
    header = [f"id{mark}text"] if name.endswith("sv") else []
    expected = [line if name.endswith("txt") else f"text {i}" for i, line in enumerate(lines)]
    for end in ENDS:
        (tmp_path / name).write_bytes("".join(line + end for line in [*header, *lines]).encode())
        for size in SIZES:
            rows = rows_of(tmp_path / name, size=max(size, 30))
            assert [row.record["text"] for row in rows if row.record] == expected, (end, size)
            assert not [row for row in rows if row.reason], (end, size)


@pytest.mark.parametrize("size", SIZES)
def test_a_bare_carriage_return_in_an_unquoted_field_ends_a_row(tmp_path: Path, size: int) -> None:
    """As for Python; rows at the end of each block went missing for it."""
    rows = "".join(f"row {i},yes\n" for i in range(20))
    (tmp_path / "rows.csv").write_bytes(f"text,label\na b,yes\rc d,no\re f,yes\n{rows}".encode())
    parsed_rows = rows_of(tmp_path / "rows.csv", size=size, columns=("text", "label"))
    assert [row.record["text"] for row in parsed_rows if row.record] == [
        "a b",
        "c d",
        "e f",
        *(f"row {i}" for i in range(20)),
    ]


def test_rows_that_were_counted_and_not_read_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("id,text\n1,a\n2,b\n")
    true_count = _native.row_ends
    monkeypatch.setattr(_native, "row_ends", lambda data: true_count(data) + 1)
    with raises(BalanceError, "pipeline.row-count-mismatch", "1", "2", "3", "rows.csv"):
        rows_of(tmp_path / "rows.csv", size=1 << 20)


def test_row_ends_are_counted_as_a_pattern_finds_them() -> None:
    chooser = random.Random(0)
    for _ in range(2000):
        data = bytes(chooser.choices(b"\r\na", k=chooser.randrange(12)))
        assert _native.row_ends(data) == len(list(text_rows.row_ends(data))), data


def test_ends_of_regular_rows_are_those_of_pythons_reader() -> None:
    chooser, regular = random.Random(0), 0
    for _ in range(10_000):
        parts = chooser.choices(
            ["a", ",", '"', "\n", "\r", "\r\n", '"a"', '""', ',"x,\ny",', '"a""b"'], k=chooser.randint(1, 9)
        )
        data = "".join(parts).encode()
        for final in (False, True):
            ends = _native.csv_rows(data, final)
            assert ends is None or ends == text_rows.ends(data[: ends[0]], final=True), (data, final)
            assert ends is None or not final or ends[0] == len(data)
            regular += ends is not None
    assert regular > 5000


def test_quotes_that_are_broken_in_every_row_are_read_in_one_pass() -> None:
    """Each such row copied the lines behind it: 120 kB took a second and a half, these 1.5 MB minutes."""
    assert text_rows.ends(b'"a\n' * 150_000, final=True) == (450_000, 150_000)

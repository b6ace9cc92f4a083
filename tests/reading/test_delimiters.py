"""CSV whose columns other characters than commas divide is the same rows: told by its first line, or by --delimiter."""

import csv
import io
import random
from pathlib import Path

import pytest
from fuzzed_texts import fuzzed
from raised import raises, refused
from small_corpora import by_id, prepared

from t5prep.errors import SourceError, UsageError
from t5prep.options import files
from t5prep.options.files import FileOptions
from t5prep.reading import blocks, columns, formats
from t5prep.reading.rows import Row
from t5prep.sources import RawFile

CHOSEN = {
    "task": "text2text",
    "options": {"inputs_column": "Frage; kurz", "targets_column": "Antwort", "id_column": "Nr"},
}


def written(path: Path, delimiter: str, *, first: str = "", quoting: int = csv.QUOTE_MINIMAL) -> Path:
    """A table of odd texts, divided by a character."""
    texts = [text.replace("\0", "") for text in fuzzed(random.Random(3), 400)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting)
    writer.writerow(["Nr", "Frage; kurz", "Antwort"])
    writer.writerows(
        [i, f'{question}; "{i}", ja', "eins;\nzwei" if i % 3 else "a,b"] for i, question in enumerate(texts)
    )
    path.write_text(first + text.getvalue(), encoding="utf-8", newline="")
    return path


def rows_of(path: Path, *, size: int, delimiter: str = "") -> list[Row]:
    file = RawFile(path.name, str(path), path.stat().st_size)
    cut = blocks.scan(file, formats.detect(path.name, FileOptions(delimiter=delimiter)), block_bytes=size)
    return [row for block in cut for row in blocks.read(block)]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("size", [64, 5000, 1 << 20])
@pytest.mark.parametrize("first", ["", "sep=;\r\n", '"sep=;"\n'])
def test_semicolons_are_read_as_commas_are(tmp_path: Path, size: int, quoting: int, first: str) -> None:
    expected = rows_of(written(tmp_path / "commas.csv", ",", quoting=quoting), size=size)
    assert len(expected) == 400
    assert rows_of(written(tmp_path / "rows.csv", ";", first=first, quoting=quoting), size=size) == expected
    for delimiter in "|\t":
        path = written(tmp_path / "others.csv", delimiter, quoting=quoting)
        assert rows_of(path, size=size, delimiter=delimiter) == expected
        assert rows_of(written(path, delimiter, first=f"sep={delimiter}\n", quoting=quoting), size=size) == expected


def test_arrow_reads_them_too(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", ";", first="sep=;\r\n", quoting=csv.QUOTE_ALL)
    (block,) = blocks.scan(RawFile(path.name, str(path), path.stat().st_size), formats.detect(path.name))
    assert block.regular
    assert len(columns.read(block, names=["Antwort"]).numbers) == 400


def test_a_table_of_excel_is_the_dataset_of_its_twin_with_commas(tmp_path: Path) -> None:
    for name, delimiter, first, delimiter_option in (
        ("commas", ",", "", ""),
        ("excel", ";", "sep=;\r\n", ""),
        ("bars", "|", "", "|"),
    ):
        (tmp_path / name).mkdir()
        path = written(tmp_path / name / "rows.csv", delimiter, first=first)
        prepared(path, tmp_path / f"{name} out", tokenizer="sample:", delimiter=delimiter_option, **CHOSEN)
    assert by_id(tmp_path / "excel out") == by_id(tmp_path / "commas out") == by_id(tmp_path / "bars out")


def test_a_bar_is_advised_and_a_delimiter_is_one_character(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("Nr|text|Antwort\n1|a|b\n")
    options = {"inputs_column": "text", "targets_column": "Nr"}
    with raises(SourceError, "column.missing", '--delimiter "|'):
        prepared(path, tmp_path / "out", tokenizer="sample:", task="text2text", options=options)
    for wrong in ("ab", "a", " ", "\n", "é", '"'):
        with raises(UsageError, "option.malformed", f'--delimiter "{wrong}"'):
            files.parse_delimiter(wrong)
    command = [
        "prepare",
        "sst2",
        "--source",
        str(path),
        "--tokenizer",
        "sample:",
        "--out",
        str(tmp_path / "out"),
        "--delimiter",
    ]
    refused("option.malformed", '--delimiter "no"', command=(*command, "no"))
    with raises(UsageError, "option.inapplicable", "rows.tsv", "tsv"):
        formats.detect("rows.tsv", FileOptions(delimiter=";"))

"""Commands that read texts read the columns that `prepare` reads, and say in one sentence where they find no text."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from raised import assert_error

from t5prep.cli import main

COMMANDS = {
    "check": ["tokenizer", "check", "sample:", "--source"],
    "train": ["tokenizer", "train", "--vocab-size", "40", "--out", "tokenizer", "--source"],
    "filter": ["filter", "words:least=1", "--try"],
}
ROWS = [{"pair": {"en": f"word {n}", "de": None}, "list": [f"a {n}", "b"], "n": n, "none": ""} for n in range(8)]


def run(name: str, source: Path, columns: Sequence[str], *extra_options: str) -> tuple[int, str]:
    """Return the exit code of a command on some columns of a source, and what it prints."""
    arguments = [
        *COMMANDS[name],
        str(source),
        *(word for column in columns for word in ("--column", column)),
        *extra_options,
    ]
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


@pytest.fixture(params=["jsonl", "parquet"])
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows with a column of objects and one of lists."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"rows.{request.param}"
    if request.param == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_no_text_is_one_sentence(name: str, source: Path) -> None:
    code, output = run(name, source, ["none"])
    assert code == 1
    reasons = () if name == "train" else ("empty text (8)",)
    assert_error(output.splitlines()[-1], "row.text-missing", " none ", " 8 ", str(source), "--column", *reasons)
    code, output = run(name, source, ["pair"])
    assert code == 1
    assert_error(output.splitlines()[-1], "row.text-missing", " pair ", str(source))
    assert name == "train" or "pair.en (8)" in output
    code, output = run(name, source, ["pair.fr"])
    assert code == 1
    assert_error(output, "column.missing", '"pair.fr"', '{"en": "word 0"')


@pytest.mark.parametrize(("columns", "texts"), [(["pair.en"], 8), (["list", "n"], 24), (["pair.de", "pair.en"], 8)])
def test_nested_columns_lists_and_numbers_are_texts(columns: list[str], texts: int, source: Path) -> None:
    assert json.loads(run("check", source, columns, "--json")[1])["texts"] == texts
    assert json.loads(run("filter", source, columns, "--json")[1])["texts"] == texts


def test_a_column_that_a_later_file_lacks_is_refused(tmp_path: Path) -> None:
    for name, column in (("a", "text"), ("b", "body")):
        (tmp_path / f"{name}.csv").write_text(f"{column},n\nsome words,1\n")
    code, output = run("filter", tmp_path, [])
    assert code == 1
    assert_error(output, "column.missing", "b.csv", '"text"', "body, n")


HEADERLESS = {
    "moods.txt": ("i felt the cloud over me;joy", '--format csv --delimiter ";" --columns text,label'),
    "moods.csv": ("i felt the cloud over me;joy", "--columns text,label"),
    "spam.tsv": ("ham\tyou won a small garden", "--columns text,label"),
    "spam.txt": ("ham\tyou won a small garden", "--format tsv --columns text,label"),
    "stars.csv": ("3,Good,fine", "--columns column_1,column_2,column_3"),
    "pipes.csv": ("4|a b c d", '--delimiter "|" --columns text,label'),
    "named.csv": ("question|label", '--delimiter "|"'),
    "prose.txt": ("One line of text, and another.\nNo commas here.", ""),
}


@pytest.mark.parametrize("name", HEADERLESS)
def test_what_reads_a_table_without_names_is_advised(name: str, tmp_path: Path) -> None:
    line, options = HEADERLESS[name]
    (tmp_path / name).write_text(f"{line}\n" * 3)
    arguments = [
        "prepare",
        "text2text",
        "--inputs-column",
        "text",
        "--targets-column",
        "label",
        "--tokenizer",
        "sample:",
    ]
    arguments += ["--source", str(tmp_path / name), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "--format document" not in result.output
    assert_error(result.stderr.splitlines()[-1], "column.missing", f" {options} [" if options else " text. [")
    assert options or "--" not in result.stderr
    if "column_1" not in options and "--columns" in options:
        words = [word.strip('"') for word in options.split(" ")]
        assert CliRunner().invoke(main, [*arguments, *words]).exit_code == 0

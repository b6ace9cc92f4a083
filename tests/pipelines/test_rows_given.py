"""Rows that are not in a file: a program's tables, and standard input."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import t5prep
from pipelines import prepare as preparing
from t5prep.cli import main
from t5prep.errors import UsageError
from t5prep.prepare import task_settings
from t5prep.tasks.registry import Definition

ROWS = [{"text": f"a text number {i}", "label": ["good", "bad"][i % 2]} for i in range(40)]
HOW: dict[str, Any] = {
    "tokenizer": "sample:", "inputs_column": "text", "targets_column": "label", "workers": 0, "splits": {"train": 1.0},
}  # fmt: skip


class _Frame:
    """A DataFrame as pandas has it, before it offered Arrow streams."""

    columns = ("text", "label")

    def to_dict(self, orient: str) -> list[dict[str, str]]:
        assert orient == "records"
        return ROWS


@pytest.mark.parametrize("rows", [ROWS, pa.Table.from_pylist(ROWS), _Frame()], ids=["dicts", "Arrow", "DataFrame"])
def test_tables_of_a_program_are_read_as_files_are(tmp_path: Path, rows: Any) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    read = t5prep.prepare("text2text", source=path, out=tmp_path / "file", **HOW)
    made = t5prep.prepare("text2text", source=rows, out=tmp_path / "rows", **HOW)
    assert made.splits == read.splits
    assert made.source.uri == "rows in memory"
    assert t5prep.prepare("text2text", source=rows, out=tmp_path / "rows", **HOW).digest == made.digest


def test_a_dataset_of_the_library_datasets_and_a_dataframe_of_pandas_are_tables(tmp_path: Path) -> None:
    datasets, pandas = (pytest.importorskip(name) for name in ("datasets", "pandas"))
    read = t5prep.prepare("text2text", source=ROWS, out=tmp_path / "dicts", **HOW)
    for name, rows in (("dataset", datasets.Dataset.from_list(ROWS)), ("frame", pandas.DataFrame(ROWS))):
        made = t5prep.prepare("text2text", source=rows, out=tmp_path / name, **HOW)
        assert (made.splits, made.source.uri) == (read.splits, "rows in memory"), name


@pytest.mark.parametrize("rows", [5, ROWS[0], ["mine.csv"], [1], 1.5, []], ids=str)
def test_anything_else_is_refused_in_a_sentence(tmp_path: Path, rows: Any) -> None:
    with pytest.raises(UsageError, match=r"^[A-Z][^\n]+\.$"):
        t5prep.prepare("text2text", source=rows, out=tmp_path / "out", **HOW)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_a_source(tmp_path: Path, packed: bool) -> None:
    given = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    command = ["prepare", "text2text", "--source", "-", "--inputs-column", "text", "--targets-column", "label"]
    command += ["--tokenizer", "sample:", "--out", str(tmp_path / "out")]
    data = gzip.compress(given) if packed else given
    done = CliRunner().invoke(main, [*command, "--format", "jsonl"], input=data)
    assert done.exit_code == 0, done.output
    assert t5prep.load(tmp_path / "out").rows[f"stdin{'.gz' if packed else ''}"].examples == 40
    refused = CliRunner().invoke(main, command, input=given)
    assert refused.exit_code == 1
    assert "--format csv|tsv|jsonl|parquet|text" in refused.output


def test_a_task_is_chosen_and_its_source_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str, function: Any) -> Any:
        return lambda *given, **named: (calls.append(name), function(*given, **named))[1]

    monkeypatch.setattr(Definition, "choose", counted("choose", Definition.choose))
    monkeypatch.setattr(task_settings, "with_splits", counted("documents", task_settings.with_splits))
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "LICENSE").write_text("free")
    preparing.prepare("text2text", source=folder, out=tmp_path / "out", **HOW)
    before_work = calls[: calls.index("documents") + 1]
    assert before_work == ["choose", "documents"]
    assert calls.count("documents") == 1

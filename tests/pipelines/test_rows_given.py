"""Rows that are not in a file: a program's tables, and standard input."""

import datetime
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from raised import assert_error, raises
from small_corpora import byt5, pairs

import t5prep
from pipelines import prepare
from t5prep.cli import main
from t5prep.errors import UsageError
from t5prep.preparation import task_settings
from t5prep.tasks.registry import Definition

ROWS = [{"text": f"a text number {i}", "label": ["good", "bad"][i % 2]} for i in range(40)]
PREPARE_OPTIONS: dict[str, Any] = {
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
    read = t5prep.prepare("text2text", source=path, out=tmp_path / "file", **PREPARE_OPTIONS)
    manifest = t5prep.prepare("text2text", source=rows, out=tmp_path / "rows", **PREPARE_OPTIONS)
    assert manifest.splits == read.splits
    assert manifest.source.uri == "rows in memory"
    assert t5prep.prepare("text2text", source=rows, out=tmp_path / "rows", **PREPARE_OPTIONS).digest == manifest.digest


@pytest.mark.extra("datasets", "pandas")
def test_a_dataset_of_the_library_datasets_and_a_dataframe_of_pandas_are_tables(tmp_path: Path) -> None:
    import datasets
    import pandas

    read = t5prep.prepare("text2text", source=ROWS, out=tmp_path / "dicts", **PREPARE_OPTIONS)
    for name, rows in (("dataset", datasets.Dataset.from_list(ROWS)), ("frame", pandas.DataFrame(ROWS))):
        manifest = t5prep.prepare("text2text", source=rows, out=tmp_path / name, **PREPARE_OPTIONS)
        assert (manifest.splits, manifest.source.uri) == (read.splits, "rows in memory"), name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"abc"), "abc"),
        (np.str_("abc"), "abc"),
        (np.array("abc"), "abc"),
        (np.float32(0.1), "0.1"),
        (np.float16(4.2), "4.2"),
        (np.int64(7), "7"),
        (np.bool_(True), "true"),
        (True, "true"),
        (np.datetime64("2024-01-31"), "2024-01-31"),
        (np.datetime64("2024-01-31T10:00", "ns"), "2024-01-31 10:00:00"),
        (datetime.date(2024, 1, 31), "2024-01-31"),
        (Decimal("1.50"), "1.50"),
        (np.array(["first", "second"], object), "first"),
        ((b"first", "second"), "first"),
        ({"b", "a"}, "a"),
        (np.array([4, 2]), "4"),
    ],
    ids=lambda value: type(value).__name__,  # a set and an object have another repr in each process
)
def test_a_value_of_a_program_is_the_text_that_a_file_has(tmp_path: Path, value: Any, text: str) -> None:
    rows = [{"text": f"text {n}", "label": value} for n in range(3)]
    t5prep.prepare(
        "text2text", source=rows, out=tmp_path / "out", **{**PREPARE_OPTIONS, "tokenizer": str(byt5(tmp_path / "byt5"))}
    )
    assert pairs(tmp_path / "out") == [(f"text {n}", text) for n in range(3)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff", "no text: half of a surrogate pair (U+DCFF) in label"),
        (float("nan"), "not text: label holds nan, which is not a number"),
        (np.float32("nan"), "not text: label holds nan, which is not a number"),
        (object(), "not text: label holds an object"),
        (np.array([[1, 2]]), "not text: label holds a list with a list in it"),
        (np.datetime64("2024-01-31T10:00:00.000000001"), "not text: label holds an object"),
        (np.timedelta64(5, "ns"), "not text: label holds an object"),
    ],
    ids=lambda value: type(value).__name__,  # a set and an object have another repr in each process
)
def test_a_value_of_a_program_that_is_no_text_is_a_reason(tmp_path: Path, value: Any, reason: str) -> None:
    rows = [{"text": "one", "label": "yes"}, {"text": "two", "label": value}]
    manifest = t5prep.prepare("text2text", source=rows, out=tmp_path / "out", **PREPARE_OPTIONS)
    (line,) = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert (line["reason"], manifest.splits["train"].examples) == (reason, 1)


def test_a_table_of_a_program_is_read_as_its_parquet_file(tmp_path: Path) -> None:
    table = pa.table({
        "text": pa.array([b"caf\xc3\xa9", b"river"], pa.binary()),
        "label": pa.array([4.2, 0.1], pa.float32()),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    options = {**PREPARE_OPTIONS, "tokenizer": str(byt5(tmp_path / "byt5"))}
    for name, source in (("table", table), ("file", tmp_path / "rows.parquet")):
        t5prep.prepare("text2text", source=source, out=tmp_path / name, **options)
        assert pairs(tmp_path / name) == [("café", "4.2"), ("river", "0.1")]


@pytest.mark.extra("datasets")
def test_names_of_classes_come_with_a_dataset_of_datasets(tmp_path: Path) -> None:
    import datasets

    names = datasets.ClassLabel(names=["no", "yes"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names, "all": datasets.List(names)})
    rows = [{"text": f"text {n}", "label": n % 2, "all": [0, 1]} for n in range(8)]
    dataset = datasets.Dataset.from_list(rows, features=features)
    manifest = t5prep.prepare("text2text", source=dataset, out=tmp_path / "out", **PREPARE_OPTIONS)
    assert (manifest.settings.options["label_map"], manifest.rejected) == ("0=no,1=yes", {})
    options = {key: value for key, value in PREPARE_OPTIONS.items() if key != "targets_column"}
    manifest = t5prep.prepare("text2text", source=dataset, out=tmp_path / "all", labels_column="all", **options)
    assert manifest.target.classes == ("no", "yes")


@pytest.mark.extra("pandas")
def test_a_column_of_several_types_is_a_sentence(tmp_path: Path) -> None:
    import pandas

    with raises(UsageError, "row.mixed-types"):
        t5prep.prepare(
            "text2text",
            source=pandas.DataFrame({"text": ["a", 1], "label": ["x", "y"]}),
            out=tmp_path,
            **PREPARE_OPTIONS,
        )


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (5, ("row.wrong-type", " int.")),
        (ROWS[0], ("row.wrong-type", "dict")),
        ([1], ("row.wrong-type", " int.")),
        (1.5, ("row.wrong-type", " float.")),
        ([], ("row.missing",)),
    ],
    ids=str,
)
def test_anything_else_is_refused_in_a_sentence(tmp_path: Path, rows: Any, error: tuple[str, ...]) -> None:
    with raises(UsageError, *error):
        t5prep.prepare("text2text", source=rows, out=tmp_path / "out", **PREPARE_OPTIONS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_a_source(tmp_path: Path, packed: bool) -> None:
    json_lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    command = ["prepare", "text2text", "--source", "-", "--inputs-column", "text", "--targets-column", "label"]
    command += ["--tokenizer", "sample:", "--out", str(tmp_path / "out")]
    data = gzip.compress(json_lines) if packed else json_lines
    result = CliRunner().invoke(main, [*command, "--format", "jsonl"], input=data)
    assert result.exit_code == 0, result.output
    assert t5prep.load(tmp_path / "out").rows[f"stdin{'.gz' if packed else ''}"].examples == 40
    refused = CliRunner().invoke(main, command, input=json_lines)
    assert refused.exit_code == 1
    assert_error(refused.stderr, "file.unknown-format", "stdin", "--format csv|tsv|jsonl|parquet|text")


def test_a_task_is_chosen_and_its_source_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count_calls(name: str, function: Any) -> Any:
        return lambda *arguments, **keywords: (calls.append(name), function(*arguments, **keywords))[1]

    monkeypatch.setattr(Definition, "choose", count_calls("choose", Definition.choose))
    monkeypatch.setattr(task_settings, "with_splits", count_calls("documents", task_settings.with_splits))
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "LICENSE").write_text("free")
    prepare.prepare("text2text", source=folder, out=tmp_path / "out", **PREPARE_OPTIONS)
    before_work = calls[: calls.index("documents") + 1]
    assert before_work == ["choose", "documents"]
    assert calls.count("documents") == 1

"""Columns inside of others are read from Parquet as from JSON lines, whatever columns are named beside them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raised import raises
from small_corpora import by_id, prepared, rejected

from t5prep.errors import SourceError

COMMON_OPTIONS: dict[str, Any] = {"task": "text2text", "tokenizer": "sample:", "target_length": 16}
SQUAD = {"inputs": "question: {question} context: {context}", "targets_column": "answers.text"}


def questions(count: int = 20) -> list[dict[str, Any]]:
    return [
        {
            "id": f"q{n}",
            "question": f"who is number {n}?",
            "context": f"number {n} is Ann{n % 7}",
            "answers": {"text": [f"Ann{n % 7}", "Ann"], "answer_start": [3, 3]},
            "meta": {"page": f"page {n // 4}"},
        }
        for n in range(count)
    ]


def both(rows: list[dict[str, Any]], folder: Path) -> tuple[Path, Path]:
    """The same rows as JSON lines and as Parquet."""
    lines, table = folder / "rows.jsonl", folder / "rows.parquet"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), table)
    return lines, table


@pytest.mark.parametrize("choices", [{}, {"group_column": "meta.page"}, {"group_column": "question"}])
@pytest.mark.parametrize(
    "columns",
    [
        SQUAD,
        {"inputs_column": "question", "targets_column": "answers.text"},
        {"inputs_column": "meta.page", "targets_column": "question"},
        {"inputs": "{meta.page} {question}", "targets_column": "context"},
    ],
)
def test_both_formats_have_the_same_examples(tmp_path: Path, columns: dict[str, str], choices: dict[str, str]) -> None:
    datasets = {}
    for path in both(questions(), tmp_path):
        out = tmp_path / f"out {path.suffix}"
        manifest = prepared(path, out, options={**columns, "id_column": "id"}, **COMMON_OPTIONS, **choices)
        assert manifest.rows[path.name].examples == 20
        datasets[path.suffix] = {name: split.examples for name, split in manifest.splits.items()}, by_id(out)
    assert datasets[".jsonl"] == datasets[".parquet"]


def test_groups_inside_of_a_column_stay_together(tmp_path: Path) -> None:
    for path in both(questions(80), tmp_path):
        out = tmp_path / f"out {path.suffix}"
        columns = {"inputs_column": "question", "targets_column": "context", "id_column": "id"}
        manifest = prepared(
            path, out, options=columns, group_column="meta.page", splits={"train": 0.5, "test": 0.5}, **COMMON_OPTIONS
        )
        assert len(manifest.splits) == 2
        assert all(split.examples % 4 == 0 for split in manifest.splits.values()), path


def test_another_answer_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    rows = questions()
    for name, answer in (("a", "one"), ("b", "two")):
        for row in rows:
            row["answers"]["text"] = [answer]
        (tmp_path / name).mkdir()
        _, table = both(rows, tmp_path / name)
        columns = {"inputs_column": "question", "targets_column": "answers.text"}
        prepared(table, tmp_path / name / "out", options=columns, cache=tmp_path / "cache", **COMMON_OPTIONS)
    ids = [
        {tuple(record["labels"]) for record in by_id(tmp_path / name / "out").values()} for name in ("a", "b")
    ]  # fmt: skip
    assert len(ids[0]) == len(ids[1]) == 1
    assert ids[0] != ids[1]


def test_a_name_that_leads_nowhere_is_a_sentence(tmp_path: Path) -> None:
    for path in both(questions(), tmp_path):
        columns = {"inputs_column": "question", "targets_column": "answers.txt"}
        with raises(SourceError, "column.missing", "answers", "answers.txt", '{"text": ["Ann0", "Ann"]'):
            prepared(path, tmp_path / "out", options=columns, **COMMON_OPTIONS)


def test_a_name_with_a_dot_of_its_own_is_a_column(tmp_path: Path) -> None:
    table = pa.table({"meta.text": [f"text {n}" for n in range(6)], "label": ["x", "y"] * 3, "meta": [1] * 6})
    for name, content in (("a", table), ("b", table.set_column(0, "meta.text", pa.array(["other text"] * 6)))):
        (tmp_path / name).mkdir()
        pq.write_table(content, tmp_path / name / "rows.parquet")
        columns = {"inputs_column": "meta.text", "targets_column": "label"}
        prepared(
            tmp_path / name / "rows.parquet",
            tmp_path / name / "out",
            options=columns,
            cache=tmp_path / "cache",
            **COMMON_OPTIONS,
        )
    assert rejected(tmp_path / "a" / "out") == []
    inputs = [{tuple(row["input_ids"]) for row in by_id(tmp_path / name / "out").values()} for name in ("a", "b")]
    assert (len(inputs[0]), len(inputs[1])) == (6, 1)

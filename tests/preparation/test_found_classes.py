"""The classes of free rows, found where nobody names them."""

import json
from pathlib import Path
from typing import Any

import pytest
from raised import raises
from small_corpora import prepared, records

from t5prep.errors import UsageError

PREPARE_OPTIONS: dict[str, Any] = {
    "task": "text2text",
    "options": {"inputs_column": "text", "targets_column": "label"},
    "tokenizer": "sample:",
    "target": "class",
    "splits": {"train": 1.0},
}


def _rows(path: Path, labels: list[Any]) -> Path:
    path.write_text("".join(json.dumps({"text": f"row {i}", "label": label}) + "\n" for i, label in enumerate(labels)))
    return path


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["sad", "glad", "sad", "so so"], ("glad", "sad", "so so")),
        ([10, 9, 0, 10], ("0", "9", "10")),
        (["b", None, "a", ""], ("a", "b")),
    ],
)
def test_classes_are_the_values_of_the_column(tmp_path: Path, labels: list[Any], classes: tuple[str, ...]) -> None:
    manifest = prepared(_rows(tmp_path / "rows.jsonl", labels), tmp_path / "out", **PREPARE_OPTIONS)
    assert tuple(manifest.task.classes) == classes
    expected_classes = {
        f"rows.jsonl:{i}": str(label) for i, label in enumerate(labels, start=1) if label not in (None, "")
    }
    record_classes = {
        record["id"][0].decode(): classes[record["labels"][0]]
        for split_records in records(tmp_path / "out").values()
        for record in split_records
    }
    assert record_classes == expected_classes


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([f"text {i}" for i in range(1200)], ("column.excess-classes", "label", "1,000")),
        (["a=b", "c"], ("column.invalid-class", "label", "a=b")),
        (["a", "b,c"], ("column.invalid-class", "label", "b,c")),
    ],
)
def test_values_that_are_no_classes_are_refused(tmp_path: Path, labels: list[Any], says: tuple[str, ...]) -> None:
    with raises(UsageError, *says):
        prepared(_rows(tmp_path / "rows.jsonl", labels), tmp_path / "out", **PREPARE_OPTIONS)

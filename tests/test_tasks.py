"""Every task against its golden rows: tests/data/<task>/rows.jsonl → examples.jsonl.

`make golden` writes examples.jsonl anew, to be read before it is committed.
"""

import json
import os
from pathlib import Path

import pytest

from t5prep import task
from t5prep.errors import Reject
from t5prep.types import EOS, Example, Part, Protected

DATA = Path(__file__).parent / "data"


def part(one: Part) -> object:
    if one is EOS:
        return {"eos": True}
    return {"protected": one.text} if isinstance(one, Protected) else one


def said(record: dict, prepared: task.Task, options: object) -> dict:
    """What a task says of a record, as JSON."""
    try:
        example: Example = prepared.to_example(record, options)
    except Reject as reject:
        return {"rejected": str(reject)}
    inputs = example.inputs if isinstance(example.inputs, str) else [part(one) for one in example.inputs]
    line = {"id": example.id, "inputs": inputs, "targets": example.targets}
    return line | ({"references": list(example.references)} if example.references else {})


@pytest.mark.parametrize("name", task.names())
def test_golden_rows(name):
    folder = DATA / name
    assert (folder / "rows.jsonl").exists(), f"a task needs golden rows: write some to tests/data/{name}/rows.jsonl"
    prepared = task.get(name)
    given = folder / "options.json"
    options = task.make_options(prepared, json.loads(given.read_text(encoding="utf-8")) if given.exists() else {})
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps(said(row, prepared, options), ensure_ascii=False) for row in rows]
    golden = folder / "examples.jsonl"
    if os.environ.get("T5PREP_GOLDEN"):
        golden.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    assert lines == golden.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", task.names())
def test_a_task_says_what_it_is(name):
    prepared = task.get(name)
    assert task.summary(name).endswith((".", "line"))
    assert prepared.input_length >= 4
    assert prepared.target_length >= 2

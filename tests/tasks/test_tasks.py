"""Every task against its golden rows: tests/data/<task>/rows.jsonl → examples.jsonl.

`make golden` writes examples.jsonl anew, to be read before it is committed.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5prep.errors import Reject
from t5prep.tasks import registry, task
from t5prep.tasks.example import EOS, Example, Part, Protected

DATA = Path(__file__).parents[1] / "data"


# Whatever stands in a row of JSON lines or Parquet.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


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


def options_of(name: str) -> object:
    """The options that a task's golden rows are for."""
    said = DATA / name / "options.json"
    return task.make_options(registry.get(name), json.loads(said.read_text(encoding="utf-8")) if said.exists() else {})


@pytest.mark.parametrize("name", registry.names())
def test_golden_rows(name):
    folder = DATA / name
    assert (folder / "rows.jsonl").exists(), f"a task needs golden rows: write some to tests/data/{name}/rows.jsonl"
    prepared = registry.get(name)
    options = options_of(name)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps(said(row, prepared, options), ensure_ascii=False) for row in rows]
    golden = folder / "examples.jsonl"
    if os.environ.get("T5PREP_GOLDEN"):
        golden.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    assert lines == golden.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", registry.names())
def test_a_task_says_what_it_is(name):
    prepared = registry.get(name)
    assert registry.summary(name).endswith((".", "line"))
    assert prepared.input_length >= 4
    assert prepared.target_length >= 2


@pytest.mark.parametrize("name", registry.names())
@settings(max_examples=100, deadline=None)
@given(drawn=st.data())
def test_no_row_stops_the_others(name, drawn):
    """A value of a type that nobody expects makes an example or a reason, and an id that is none is a reason."""
    prepared, options = registry.get(name), options_of(name)
    columns = task.column_names(prepared.columns(options))
    record = {column: drawn.draw(ANYTHING | st.text(max_size=5), column) for column in columns}
    try:
        made = prepared.to_example(record, options)
    except Reject:
        return
    texts = [made.inputs] if isinstance(made.inputs, str) else [part(one) for one in made.inputs if one is not EOS]
    assert all(isinstance(one, str | dict) for one in texts)
    assert all(isinstance(one, str) for one in (made.targets, *made.references))
    assert made.id is None or made.id not in ("", "None") or record[prepared.id_column(options)] == "None"

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


@pytest.mark.parametrize("name", [name for name in registry.names() if not registry.get(name).documents])
def test_a_row_without_its_target_has_the_same_input(name):
    """What a trained model is asked is what it was trained on."""
    prepared, options = registry.get(name), options_of(name)
    assert prepared.to_inputs is not None
    kept = {*task.column_names(task.input_columns(prepared, options)), prepared.id_column(options)}
    compared = 0
    for line in (DATA / name / "rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        try:
            whole = prepared.to_example(row, options)
        except Reject:
            continue
        asked = prepared.to_inputs({column: value for column, value in row.items() if column in kept}, options)
        assert (asked.id, asked.inputs, asked.targets) == (whole.id, whole.inputs, "")
        compared += 1
    assert compared


@pytest.mark.parametrize(
    ("name", "options", "columns"),
    [
        ("so_quality", {}, ("Title", "Body")),
        ("causal_qa", {}, ("question_processed", ("context_processed", ""))),
        ("translate_en_ro", {}, (("translation", "en", "source"),)),
        ("text2text", {"inputs": "{q} {c}", "targets_column": "a", "id_column": "i"}, ("q", "c")),
    ],
)
def test_columns_that_a_question_needs(name, options, columns):
    prepared = registry.get(name)
    assert task.input_columns(prepared, task.make_options(prepared, options)) == columns


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

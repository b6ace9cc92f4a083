"""Every task against its golden rows: tests/data/<task>/rows.jsonl → examples.jsonl.

`make golden` writes examples.jsonl anew, to be read before it is committed.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep.errors import Reject
from t5prep.reading.rows import names_of
from t5prep.tasks import registry
from t5prep.tasks.example import EOS, Example, Part, Protected, problem
from t5prep.tasks.task import ChosenTask

DATA = Path(__file__).parents[1] / "data"


# Whatever stands in a row of JSON lines or Parquet.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def part(input_part: Part) -> object:
    if input_part is EOS:
        return {"eos": True}
    return {"protected": input_part.text} if isinstance(input_part, Protected) else input_part


def describe_example(record: dict, chosen: ChosenTask) -> dict:
    """What a task says of a record, as JSON."""
    try:
        example: Example = chosen.to_example(record)
    except Reject as reject:
        return {"rejected": str(reject)}
    inputs = example.inputs if isinstance(example.inputs, str) else [part(input_part) for input_part in example.inputs]
    line = {"id": example.id, "inputs": inputs, "targets": example.targets}
    return line | ({"references": list(example.references)} if example.references else {})


def golden_task(name: str) -> ChosenTask:
    """Return a task with the options that its golden rows are for."""
    path = DATA / name / "options.json"
    return registry.get(name).choose(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})


@pytest.mark.parametrize("name", registry.names())
def test_golden_rows(name):
    folder = DATA / name
    assert (folder / "rows.jsonl").exists(), f"a task needs golden rows: write some to tests/data/{name}/rows.jsonl"
    chosen = golden_task(name)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps(describe_example(row, chosen), ensure_ascii=False) for row in rows]
    golden = folder / "examples.jsonl"
    if os.environ.get("T5PREP_GOLDEN"):
        golden.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    assert lines == golden.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", [name for name in registry.names() if not registry.get(name).task.spans])
def test_a_row_without_its_target_has_the_same_input(name):
    """What a trained model is asked is what it was trained on."""
    chosen = golden_task(name)
    assert chosen.task.to_inputs is not None
    input_columns = {*names_of(chosen.columns.inputs), chosen.columns.id_name}
    compared = 0
    for line in (DATA / name / "rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        try:
            example = chosen.to_example(row)
        except Reject:
            continue
        input_row = {column: value for column, value in row.items() if column in input_columns}
        input_example = chosen.task.to_inputs(input_row, chosen.options)
        assert (input_example.id, input_example.inputs, input_example.targets) == (example.id, example.inputs, "")
        compared += 1
    assert compared


@pytest.mark.parametrize(
    ("name", "options", "inputs"),
    [
        ("so_quality", {}, ("Title", "Body")),
        ("causal_qa", {}, ("question_processed", ("context_processed", ""))),
        ("translate_en_ro", {}, (("translation", "en", "source"),)),
        ("text2text", {"inputs": "{q} {c}", "targets_column": "a", "id_column": "i"}, ("q", "c")),
    ],
)
def test_columns_that_a_question_needs(name, options, inputs):
    assert registry.get(name).choose(options).columns.inputs == inputs


@pytest.mark.parametrize("name", registry.names())
def test_a_task_says_what_it_is(name):
    definition = registry.get(name)
    assert definition.summary.endswith((".", "line"))
    assert definition.task.input_length >= 4
    assert definition.task.target_length >= 2


@pytest.mark.parametrize("name", registry.names())
@given(data=st.data())
def test_no_row_stops_the_others(name, data):
    """A value of a type that nobody expects makes an example or a reason, and an id that is none is a reason."""
    chosen = golden_task(name)
    record = {column: data.draw(ANYTHING | st.text(max_size=5), column) for column in chosen.columns.names}
    try:
        example = chosen.to_example(record)
    except Reject:
        return
    assert problem(example) == ""
    assert example.id is None or example.id not in ("", "None") or record[chosen.columns.id_name] == "None"


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"references": None}, "the references of its Example are of type NoneType"),
        ({"references": "yes"}, "the references of its Example are of type str"),
        ({"references": (1,)}, "the references of its Example hold a value of type int"),
        ({"split": 3}, "the split of its Example is 3"),
        ({"split": "../train"}, "the split of its Example is '../train', not a name"),
        ({"split": ""}, ""),
        ({"split": "validation_2", "references": ["a", "b"]}, ""),
    ],
)
def test_an_example_whose_references_or_split_are_none_is_a_mistake_of_its_task(fields: dict, wrong: str) -> None:
    """A split is part of the names of files, and may come from a column."""
    assert problem(Example(None, "a", "b", **fields)).startswith(wrong)
    assert bool(problem(Example(None, "a", "b", **fields))) == bool(wrong)

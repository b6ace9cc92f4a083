"""Labels as tables have them: truth values, numbers with a fraction, spaces, lists of class numbers; keys that are left out."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoders import bert
from raised import raises
from small_corpora import by_id, prepared, rejected

from t5prep.dataset.manifest import Manifest
from t5prep.errors import SourceError
from t5prep.sources import sample
from t5prep.tokens.tokenizer import Tokenizer

WORDS = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")
COMMON_OPTIONS: dict[str, Any] = {"task": "text2text", "splits": {"train": 1.0}}
LABELS = {"inputs_column": "text", "targets_column": "label"}


def written(folder: Path, labels: list[Any], *, name: str) -> Path:
    """Rows with these labels, in the format of a name."""
    rows = [{"text": f"text number {n}", "label": label} for n, label in enumerate(labels)]
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text("text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in rows))
    return path


def count_labels(manifest: Manifest) -> dict[str, int]:
    return dict(sum((Counter(split.labels) for split in manifest.splits.values()), Counter()))


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
@pytest.mark.parametrize(
    ("label_map", "labels"),
    [
        ("0=low,1=high", [0.0, 1.0, 1.0]),
        ("0=low,1=high", [False, True, True]),
        ("false=low,true=high", [False, True, True]),
        ("False=low,True=high", ["FALSE", "true", "True"]),
        ("0=low,1=high", [" 0", "1 ", "1.0"]),
        ("0.0=low,1.0=high", [0, 1, 1]),
        ("a=low,b=high", [" a", "b ", "b"]),
        ("01=low,1=high", ["01", "1", "1.0"]),
    ],
)
def test_a_label_is_known_however_it_is_written(tmp_path: Path, name: str, label_map: str, labels: list[Any]) -> None:
    source = written(tmp_path, labels * 5, name=name)
    manifest = prepared(
        source, tmp_path / "out", options={**LABELS, "label_map": label_map}, tokenizer="sample:", **COMMON_OPTIONS
    )
    assert (manifest.rejected, count_labels(manifest)) == ({}, {"low": 5, "high": 10})


def test_what_is_no_label_is_rejected_with_the_labels(tmp_path: Path) -> None:
    source = written(tmp_path, ["0", "00", "0.5", "-1", "none", "0"], name="rows.csv")
    manifest = prepared(
        source, tmp_path / "out", options={**LABELS, "label_map": "0=low"}, tokenizer="sample:", **COMMON_OPTIONS
    )
    assert manifest.rejected == {"unknown label": 4}
    assert rejected(tmp_path / "out")[0]["reason"] == "unknown label: '00' is not one of 0"


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["0.0", "1.0", "0", "10.0", "2.0"], ["0", "1", "2", "10"]),
        ([" a", "a", "b "], ["a", "b"]),
        (["True", "False", "True"], ["False", "True"]),
    ],
)
def test_classes_that_are_found_have_one_name_each(tmp_path: Path, labels: list[str], names: list[str]) -> None:
    source = written(tmp_path, labels, name="rows.csv")
    manifest = prepared(
        source, tmp_path / "out", options=LABELS, tokenizer=bert(tmp_path / "bert"), input_length=16, **COMMON_OPTIONS
    )
    assert (list(manifest.target.classes), manifest.rejected) == (names, {})


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_columns_of_truth_values_are_labels(tmp_path: Path, name: str) -> None:
    rows = [{"text": f"text {n}", "toxic": n % 2 == 0, "threat": n % 3 == 0} for n in range(6)]
    if name == "rows.jsonl":
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    options = {"inputs_column": "text", "labels_column": "toxic,threat"}
    manifest = prepared(tmp_path / name, tmp_path / "out", options=options, tokenizer="sample:", **COMMON_OPTIONS)
    assert (manifest.rejected, manifest.splits["train"].examples) == ({}, 6)
    assert by_id(tmp_path / "out")[f"{name}:1"]["labels"] == [1, 1]


def describe_classes(kind: str, *names: str) -> Any:
    """What `datasets` of different years says of a list of classes."""
    inner = {"names": list(names), "_type": "ClassLabel"}
    return [inner] if kind == "[]" else {"feature": inner, "_type": kind}


@pytest.mark.parametrize("kind", ["Sequence", "List", "LargeList", "[]"])
def test_lists_of_class_numbers_have_their_names(tmp_path: Path, kind: str) -> None:
    table = pa.table({
        "text": ["Ann Smith lives", "in Oslo"],
        "tokens": [["Ann", "Smith", "lives"], ["in", "Oslo"]],
        "ner_tags": pa.array([[1, 2, 0], [0, 1]], pa.list_(pa.int64())),
        "topics": pa.array([[0, 1], []], pa.list_(pa.int32())),
    })  # fmt: skip
    features = {
        "ner_tags": describe_classes(kind, "O", "B-PER", "I-PER"),
        "topics": describe_classes(kind, "sport", "politics"),
    }
    facts = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(facts), tmp_path / "rows.parquet")
    prepare_options = {"tokenizer": bert(tmp_path / "bert"), "input_length": 16, **COMMON_OPTIONS}
    options = {"inputs_column": "tokens", "tags_column": "ner_tags"}
    manifest = prepared(tmp_path / "rows.parquet", tmp_path / "tags", options=options, **prepare_options)
    assert (manifest.target.classes, manifest.rejected) == (("O", "B-PER", "I-PER"), {})
    first = by_id(tmp_path / "tags")["rows.parquet:1"]["labels"]
    assert [label for label in first if label >= 0][:2] == [1, 2]
    options = {"inputs_column": "text", "labels_column": "topics"}
    manifest = prepared(tmp_path / "rows.parquet", tmp_path / "topics", options=options, **prepare_options)
    assert manifest.target.classes == ("sport", "politics")
    assert [row["labels"] for _, row in sorted(by_id(tmp_path / "topics").items())] == [[1, 1], [0, 0]]


def test_lists_of_numbers_without_names_are_their_own_names(tmp_path: Path) -> None:
    rows = [{"tokens": ["Ann", "lives"], "tags": [1, 0]}, {"tokens": ["Oslo"], "tags": [2]}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"inputs_column": "tokens", "tags_column": "tags"}
    prepare_options = {"tokenizer": bert(tmp_path / "bert"), "input_length": 16, **COMMON_OPTIONS}
    manifest = prepared(tmp_path / "rows.jsonl", tmp_path / "out", options=options, **prepare_options)
    assert (manifest.target.classes, manifest.rejected) == (("0", "1", "2"), {})
    options["label_map"] = "0=O,1=PER,2=LOC"
    assert prepared(
        tmp_path / "rows.jsonl", tmp_path / "mapped", options=options, **prepare_options
    ).target.classes == (
        "O",
        "PER",
        "LOC",
    )


@pytest.mark.parametrize("type", [pa.float32(), pa.float16(), pa.float64()])
def test_numbers_have_the_digits_that_were_written(tmp_path: Path, type: pa.DataType) -> None:
    scores = pa.array([4.2, 0.1, 3.0], pa.float64()).cast(type)
    table = pa.table({"text": ["a", "b", "c"], "score": scores, "inside": [{"score": score} for score in scores]})
    pq.write_table(table, tmp_path / "rows.parquet")
    for column in ("score", "inside.score")[: 1 if type == pa.float16() else 2]:
        options = {"inputs_column": "text", "targets_column": column}
        prepared(tmp_path / "rows.parquet", tmp_path / column, options=options, tokenizer="sample:", **COMMON_OPTIONS)
        targets = [targets_of(row) for _, row in sorted(by_id(tmp_path / column).items())]
        assert targets == ["4.2", "0.1", "3.0"], column


def targets_of(record: dict[str, list]) -> str:
    return WORDS.decode([label for label in record["labels"] if label > 1])


OPTIONAL = {"inputs": "question: {q} context: {c}", "targets_column": "a"}


def test_a_key_that_is_left_out_is_null(tmp_path: Path) -> None:
    rows = [
        {"q": f"question {n}", "c": "some context" if n % 3 else None, "a": "yes" if n % 4 else None} for n in range(24)
    ]
    short = [{name: value for name, value in row.items() if value is not None} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "null.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "short.jsonl").write_text("".join(json.dumps(row) + "\n" for row in short))
    (tmp_path / "array.json").write_text(json.dumps(short))
    for empty, rejected_count in (("", 6), ("none", 0)):
        inputs = set[tuple]()
        for path in [tmp_path / name for name in ("rows.parquet", "null.jsonl", "short.jsonl", "array.json")]:
            out = tmp_path / f"out {path.name} {empty}"
            manifest = prepared(
                path, out, options={**OPTIONAL, "empty_target": empty}, tokenizer="sample:", **COMMON_OPTIONS
            )
            assert manifest.rejected == ({"empty target": rejected_count} if rejected_count else {}), path
            pairs = ((tuple(row["input_ids"]), tuple(row["labels"])) for row in by_id(out).values())
            inputs.add(tuple(sorted(pairs)))
        assert len(inputs) == 1


def test_the_first_rows_may_lack_a_column(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", **({"label": "a"} if n > 100 else {})} for n in range(200)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = prepared(
        tmp_path / "rows.jsonl", tmp_path / "out", options=LABELS, tokenizer="sample:", **COMMON_OPTIONS
    )
    assert (manifest.splits["train"].examples, manifest.rejected) == (99, {"empty target": 101})
    options = {**LABELS, "targets_column": "lable"}
    with raises(SourceError, "column.missing"):
        prepared(tmp_path / "rows.jsonl", tmp_path / "out", options=options, tokenizer="sample:", **COMMON_OPTIONS)


def test_a_reason_says_one_of_its_values(tmp_path: Path) -> None:
    source = written(tmp_path, ["x", "y", "y"], name="rows.csv")
    options = {**LABELS, "label_map": "0=low,1=high"}
    with raises(SourceError, "row.example-missing"):
        prepared(source, tmp_path / "out", options=options, tokenizer="sample:", **COMMON_OPTIONS)
    source = written(tmp_path, ["0", "1", *"abcdefgh"], name="rows.csv")
    manifest = prepared(source, tmp_path / "some", options=options, tokenizer="sample:", **COMMON_OPTIONS)
    assert "most often for: unknown label (8): 'a' is not one of 0, 1. All are in" in manifest.warnings[0]


def test_ids_that_begin_anew_are_said(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for split, count in (("train", 30), ("test", 20)):
        lines = [f"{n},{split} text {n},a\n" for n in range(count)]
        (tmp_path / "source" / f"{split}.csv").write_text("".join(["idx,text,label\n", *lines]))
    prepare_options = {"task": "text2text", "tokenizer": "sample:"}
    manifest = prepared(
        tmp_path / "source", tmp_path / "out", options={**LABELS, "id_column": "idx"}, **prepare_options
    )
    assert manifest.rejected == {"duplicate id": 20}
    assert any("ids in idx begin anew in each file, leave --id-column out" in warning for warning in manifest.warnings)


def test_why_there_are_no_classes_is_said(tmp_path: Path) -> None:
    rows = [{"text": ["a", "list"], "label": "a"}, {"text": ["another"], "label": "b"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with raises(SourceError, "row.example-missing", "label"):
        prepared(
            tmp_path / "rows.jsonl",
            tmp_path / "out",
            options=LABELS,
            tokenizer=bert(tmp_path / "bert"),
            **COMMON_OPTIONS,
        )

"""What a protected template keeps, and what a map makes of labels."""

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raised import raises
from small_corpora import by_id, prepared, rejected, write_csv

import t5prep
from t5prep.errors import Reject, SourceError, UsageError
from t5prep.sources import sample
from t5prep.tasks import registry
from t5prep.tasks.example import Protected
from t5prep.tokens.tokenizer import Tokenizer
from tests.featurized_examples import ExampleFeatures, featurized, featurizer

WORDS = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")
COMMON = ["why", "does", "this", "error", "come", "back", "in", "a", "loop?"]
TEMPLATE = "question: {q} context: {c}"


def cut(record: dict[str, str], *, length: int, policy: str, protect: list[str]) -> str:
    """The input of a record, cut and decoded."""
    chosen = registry.get("text2text").choose({"inputs": TEMPLATE, "targets_column": "a", "protect": protect})
    featurize = featurizer(WORDS, length=length, policy=policy)
    (features,) = featurized(featurize, [chosen.to_example({"a": "yes", **record})])
    assert isinstance(features, ExampleFeatures), features
    assert len(features.inputs) <= length
    return WORDS.decode(features.inputs)


@pytest.mark.parametrize("policy", ["head_tail", "head", "tail"])
@pytest.mark.parametrize("protect", ["q", "c"])
def test_the_words_of_a_template_survive_any_cut(policy: str, protect: str) -> None:
    chooser = random.Random(1)
    for length in (64, 80, 128):
        for _ in range(8):
            sizes = {name: chooser.randrange(1, 10) if name == protect else chooser.randrange(300) for name in "qc"}
            record = {name: " ".join(chooser.choices(COMMON, k=size)) for name, size in sizes.items()}
            input_text = cut(record, length=length, policy=policy, protect=[protect])
            assert input_text.startswith("question:")
            assert input_text.count("question:") == input_text.count(" context:") == 1
            label = "question" if protect == "q" else "context"
            assert f"{label}: {record[protect]} " in input_text


def test_without_protect_the_template_is_text_like_any_other() -> None:
    record = {"q": "why", "c": "does this error " * 100}
    assert not cut(record, length=32, policy="tail", protect=[]).startswith("question")
    chosen = registry.get("text2text").choose({"inputs": TEMPLATE, "targets_column": "a"})
    assert not any(isinstance(part, Protected) for part in chosen.to_example({"a": "yes", **record}).inputs)


def test_what_fits_is_the_same_protected_or_not() -> None:
    record = {"q": "why does (this)", "c": "come back"}
    expected = cut(record, length=64, policy="head", protect=[])
    for name in "qc":
        assert cut(record, length=64, policy="head", protect=[name]) == expected


@pytest.mark.parametrize("label", ["1", 1])
def test_numbers_become_words_by_a_map(label: object) -> None:
    chosen = registry.get("text2text").choose(
        {"inputs_column": "q", "targets_column": "a", "label_map": "0=negative, 1=positive"}
    )
    assert chosen.to_example({"q": "good", "a": label}).targets == "positive"
    assert list(chosen.classes) == ["negative", "positive"]
    with pytest.raises(Reject, match="unknown label: '2' is not one of 0, 1"):
        chosen.to_example({"q": "good", "a": "2"})


def test_labels_may_be_columns_of_zeros_and_ones(tmp_path: Path) -> None:
    """As Jigsaw's comments have them: one that is clean, one with two labels, and what is no label."""
    source = tmp_path / "comments.csv"
    source.write_text("id,text,toxic,insult\na,good day,0,0\nb,bad day,1,1.0\nc,odd,true,0\nd,x,2,0\n")
    options = {"inputs_column": "text", "labels_column": "toxic, insult", "id_column": "id"}
    prepare_options: dict[str, Any] = {"task": "text2text", "tokenizer": "sample:", "splits": {"train": 1.0}}
    manifest = prepared(source, tmp_path / "out", options=options, **prepare_options)
    assert (manifest.settings.target, manifest.target.classes) == ("labels", ("toxic", "insult"))
    assert {id: record["labels"] for id, record in by_id(tmp_path / "out").items()} == {
        "a": [0, 0],
        "b": [1, 1],
        "c": [1, 0],
    }
    assert [line["reason"] for line in rejected(tmp_path / "out")] == ["neither 0 nor 1: '2' in toxic"]
    mapped = {**options, "label_map": "toxic=rude,insult=mean"}
    assert prepared(source, tmp_path / "mapped", options=mapped, **prepare_options).target.classes == ("rude", "mean")
    with raises(UsageError, "option.malformed"):
        prepared(source, tmp_path / "twice", options={**options, "labels_column": "toxic,toxic"}, **prepare_options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"label_map": "0=a,1"}, ("option.malformed",)),
        ({"label_map": "0=a,0=b"}, ("option.malformed",)),
        ({"label_map": "0=a", "targets_column": "", "targets": "{a}"}, ("option.missing-prerequisite",)),
    ],
)
def test_what_is_no_map_of_labels_is_a_sentence(options: dict[str, str], says: tuple[str, ...]) -> None:
    with raises(UsageError, *says):
        list(registry.get("text2text").choose({"inputs_column": "q", "targets_column": "a", **options}).columns.all)


def test_rows_whose_label_has_no_word_are_rejected_and_counted(tmp_path: Path) -> None:
    rows = [{"q": f"row number {i}", "a": str(i % 3)} for i in range(30)]
    manifest = prepared(
        write_csv(tmp_path / "rows.csv", rows),
        tmp_path / "out",
        tokenizer="sample:",
        task="text2text",
        options={"inputs_column": "q", "targets_column": "a", "label_map": "0=low,1=high"},
    )
    assert manifest.rejected == {"unknown label": 10}
    assert sum((Counter(split.labels) for split in manifest.splits.values()), Counter()) == {"low": 10, "high": 10}


def test_rows_without_a_target_can_have_one(tmp_path):
    """As the unanswerable questions of SQuAD 2.0, half of which were lost; by columns and by rows."""
    lines = [{"q": f"question {n}", "a": ["x"] if n % 2 else []} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "rows.csv").write_text("q,a\n" + "".join(f"question {n},{'x' * (n % 2)}\n" for n in range(20)))
    columns = {"inputs_column": "q", "targets_column": "a"}
    for name in ("rows.jsonl", "rows.csv"):
        prepare_options = {"tokenizer": "sample:", "task": "text2text"}
        manifest = prepared(tmp_path / name, tmp_path / f"without {name}", options=columns, **prepare_options)
        assert (manifest.rows[name].examples, manifest.rejected) == (10, {"empty target": 10})
        assert '--empty-target "no answer" (10)' in manifest.warnings[0]
        options = columns | {"empty_target": "no answer"}
        manifest = prepared(tmp_path / name, tmp_path / f"with {name}", options=options, **prepare_options)
        assert (manifest.rows[name].examples, manifest.rejected) == (20, {})


def test_a_split_that_stays_empty_is_said(tmp_path):
    (tmp_path / "rows.csv").write_text("q,a\n" + "".join(f"question {n},{n}\n" for n in range(3)))
    columns = {"inputs_column": "q", "targets_column": "a"}
    prepare_options = {"tokenizer": "sample:", "task": "text2text", "options": columns}
    manifest = prepared(
        tmp_path / "rows.csv", tmp_path / "out", splits={"train": 0.999, "validation": 0.001}, **prepare_options
    )
    assert any("no row fell into the split validation" in warning for warning in manifest.warnings)


def test_two_files_of_lines_make_pairs_with_a_prefix_of_ones_own(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.en").write_text("".join(f"house {n}\n" for n in range(20)))
    (source / "train.de.gz").write_bytes(gzip.compress("".join(f"Haus {n}\n" for n in range(20)).encode()))
    options = {"line_pairs": ".en,.de", "inputs": "to German: {source}", "targets_column": "target"}
    manifest = prepared(source, tmp_path / "out", task="text2text", tokenizer="sample:", options=options)
    assert manifest.rows["train.en"].examples == 20
    first = by_id(tmp_path / "out")["train.en:1"]
    ids, labels = ([int(token) for token in first[name] if token > 0] for name in ("input_ids", "labels"))
    assert (WORDS.decode(ids), WORDS.decode(labels)) == ("to German: house 0 </s>", "Haus 0 </s>")
    with raises(UsageError, "option.malformed"):
        prepared(
            source, tmp_path / "no", task="text2text", tokenizer="sample:", options={**options, "line_pairs": ".en"}
        )
    (source / "train.de.gz").unlink()
    with raises(SourceError, "source.missing-pair", "train.de", "train.en"):
        prepared(source, tmp_path / "no", task="text2text", tokenizer="sample:", options=options)


@pytest.mark.parametrize("name", ["Question:", "what?!", "{odd}", "a}b", "two:parts"])
@pytest.mark.parametrize("choices", [{}, {"dedup": "exact"}])
def test_a_column_alone_may_have_any_name(name: str, choices: dict, tmp_path: Path) -> None:
    """By columns and, with `dedup`, row by row: no part of the name is taken for a template."""
    write_csv(tmp_path / "rows.csv", [{name: f"why {n}", f"{name} label": "yes"} for n in range(9)])
    manifest = prepared(
        tmp_path / "rows.csv",
        tmp_path / "out",
        tokenizer=sample.tokenizer_path(),
        task="text2text",
        options={"inputs_column": name, "targets_column": f"{name} label"},
        **choices,
    )
    assert sum(split.records for split in manifest.splits.values()) == 9


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("text", ("option.invalid-template", "text")),
        ("say it", ("option.invalid-template", "question")),
        ("a {} b", ("option.invalid-template",)),
        ("{text!r}", ("option.invalid-template", "text")),
        ("{text:>9}", ("option.invalid-template", "text")),
    ],
)
@pytest.mark.parametrize("side", ["inputs", "targets"])
def test_a_template_without_a_column_or_with_a_form_is_refused(
    template: str, reason: tuple[str, ...], side: str
) -> None:
    other_option = {"inputs": "targets_column", "targets": "inputs_column"}[side]
    with raises(UsageError, *reason):
        _ = registry.get("text2text").choose({side: template, other_option: "a"}).columns


def _prepared(rows: list[dict[str, Any]], out: Path, **choices: Any) -> Any:
    defaults = {"inputs_column": "q", "tokenizer": "sample:", "workers": 0, "splits": "train=0.5,validation=0.5"}
    return t5prep.prepare("text2text", source=rows, out=out, **(defaults | choices))


@pytest.mark.parametrize("column", ["answers.text", "plain"])
def test_rows_with_several_different_answers_are_counted(column: str, tmp_path: Path) -> None:
    """The first one is the target, as of SQuAD; a row of validation keeps all of them as right."""
    answers = [["a b", "c d"], ["a b", "a b"], ["e f"], ["c d", "a b", "c d"]]
    rows = [{"q": f"question {n}", "answers": {"text": answers[n % 4]}, "plain": answers[n % 4]} for n in range(40)]
    manifest = _prepared(rows, tmp_path / "out", targets_column=column)
    assert (
        f"several different values in {column}, in 20 of 40 rows: the first one is the target, and an evaluation takes each of "
        "them as right" in manifest.warnings
    )
    table = t5prep.table(str(tmp_path / "out")).read_all().to_pylist()
    right = {f"question {n}": answers[n % 4] for n in range(40)}
    assert {row["target"] for row in table} == {"a b", "c d", "e f"}
    assert all(row["target"] == right[row["input"]][0] for row in table)
    references = {row["input"]: row["references"] for row in table if row["split"] == "validation"}
    assert references == {question: right[question] for question in references}


@pytest.mark.parametrize("kind", ["python", "parquet"])
def test_a_null_among_answers_is_no_answer(kind: str, tmp_path: Path) -> None:
    answers = [["a b", None], [None, "c d"], ["e f"], [None]]
    rows: Any = [{"q": f"question {n}", "answers": answers[n % 4]} for n in range(40)]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
        rows = str(tmp_path / "rows.parquet")
    manifest = _prepared(rows, tmp_path / "out", targets_column="answers")
    assert manifest.rejected == {"empty target": 10}
    assert not any("several different values" in warning for warning in manifest.warnings)
    table = t5prep.table(str(tmp_path / "out")).read_all().to_pylist()
    assert {row["target"] for row in table} == {"a b", "c d", "e f"}
    assert all(row["references"] == [row["target"]] for row in table if row["split"] == "validation")


def test_a_class_that_is_several_is_rejected(tmp_path: Path) -> None:
    rows = [{"q": f"question {n}", "label": [["0"], ["0", "0.0"], ["0", "1"]][n % 3]} for n in range(30)]
    manifest = _prepared(rows, tmp_path / "out", targets_column="label", label_map="0=no,1=yes")
    assert manifest.rejected == {"several labels": 10}
    assert not any("several different values" in warning for warning in manifest.warnings)
    assert any("--labels-column" in warning for warning in manifest.warnings)

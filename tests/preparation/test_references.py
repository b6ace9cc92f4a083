"""Rows with one id that are several right answers, and rows with one text that stand in two places."""

import json
from collections import Counter

import pytest
from small_corpora import by_id, prepared, records, rejected

COMMON_GEN = {"task": "common_gen", "tokenizer": "sample:", "workers": 0}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def concepts(sets, *, first=0, sentences=3):
    return [
        {"concepts": [f"thing{s}", "rain", "dog"], "target": f"The dog sees thing{s} in the rain {n} times."}
        for s in range(first, first + sets)
        for n in range(sentences)
    ]


@pytest.fixture(scope="module")
def common_gen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("common_gen")
    train = concepts(40)
    write(folder / "source" / "train.jsonl", [*train, train[0]])
    write(folder / "source" / "validation.jsonl", concepts(10, first=40))
    manifest = prepared(folder / "source", folder / "out", **COMMON_GEN)
    return folder / "out", manifest


def test_several_answers_are_as_many_examples_to_train(common_gen):
    out, manifest = common_gen
    train = records(out)["train"]
    assert manifest.splits["train"].records == len(train) == 120
    assert len({record["id"][0] for record in train}) == 120
    assert Counter(record["id"][0].decode().partition("#")[0] for record in train)["thing3 rain dog"] == 3
    assert len({tuple(record["labels"]) for record in train}) == 120
    assert not any("references" in record for record in train)


def test_several_answers_are_the_references_of_one_example_to_evaluate(common_gen):
    out, manifest = common_gen
    validation = records(out)["validation"]
    assert manifest.splits["validation"].records == len(validation) == 10
    for record in validation:
        (id,) = record["id"]
        thing = id.decode().split()[0]
        references = [reference.decode() for reference in record["references"]]
        assert references == [f"The dog sees {thing} in the rain {n} times." for n in range(3)]
    assert "references" in manifest.features


def test_the_same_answer_twice_is_a_duplicate(common_gen):
    out, manifest = common_gen
    assert manifest.rejected == {"duplicate id": 1}
    (line,) = rejected(out)
    assert line["reason"].startswith("duplicate id: kept is train.jsonl:")


def texts(count):
    return [{"sentence": f"a film of {n} parts", "label": n % 2} for n in range(count)]


def test_dedup_keeps_a_text_in_one_split_only(tmp_path):
    rows = texts(400)
    copies = [{"sentence": f"  A  FILM of {n} parts", "label": n % 2} for n in range(0, 400, 4)]
    write(tmp_path / "all.jsonl", [*rows, *copies])
    choices = {"task": "sst2", "tokenizer": "sample:", "workers": 0, "splits": {"train": 0.5, "validation": 0.5}}
    full_manifest = prepared(tmp_path / "all.jsonl", tmp_path / "kept", **choices)
    assert sum(split.records for split in full_manifest.splits.values()) == 500
    dedup_manifest = prepared(tmp_path / "all.jsonl", tmp_path / "deduplicated", dedup="exact", **choices)
    assert sum(split.records for split in dedup_manifest.splits.values()) == 400
    assert dedup_manifest.rejected == {"duplicate text": 100}
    lines = rejected(tmp_path / "deduplicated")
    assert len(lines) == 100
    # Ids draw splits: of two equal texts that they draw apart, the one for evaluation is kept.
    reasons = {line["reason"].partition(":")[2].strip().partition(":")[0] for line in lines}
    assert reasons == {"kept is all.jsonl", "the split validation has it"}
    assert not {line["id"] for line in lines} & set(by_id(tmp_path / "deduplicated"))


def test_dedup_takes_a_text_from_train_that_the_validation_file_has(tmp_path):
    write(tmp_path / "source" / "train.jsonl", texts(50))
    write(tmp_path / "source" / "dev.jsonl", texts(20))
    manifest = prepared(
        tmp_path / "source", tmp_path / "out", task="sst2", tokenizer="sample:", workers=0, dedup="exact"
    )
    assert {name: split.records for name, split in manifest.splits.items()} == {"train": 30, "validation": 20}
    assert manifest.splits["train"].rejected == {"duplicate text": 20}

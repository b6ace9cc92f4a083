"""Datasets for encoders: found by the tokenizer, class numbers as labels, and sentences for what cannot be."""

import pytest
from raised import raises

from t5prep.dataset import inspect_records
from t5prep.dataset.prepared import Dataset
from t5prep.errors import UsageError
from tests import encoders
from tests.small_corpora import by_id, prepared, rejected, write_csv

ROWS = [(text, f"{number % 2}") for number, text in enumerate(encoders.SENTENCES[:10])]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "train.tsv"
    path.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in [*ROWS, ("hidden", "-1")]))
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return encoders.bert(tmp_path_factory.mktemp("bert") / "bert")


def test_an_encoders_tokenizer_prepares_classes(source, bert, tmp_path):
    from transformers import AutoTokenizer

    manifest = prepared(source, tmp_path / "out", tokenizer=bert, task="sst2", input_length=32, splits={"train": 1.0})
    assert (manifest.settings.target, manifest.settings.target_length, manifest.settings.marker) == ("class", 1, "none")
    assert manifest.task.classes == ["negative", "positive"]
    assert manifest.splits["train"].labels == {"negative": 5, "positive": 5}
    assert len(rejected(tmp_path / "out")) == 1
    theirs = AutoTokenizer.from_pretrained(bert)
    sorted_records = sorted(by_id(tmp_path / "out").items(), key=lambda item: int(item[0].rpartition(":")[2]))
    for (text, label), (_, record) in zip(ROWS, sorted_records, strict=True):
        assert record["input_ids"] == theirs(text, padding="max_length", max_length=32)["input_ids"]
        assert record["labels"] == [int(label)]


def test_a_length_of_texts_is_refused_for_classes(source, bert, tmp_path):
    with raises(UsageError, "option.inapplicable", "--target-length 9", "class"):
        prepared(source, tmp_path / "out", tokenizer=bert, task="sst2", target_length=9, splits={"train": 1.0})


def test_masks_are_those_of_transformers_for_pairs_too(bert, tmp_path):
    from transformers import AutoTokenizer

    rows = [
        {"Id": f"{number}", "Title": text, "Body": "the film", "Y": "HQ" if number % 2 else "LQ_EDIT"}
        for number, (text, _) in enumerate(ROWS)
    ]
    path = write_csv(tmp_path / "rows.csv", rows)
    manifest = prepared(path, tmp_path / "out", tokenizer=bert, input_length=24, masks=True, splits={"train": 1.0})
    assert set(manifest.features) == {"id", "input_ids", "attention_mask", "token_type_ids", "labels"}
    theirs = AutoTokenizer.from_pretrained(bert)
    for record in by_id(tmp_path / "out").values():
        texts = [rows[int(record["id"][0])]["Title"], "the film"]
        texts[0] = f"quality: {texts[0]}"
        expected = theirs(*texts, padding="max_length", truncation=True, max_length=24)
        for name in ("attention_mask", "token_type_ids"):
            assert record[name] == expected[name], texts


def test_inspect_shows_the_class(source, bert, tmp_path):
    prepared(source, tmp_path / "out", tokenizer=bert, task="sst2", splits={"train": 1.0})
    inspected_records = list(inspect_records.records(Dataset(tmp_path / "out"), split="train", count=20))
    assert {(record.targets, tuple(record.labels)) for record in inspected_records} == {
        ("negative", (0,)),
        ("positive", (1,)),
    }
    assert all(record.inputs.startswith("[CLS] ") for record in inspected_records)


def test_a_t5_can_be_prepared_for_classes_too(source, tmp_path):
    manifest = prepared(
        source, tmp_path / "out", tokenizer="sample:", task="sst2", target="class", splits={"train": 1.0}
    )
    assert manifest.features["labels"].shape == [1]
    assert manifest.splits["train"].labels == {"negative": 5, "positive": 5}


def test_a_t5_needs_classes_for_the_target_class(source, tmp_path):
    with raises(UsageError, "task.missing-classes", "translate_en_ro", "--target class") as raised:
        prepared(source, tmp_path / "out", tokenizer="sample:", task="translate_en_ro", target="class")
    assert "--tokenizer" not in str(raised.value)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"task": "translate_en_ro"}, ("task.missing-classes", "--tokenizer google-t5/t5-base")),
        ({"layout": "packed"}, ("option.inapplicable",)),
        ({"keep_newlines": True}, ("option.inapplicable",)),
    ],
)
def test_what_no_classification_can_have_is_refused(source, bert, tmp_path, choices, message):
    with raises(UsageError, *message):
        prepared(source, tmp_path / "out", tokenizer=bert, **{"task": "sst2", **choices})

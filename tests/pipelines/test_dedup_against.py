"""A new corpus against the dataset of the last one: what repeats a row of it is rejected, with that row's id."""

import json
import random
from pathlib import Path
from typing import Any

import encoders
import pytest
from raised import raises
from small_corpora import bytes_of, prepared, records, rejected

from pipelines import steps
from t5prep.errors import DatasetError, UsageError

CHOICES = {"task": "text2text", "options": {"inputs_column": "text", "targets_column": "label", "id_column": "id"}}
WORDS = [f"word{i}" for i in range(900)]


def _text(seed: int, words: int = 40) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def _write(path: Path, texts: dict[str, str]) -> Path:
    path.write_text("".join(json.dumps({"id": id, "text": text, "label": "yes"}) + "\n" for id, text in texts.items()))
    return path


def _changed(text: str) -> str:
    """Return a text with its first word replaced."""
    return " ".join(["another", *text.split()[1:]])


@pytest.fixture
def last(tmp_path: Path) -> str:
    """The dataset of the last crawl: thirty texts, one of them longer than an input may be."""
    texts = {f"old{i}": _text(i) for i in range(29)} | {"long": _text(29, words=600)}
    prepared(_write(tmp_path / "old.jsonl", texts), tmp_path / "last", tokenizer="sample:", **CHOICES)
    return str(tmp_path / "last")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Texts of their own, of the last crawl (one with its id, one in capitals, the long one), and nearly of it."""
    texts = {f"new{i}": _text(100 + i) for i in range(20)}
    texts |= {"old3": _text(3), "capitals": _text(4).upper(), "long again": _text(29, words=600)}
    texts |= {"nearly": _changed(_text(5)), "long nearly": _changed(_text(29, words=600))}
    return _write(tmp_path / "new.jsonl", texts)


def test_exact_rejects_what_the_last_dataset_has(corpus: Path, last: str, tmp_path: Path) -> None:
    manifest = prepared(corpus, tmp_path / "out", tokenizer="sample:", dedup="exact", dedup_against=(last,), **CHOICES)
    assert {line["id"]: line["reason"] for line in rejected(tmp_path / "out")} == {
        "old3": f"repeated: the same input is in {last}, id old3",
        "capitals": f"repeated: the same input is in {last}, id old4",
        "long again": f"repeated: the same input is in {last}, id long",
    }
    assert manifest.rejected == {"repeated": 3}
    assert list(manifest.earlier) == [last]
    assert sum(split.records for split in manifest.splits.values()) == 22


def test_near_rejects_what_is_nearly_in_the_last_dataset(corpus: Path, last: str, tmp_path: Path) -> None:
    manifest = prepared(corpus, tmp_path / "out", tokenizer="sample:", dedup="near", dedup_against=(last,), **CHOICES)
    reasons = {line["id"]: line["reason"] for line in rejected(tmp_path / "out")}
    assert set(reasons) == {"old3", "capitals", "long again", "nearly", "long nearly"}
    assert reasons["nearly"].startswith(f"near duplicate: kept is {last}/train.tfrecord-00000-of-00001:")
    assert ", id old5 (Jaccard similarity 0.9" in reasons["nearly"]
    assert ", id long (" in reasons["long nearly"]
    assert manifest.near_duplicates is not None
    assert (manifest.near_duplicates.clusters, manifest.near_duplicates.across_splits) == (4, 0)
    output_ids = {record["id"][0].decode() for split in records(tmp_path / "out").values() for record in split}
    assert output_ids == {f"new{i}" for i in range(20)}


def test_a_corpus_against_itself_has_nothing_left_but_says_why(last: str, tmp_path: Path) -> None:
    with raises(Exception, "row.example-missing"):
        prepared(
            tmp_path / "old.jsonl",
            tmp_path / "out",
            tokenizer="sample:",
            dedup="exact",
            dedup_against=(last,),
            **CHOICES,
        )


def test_the_rows_of_encoders_are_compared_too(tmp_path: Path) -> None:
    bert = encoders.bert(tmp_path / "bert")
    lines = [(f"witty seductive movie {word}", "positive") for word in encoders.SENTENCES[0].split()]
    lines += [(f"bleak and desperate {word}", "negative") for word in encoders.SENTENCES[1].split()]
    for name, part in (("old", lines[:8]), ("new", lines[4:])):
        rows = "".join(f"{text}\t{label}\n" for text, label in part)
        (tmp_path / f"{name}.tsv").write_text("sentence\tlabel\n" + rows)
    options = {"tokenizer": bert, "task": "sst2", "input_length": 16}
    prepared(tmp_path / "old.tsv", tmp_path / "last", **options)
    last = (str(tmp_path / "last"),)
    manifest = prepared(tmp_path / "new.tsv", tmp_path / "out", dedup="exact", dedup_against=last, **options)
    assert manifest.rejected["repeated"] == len({text for text, _ in lines[:8]} & {text for text, _ in lines[4:]})


def test_another_last_dataset_makes_other_kept_tokens(corpus: Path, last: str, tmp_path: Path) -> None:
    options = {"tokenizer": "sample:", "dedup": "exact", "cache": tmp_path / "kept", **CHOICES}
    assert prepared(corpus, tmp_path / "one", dedup_against=(last,), **options).rejected == {"repeated": 3}
    prepared(_write(tmp_path / "old.jsonl", {"other": _text(3)}), last, tokenizer="sample:", overwrite=True, **CHOICES)
    assert prepared(corpus, tmp_path / "two", dedup_against=(last,), **options).rejected == {"repeated": 1}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"input_length": 64}, ("dataset.incomparable", "--input-length 64")),
        ({"truncation": "head"}, ("dataset.incomparable", "--truncation head")),
        ({"dedup": "none"}, ("option.missing-prerequisite",)),
        ({"dedup_against": ("nowhere",)}, ("dataset.not-found", "nowhere")),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    choices: dict[str, object], message: tuple[str, ...], corpus: Path, last: str, tmp_path: Path
) -> None:
    options = {"dedup": "near", "dedup_against": (last,), **CHOICES, **choices}
    with raises((UsageError, DatasetError), *message):
        prepared(corpus, tmp_path / "out", tokenizer="sample:", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("earlier", "value"),
    [
        (
            {"task": "span_corruption", "options": {"text_column": "text"}, "input_length": 32},
            "--decontaminate {source}",
        ),
        ({**CHOICES, "layout": "packed"}, "--layout padded"),
    ],
)
def test_an_earlier_dataset_without_whole_inputs(
    earlier: dict[str, Any], value: str, corpus: Path, tmp_path: Path
) -> None:
    """The same tokenizer and lengths would not help."""
    prepared(corpus, tmp_path / "last", tokenizer="sample:", **earlier)
    options = {"dedup": "exact", "dedup_against": (str(tmp_path / "last"),), **CHOICES}
    with raises(UsageError, "dataset.incomparable", value.format(source=corpus)):
        prepared(corpus, tmp_path / "out", tokenizer="sample:", **options)


@pytest.mark.extra("prism")
@pytest.mark.slow
@pytest.mark.parametrize("dedup", ["exact", "near"])
def test_engines_and_workers_reject_the_same_rows(dedup: str, corpus: Path, last: str, tmp_path: Path) -> None:
    """All that rejects rows in one run: duplicates, near-duplicates among the rows and in a dataset, leaks, filters."""
    held_out = _write(tmp_path / "held.jsonl", {"leak": _text(110)})
    options = {"tokenizer": "sample:", "dedup": dedup, "dedup_against": (last,), **CHOICES}
    options |= {"decontaminate": (str(held_out),), "filter": ("words:least=8", "addresses")}
    rows = {"twin": _changed(_text(100)), "short": "too few words", "masked": f"{_text(120)} me@firm.de"}
    with open(corpus, "a") as file:
        for id, text in rows.items():
            file.write(json.dumps({"id": id, "text": text, "label": "yes"}) + "\n")
    manifest = prepared(corpus, tmp_path / "out", **options)
    assert {line["id"] for line in rejected(tmp_path / "out")} >= {"new10", "short"}
    assert sum(manifest.rejected.values()) == 2 + (3 if dedup == "exact" else 6)
    for name, engine_options in {"workers": {"workers": 2, "memory": 700 << 20}, "prism": {"runner": "prism"}}.items():
        prepared(corpus, tmp_path / name, **options, **engine_options)
        assert bytes_of(tmp_path / name) == bytes_of(tmp_path / "out")


def test_workers_of_a_cloud_cannot_read_a_dataset_of_this_machine() -> None:
    with raises(UsageError, "bucket.local-path", "data/last"):
        steps.refuse_local(["gs://bucket/there", "data/last"])


@pytest.mark.parametrize("dedup", ["exact", "near"])
def test_texts_that_the_tokenizer_does_not_know_are_not_equal(
    dedup: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of these have the same ids: one was kept, and the others were rejected as its repetitions."""
    prefix = "the question that all of them begin with, word by word:"
    texts = {f"new{n}": f"{prefix} {chr(0x4E00 + n * 7)}{chr(0x4E03 + n * 5)}" for n in range(12)}
    prepared(
        _write(tmp_path / "old.jsonl", {"old": f"{prefix} 世界", "plain": _text(1)}), tmp_path / "last", tokenizer="sample:",
        **CHOICES,
    )  # fmt: skip
    corpus = _write(tmp_path / "new.jsonl", {**texts, "plain again": _text(1)})
    last = (str(tmp_path / "last"),)
    options = {"dedup": dedup, "dedup_against": last, **({"near_jaccard": 0.99} if dedup == "near" else {})}
    manifest = prepared(corpus, tmp_path / "out", tokenizer="sample:", splits={"train": 1.0}, **options, **CHOICES)
    assert {line["id"] for line in rejected(tmp_path / "out")} == {"plain again"}
    assert manifest.splits["train"].records == 12
    assert f"--dedup-against {last[0]} are <unk>" in capsys.readouterr().err

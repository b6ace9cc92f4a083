"""Newlines kept as tokens: lines come back, nothing else changes, and cutting is that of the straight computation."""

import json
import random
from pathlib import Path

import hypothesis
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from raised import raises
from small_corpora import by_id, bytes_of, prepared, write_csv

from t5prep.cli import main
from t5prep.dataset import inspect_records, manifest
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.settings import Settings
from t5prep.errors import DatasetError, OutputError, Reject, UsageError
from t5prep.preparation import task_settings
from t5prep.sources import sample
from t5prep.tasks import registry
from t5prep.tasks.example import EOS, Example, Protected
from t5prep.tokens import audit, newlines
from t5prep.tokens.featurizer import Featurizer
from t5prep.tokens.newlines import SENTINEL, SENTINEL_NUMBER
from t5prep.tokens.tokenizer import Tokenizer
from tests.featurized_examples import ExampleFeatures, featurized, featurizer, truncate

WORDS = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")
NEWLINE = WORDS.sentinel(SENTINEL_NUMBER)
COMMON = ["why", "does", "this", "error", "come", "back", "in", "a", "loop?"]
TEXTS = st.lists(st.lists(st.sampled_from(COMMON), max_size=4).map(" ".join), min_size=1, max_size=6)


def lines_kept(
    *, length: int = 512, policy: str = "head_tail", marker: str = "extra_id_1", keep_newlines: bool = True
) -> Featurizer:
    return featurizer(WORDS, length=length, targets=512, policy=policy, marker=marker, keep_newlines=keep_newlines)


def encoded(featurize: Featurizer, inputs: object, targets: str = "why") -> ExampleFeatures:
    (features,) = featurized(featurize, [Example(None, inputs, targets)])
    assert isinstance(features, ExampleFeatures), features
    return features


def straight(text: str) -> list[int]:
    """Every line tokenized whole, a sentinel between two, EOS at the end."""
    first, *later_lines = text.split("\n")
    return [
        *WORDS.encode(first),
        *(token for line in later_lines for token in (NEWLINE, *WORDS.encode(line))),
        WORDS.eos_id,
    ]


@hypothesis.settings(deadline=None, max_examples=40)
@given(TEXTS, st.sampled_from(["\n", "\r\n", "\r"]))
def test_lines_come_back_on_both_sides(lines: list[str], newline: str) -> None:
    (features,) = featurized(lines_kept(), [Example(None, newline.join(lines), newline.join(lines))])
    if not any(lines):
        assert isinstance(features, Reject)
        return
    assert isinstance(features, ExampleFeatures)
    assert features.tokens == len(features.inputs) == features.target_tokens
    for ids in (features.inputs, features.labels):
        assert newlines.decode(ids[:-1], tokenizer=WORDS, keep_newlines=True) == "\n".join(lines)


@hypothesis.settings(deadline=None, max_examples=20)
@given(TEXTS)
def test_without_the_flag_a_newline_is_a_space(lines: list[str]) -> None:
    (features,) = featurized(lines_kept(keep_newlines=False), [Example(None, "\n".join(lines), "\n".join(lines))])
    ids = [*WORDS.encode(" ".join(lines)), WORDS.eos_id]
    if any(lines):
        assert isinstance(features, ExampleFeatures)
        assert features.inputs == features.labels == ids
        assert newlines.decode(ids, tokenizer=WORDS, keep_newlines=False) == WORDS.decode(ids)


@pytest.mark.parametrize(
    ("policy", "marker"),
    [("head_tail", "extra_id_1"), ("head_tail", "none"), ("head", "none"), ("tail", "none")],
)
@pytest.mark.parametrize(
    "words",
    [[2] * 40, [0, 30, 1, 20, 25, 3], [3, 1, 4000, 0, 2], [4000, 3000]],
    ids=["short lines", "lines", "a long line among others", "long lines"],
)
def test_cutting_is_the_straight_one(policy: str, marker: str, words: list[int]) -> None:
    chooser = random.Random(len(words))
    featurize = lines_kept(length=64, policy=policy, marker=marker)
    for _ in range(5):
        text = "\n".join(" ".join(chooser.choices(COMMON, k=number)) for number in words)
        text += "\n" * chooser.randrange(3)
        ids, features = straight(text), encoded(featurize, text)
        mark = WORDS.sentinel(1) if marker == "extra_id_1" else None
        assert features.inputs == truncate(ids, 64, policy=policy, marker=mark)
        assert features.tokens == len(ids)


def test_fields_keep_their_lines() -> None:
    features = encoded(lines_kept(), ("why\nthis", EOS, "\nerror"))
    eos = WORDS.eos_id
    assert features.inputs == [*straight("why\nthis")[:-1], eos, NEWLINE, *WORDS.encode("error"), eos]
    assert features.tokens == len(features.inputs)


def test_newlines_of_protected_text_and_of_a_template_are_never_cut() -> None:
    inputs = (Protected("why\nthis"), "\n" + "error " * 100, Protected("\n"), "loop? " * 100)
    ids = encoded(lines_kept(length=32, policy="head"), inputs).inputs
    assert len(ids) == 32
    assert ids.count(NEWLINE) == 3
    assert ids[: len(straight("why\nthis"))] == [*straight("why\nthis")[:-1], NEWLINE]


def test_text_that_spells_the_sentinel_stays_text() -> None:
    text = f"why {SENTINEL} loop?"
    features = encoded(lines_kept(), text, text)
    assert NEWLINE not in [*features.inputs, *features.labels]
    decode = {"tokenizer": WORDS, "keep_newlines": True}
    assert "\n" not in newlines.decode(features.labels, **decode)
    assert newlines.decode([*WORDS.encode("why"), NEWLINE, NEWLINE, *WORDS.encode("this")], **decode) == "why\n\nthis"


def test_a_target_of_newlines_alone_is_empty() -> None:
    for targets in ("\n", " \n\n ", ""):
        (features,) = featurized(lines_kept(), [Example(None, "why", targets)])
        assert str(features) == "empty target"


def test_a_dataset_says_that_it_keeps_them(tmp_path: Path) -> None:
    rows = [{"id": str(i), "q": f"why {i}\ndoes it\n\ncome back?", "a": "in a loop\nor so"} for i in range(20)]
    source = write_csv(tmp_path / "rows.csv", rows)
    choices = {
        "tokenizer": "sample:", "task": "text2text", "splits": {"train": 1.0}, "cache": tmp_path / "kept",
        "options": {"inputs_column": "q", "targets_column": "a", "id_column": "id"},
    }  # fmt: skip
    plain = prepared(source, tmp_path / "plain", **choices)
    lines_manifest = prepared(source, tmp_path / "lines", **choices, keep_newlines=True)
    assert (plain.settings.keep_newlines, lines_manifest.settings.keep_newlines) == (False, True)
    assert lines_manifest.splits["train"].labels == {"in a loop\nor so": 20}
    assert by_id(tmp_path / "lines")["7"]["input_ids"].count(NEWLINE) == 3
    assert not any(NEWLINE in record["input_ids"] for record in by_id(tmp_path / "plain").values())
    for inspected_record in inspect_records.records(Dataset(tmp_path / "lines"), split="train", count=3):
        assert inspected_record.inputs.removesuffix(" </s>") == f"why {inspected_record.id}\ndoes it\n\ncome back?"
        assert inspected_record.targets.removesuffix(" </s>") == "in a loop\nor so"
    printed = CliRunner().invoke(main, ["inspect", str(tmp_path / "lines"), "-n", "1"]).stdout.splitlines()
    assert "  does it" in printed
    with raises(OutputError, "output.different-settings"):
        prepared(source, tmp_path / "plain", **choices, keep_newlines=True)

    document = json.loads(lines_manifest.dumps())
    document["settings"]["keep_newlines"] = False
    with raises(DatasetError, "dataset.altered"):
        manifest.loads(json.dumps(document), location="it")
    del document["settings"]["keep_newlines"]
    with raises(DatasetError, "dataset.altered"):
        manifest.loads(json.dumps(document), location="it")


def test_text_without_newlines_has_the_same_shards(tmp_path: Path) -> None:
    rows = [{"id": str(i), "q": f"why does this error {i} come back? " * 90, "a": "in a loop"} for i in range(20)]
    source = write_csv(tmp_path / "rows.csv", rows)
    choices = {"options": {"inputs_column": "q", "targets_column": "a"}, "tokenizer": "sample:", "task": "text2text"}
    plain_path, newlines_path = tmp_path / "one", tmp_path / "two"
    prepared(source, plain_path, **choices)
    prepared(source, newlines_path, **choices, keep_newlines=True)
    first, second = bytes_of(plain_path), bytes_of(newlines_path)
    del first["manifest.json"], second["manifest.json"]  # they name the choice
    assert first == second
    assert manifest.load(plain_path).digest != manifest.load(newlines_path).digest


def test_every_task_offers_the_flag_that_the_tokenizers_report_advises() -> None:
    advice = " ".join(audit.advice(audit.examine(["why\nthis"] * 9, WORDS)))
    assert "t5prep prepare TASK ... --keep-newlines" in advice
    help_text = CliRunner().invoke(main, ["prepare", "so_quality", "--help"]).stdout
    assert f"as the token {SENTINEL}" in " ".join(help_text.split())


def test_tasks_of_documents_refuse_the_flag() -> None:
    with raises(UsageError, "option.inapplicable", "--keep-newlines", "span_corruption"):
        task_settings.check(
            Settings("span_corruption", {}, 512, 114, keep_newlines=True), registry.get("span_corruption").choose({})
        )

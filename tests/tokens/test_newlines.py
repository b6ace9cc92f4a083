"""Newlines kept as tokens: lines come back, nothing else changes, and cutting is that of the straight computation."""

import json
import random
from pathlib import Path

import hypothesis
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from preparing import by_id, bytes_of, prepared, write_csv

from t5prep.cli import main
from t5prep.dataset import inspect_records, manifest
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.settings import Settings
from t5prep.errors import DatasetError, OutputError, Reject, UsageError
from t5prep.preparation import task_settings
from t5prep.sources import sample
from t5prep.tasks import registry
from t5prep.tasks.example import EOS, Example, Protected
from t5prep.tokens import audit, tokenizer
from t5prep.tokens.featurizer import Featurizer
from t5prep.tokens.tokenizer import NUMBER, SENTINEL, Tokenizer
from tests.featurizing import One, featurized, featurizer, truncate

WORDS = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")
NEWLINE = WORDS.sentinel(NUMBER)
COMMON = ["why", "does", "this", "error", "come", "back", "in", "a", "loop?"]
TEXTS = st.lists(st.lists(st.sampled_from(COMMON), max_size=4).map(" ".join), min_size=1, max_size=6)


def lines_kept(
    *, length: int = 512, policy: str = "head_tail", marker: str = "extra_id_1", kept: bool = True
) -> Featurizer:
    return featurizer(WORDS, length=length, targets=64, policy=policy, marker=marker, keep_newlines=kept)


def encoded(featurize: Featurizer, inputs: object, targets: str = "why") -> One:
    (made,) = featurized(featurize, [Example(None, inputs, targets)])
    assert isinstance(made, One), made
    return made


def straight(text: str) -> list[int]:
    """Every line tokenized whole, a sentinel between two, EOS at the end."""
    first, *others = text.split("\n")
    return [*WORDS.encode(first), *(token for line in others for token in (NEWLINE, *WORDS.encode(line))), WORDS.eos_id]


@hypothesis.settings(deadline=None, max_examples=40)
@given(TEXTS, st.sampled_from(["\n", "\r\n", "\r"]))
def test_lines_come_back_on_both_sides(lines: list[str], newline: str) -> None:
    (made,) = featurized(lines_kept(), [Example(None, newline.join(lines), newline.join(lines))])
    if not any(lines):
        assert isinstance(made, Reject)
        return
    assert isinstance(made, One)
    assert made.tokens == len(made.inputs) == made.target_tokens
    for ids in (made.inputs, made.labels):
        assert tokenizer.decode(ids[:-1], tokenizer=WORDS, keep_newlines=True) == "\n".join(lines)


@hypothesis.settings(deadline=None, max_examples=20)
@given(TEXTS)
def test_without_the_flag_a_newline_is_a_space(lines: list[str]) -> None:
    (made,) = featurized(lines_kept(kept=False), [Example(None, "\n".join(lines), "\n".join(lines))])
    ids = [*WORDS.encode(" ".join(lines)), WORDS.eos_id]
    if any(lines):
        assert isinstance(made, One)
        assert made.inputs == made.labels == ids
        assert tokenizer.decode(ids, tokenizer=WORDS, keep_newlines=False) == WORDS.decode(ids)


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
        ids, made = straight(text), encoded(featurize, text)
        mark = WORDS.sentinel(1) if marker == "extra_id_1" else None
        assert made.inputs == truncate(ids, 64, policy=policy, marker=mark)
        assert made.tokens == len(ids)


def test_fields_keep_their_lines() -> None:
    made = encoded(lines_kept(), ("why\nthis", EOS, "\nerror"))
    eos = WORDS.eos_id
    assert made.inputs == [*straight("why\nthis")[:-1], eos, NEWLINE, *WORDS.encode("error"), eos]
    assert made.tokens == len(made.inputs)


def test_newlines_of_protected_text_and_of_a_template_are_never_cut() -> None:
    inputs = (Protected("why\nthis"), "\n" + "error " * 100, Protected("\n"), "loop? " * 100)
    ids = encoded(lines_kept(length=32, policy="head"), inputs).inputs
    assert len(ids) == 32
    assert ids.count(NEWLINE) == 3
    assert ids[: len(straight("why\nthis"))] == [*straight("why\nthis")[:-1], NEWLINE]


def test_text_that_spells_the_sentinel_stays_text() -> None:
    said = f"why {SENTINEL} loop?"
    made = encoded(lines_kept(), said, said)
    assert NEWLINE not in [*made.inputs, *made.labels]
    decode = {"tokenizer": WORDS, "keep_newlines": True}
    assert "\n" not in tokenizer.decode(made.labels, **decode)
    assert tokenizer.decode([*WORDS.encode("why"), NEWLINE, NEWLINE, *WORDS.encode("this")], **decode) == "why\n\nthis"


def test_a_target_of_newlines_alone_is_empty() -> None:
    for targets in ("\n", " \n\n ", ""):
        (made,) = featurized(lines_kept(), [Example(None, "why", targets)])
        assert str(made) == "empty target"


def test_a_dataset_says_that_it_keeps_them(tmp_path: Path) -> None:
    rows = [{"id": str(i), "q": f"why {i}\ndoes it\n\ncome back?", "a": "in a loop\nor so"} for i in range(20)]
    source = write_csv(tmp_path / "rows.csv", rows)
    choices = {
        "tokenizer": "sample:", "task": "text2text", "splits": {"train": 1.0}, "kept": tmp_path / "kept",
        "options": {"inputs_column": "q", "targets_column": "a", "id_column": "id"},
    }  # fmt: skip
    plain = prepared(source, tmp_path / "plain", **choices)
    made = prepared(source, tmp_path / "lines", **choices, keep_newlines=True)
    assert (plain.settings.keep_newlines, made.settings.keep_newlines) == (False, True)
    assert made.splits["train"].labels == {"in a loop\nor so": 20}
    assert by_id(tmp_path / "lines")["7"]["input_ids"].count(NEWLINE) == 3
    assert not any(NEWLINE in record["input_ids"] for record in by_id(tmp_path / "plain").values())
    for shown in inspect_records.records(Dataset(tmp_path / "lines"), split="train", count=3):
        assert shown.inputs.removesuffix(" </s>") == f"why {shown.id}\ndoes it\n\ncome back?"
        assert shown.targets.removesuffix(" </s>") == "in a loop\nor so"
    printed = CliRunner().invoke(main, ["inspect", str(tmp_path / "lines"), "-n", "1"]).stdout.splitlines()
    assert "  does it" in printed
    with pytest.raises(OutputError, match="another dataset"):
        prepared(source, tmp_path / "plain", **choices, keep_newlines=True)

    said = json.loads(made.dumps())
    said["settings"]["keep_newlines"] = False
    with pytest.raises(DatasetError, match="altered"):
        manifest.loads(json.dumps(said), location="it")
    del said["settings"]["keep_newlines"]
    with pytest.raises(DatasetError, match="altered"):
        manifest.loads(json.dumps(said), location="it")


def test_text_without_newlines_has_the_same_shards(tmp_path: Path) -> None:
    rows = [{"id": str(i), "q": f"why does this error {i} come back? " * 90, "a": "in a loop"} for i in range(20)]
    source = write_csv(tmp_path / "rows.csv", rows)
    choices = {"options": {"inputs_column": "q", "targets_column": "a"}, "tokenizer": "sample:", "task": "text2text"}
    one, two = tmp_path / "one", tmp_path / "two"
    prepared(source, one, **choices)
    prepared(source, two, **choices, keep_newlines=True)
    first, second = bytes_of(one), bytes_of(two)
    del first["manifest.json"], second["manifest.json"]  # they name the choice
    assert first == second
    assert manifest.load(one).digest != manifest.load(two).digest


def test_every_task_offers_the_flag_that_the_tokenizers_report_advises() -> None:
    said = " ".join(audit.advice(audit.examine(["why\nthis"] * 9, WORDS)))
    assert "t5prep prepare TASK ... --keep-newlines" in said
    shown = CliRunner().invoke(main, ["prepare", "so_quality", "--help"]).stdout
    assert f"as the token {SENTINEL}" in " ".join(shown.split())


def test_tasks_of_documents_refuse_the_flag() -> None:
    with pytest.raises(UsageError, match="--keep-newlines: span_corruption hides spans behind <extra_id_2>"):
        task_settings.check(
            Settings("span_corruption", {}, 512, 114, keep_newlines=True), registry.get("span_corruption").choose({})
        )

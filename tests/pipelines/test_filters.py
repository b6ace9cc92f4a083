import json
from pathlib import Path

import pytest
from preparing import by_id, prepared, rejected

from pipelines import steps
from pipelines.steps import PrepareBlock, scan
from t5prep import sources
from t5prep.errors import UsageError
from t5prep.preparation import task_settings
from t5prep.reading.blocks import Block
from t5prep.tasks import registry
from t5prep.tasks.filters import rules
from t5prep.tasks.filters.chain import Chain
from t5prep.tokens import loading

CHOICES = {"task": "text2text", "options": {"inputs_column": "text", "targets_column": "label", "id_column": "id"}}
OWN = """
from t5prep.tasks import Reject

def without_seven(text):
    if " 7 " in text:
        raise Reject("seven: it says 7")
    return text
"""


def _source(path: Path, count: int = 40) -> Path:
    """Rows of which the even ones are longer, and every fifth has an address."""
    rows = [
        {
            "id": f"id{i}",
            "text": f"row {i} says"
            + " something" * (8 if i % 2 == 0 else 2)
            + (" to me@example.org" if i % 5 == 0 else ""),
            "label": ["even", "odd"][i % 2],
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rejected_rows_have_their_reasons_and_the_manifest_their_tokens(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.jsonl")
    whole = prepared(source, tmp_path / "whole", tokenizer="sample:", **CHOICES)
    made = prepared(source, tmp_path / "out", tokenizer="sample:", filter=("words:least=8", "addresses"), **CHOICES)
    assert made.settings.filter == ("words:least=8", "addresses")
    assert made.rejected == {"words too few": 20}
    assert set(by_id(tmp_path / "out")) == {f"id{i}" for i in range(0, 40, 2)}
    lines = rejected(tmp_path / "out")
    assert {line["id"] for line in lines} == {f"id{i}" for i in range(1, 40, 2)}
    assert {line["reason"] for line in lines} == {
        "words too few: 5 words, at least 8",
        "words too few: 7 words, at least 8",
    }
    assert made.changed == {"addresses": 4}

    def tokens(data: Path) -> int:
        return sum(len([one for one in record["input_ids"] if one]) for record in by_id(data).values())

    lost = tokens(tmp_path / "whole") - sum(
        len([one for one in by_id(tmp_path / "whole")[id]["input_ids"] if one]) for id in by_id(tmp_path / "out")
    )
    assert made.rejected_tokens == {"words too few": lost}
    assert (whole.rejected_tokens, whole.changed) == ({}, {})


def test_tokens_of_the_datasets_own_tokenizer_can_be_asked_for(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.jsonl")
    made = prepared(source, tmp_path / "out", tokenizer="sample:", filter=("tokens:most=12",), **CHOICES)
    assert list(made.rejected) == ["tokens too many"]
    assert all(len([one for one in record["input_ids"] if one]) <= 12 for record in by_id(tmp_path / "out").values())


def test_a_users_filter_is_named_with_its_checksum_and_runs_in_workers(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(OWN)
    source = _source(tmp_path / "rows.jsonl")
    made = prepared(
        source, tmp_path / "out", tokenizer="sample:", filter=(f"{own}:without_seven",), workers=1, **CHOICES
    )
    assert made.rejected == {"mine.without_seven seven": 1}
    assert list(made.filter_files) == [str(own)]


def test_kept_tokens_are_not_used_when_a_users_filter_has_changed(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(OWN)
    source, how = (
        _source(tmp_path / "rows.jsonl"),
        {**CHOICES, "kept": tmp_path / "kept", "filter": (f"{own}:without_seven",)},
    )
    prepared(source, tmp_path / "one", tokenizer="sample:", **how)
    own.write_text(OWN.replace("7", "8"))
    prepared(source, tmp_path / "two", tokenizer="sample:", **how)
    assert [line["id"] for name in ("one", "two") for line in rejected(tmp_path / name)] == ["id7", "id8"]


def test_filters_and_near_duplicates_go_together(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.jsonl")
    made = prepared(
        source,
        tmp_path / "out",
        tokenizer="sample:",
        filter=("words:least=6",),
        dedup="near",
        near_jaccard=0.5,
        **CHOICES,
    )
    assert made.rejected["words too few"] == 16
    assert made.rejected["near duplicate"] + len(by_id(tmp_path / "out")) == 24


def test_what_is_no_filter_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.jsonl")
    with pytest.raises(UsageError, match='Did you mean "gopher"'):
        prepared(source, tmp_path / "out", tokenizer="sample:", filter=("gofer",), **CHOICES)
    assert not (tmp_path / "out").exists()


def test_a_users_filter_travels_to_workers_that_do_not_have_its_file(tmp_path: Path) -> None:
    own, words = tmp_path / "mine.py", tmp_path / "bad.txt"
    own.write_text(OWN)
    words.write_text("blue\n")
    source = sources.resolve(str(_source(tmp_path / "rows.jsonl")))
    chosen = (f"{own}:without_seven", f"c4:bad_words={words},sentences=1,line_words=1")
    task = registry.get("text2text")
    with_options = task.choose(CHOICES["options"])
    requested = task_settings.requested(with_options, {"filter": chosen})
    settings = task_settings.complete(with_options, requested, source=source)
    tokenizer = loading.load("sample:")
    job = steps.stage(settings, task=task, source=source, tokenizer=tokenizer, folder=str(tmp_path / "folder"))
    own.unlink()
    words.unlink()
    try:
        (block,) = (
            one for one in scan(next(steps.limited_files(job)), job=job, block_bytes=1 << 20) if isinstance(one, Block)
        )
        done = PrepareBlock(job).sort(block)
        assert done.totals.reasons["mine.without_seven seven"] == 1
        assert list(Chain(settings.filter).files()) == [str(own), str(words)]
    finally:
        rules.install({})

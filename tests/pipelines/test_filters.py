import json
from pathlib import Path

from raised import raises
from small_corpora import by_id, prepared, rejected

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
FILTER_SOURCE = """
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
    unfiltered_manifest = prepared(source, tmp_path / "whole", tokenizer="sample:", **CHOICES)
    manifest = prepared(source, tmp_path / "out", tokenizer="sample:", filter=("words:least=8", "addresses"), **CHOICES)
    assert manifest.settings.filter == ("words:least=8", "addresses")
    assert manifest.rejected == {"words too few": 20}
    assert set(by_id(tmp_path / "out")) == {f"id{i}" for i in range(0, 40, 2)}
    lines = rejected(tmp_path / "out")
    assert {line["id"] for line in lines} == {f"id{i}" for i in range(1, 40, 2)}
    assert {line["reason"] for line in lines} == {
        "words too few: 5 words, at least 8",
        "words too few: 7 words, at least 8",
    }
    assert manifest.changed == {"addresses": 4}

    def tokens(data: Path) -> int:
        return sum(len([token for token in record["input_ids"] if token]) for record in by_id(data).values())

    rejected_tokens = tokens(tmp_path / "whole") - sum(
        len([token for token in by_id(tmp_path / "whole")[id]["input_ids"] if token]) for id in by_id(tmp_path / "out")
    )
    assert manifest.rejected_tokens == {"words too few": rejected_tokens}
    assert (unfiltered_manifest.rejected_tokens, unfiltered_manifest.changed) == ({}, {})


def test_tokens_of_the_datasets_own_tokenizer_can_be_asked_for(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.jsonl")
    manifest = prepared(source, tmp_path / "out", tokenizer="sample:", filter=("tokens:most=12",), **CHOICES)
    assert list(manifest.rejected) == ["tokens too many"]
    assert all(
        len([token for token in record["input_ids"] if token]) <= 12 for record in by_id(tmp_path / "out").values()
    )


def test_a_users_filter_is_named_with_its_checksum_and_runs_in_workers(tmp_path: Path) -> None:
    filter_path = tmp_path / "mine.py"
    filter_path.write_text(FILTER_SOURCE)
    source = _source(tmp_path / "rows.jsonl")
    manifest = prepared(
        source, tmp_path / "out", tokenizer="sample:", filter=(f"{filter_path}:without_seven",), workers=1, **CHOICES
    )
    assert manifest.rejected == {"mine.without_seven seven": 1}
    assert list(manifest.filter_files) == [str(filter_path)]


def test_kept_tokens_are_not_used_when_a_users_filter_has_changed(tmp_path: Path) -> None:
    filter_path = tmp_path / "mine.py"
    filter_path.write_text(FILTER_SOURCE)
    source, options = (
        _source(tmp_path / "rows.jsonl"),
        {**CHOICES, "cache": tmp_path / "kept", "filter": (f"{filter_path}:without_seven",)},
    )
    prepared(source, tmp_path / "one", tokenizer="sample:", **options)
    filter_path.write_text(FILTER_SOURCE.replace("7", "8"))
    prepared(source, tmp_path / "two", tokenizer="sample:", **options)
    assert [line["id"] for name in ("one", "two") for line in rejected(tmp_path / name)] == ["id7", "id8"]


def test_filters_and_near_duplicates_go_together(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.jsonl")
    manifest = prepared(
        source,
        tmp_path / "out",
        tokenizer="sample:",
        filter=("words:least=6",),
        dedup="near",
        near_jaccard=0.5,
        **CHOICES,
    )
    assert manifest.rejected["words too few"] == 16
    assert manifest.rejected["near duplicate"] + len(by_id(tmp_path / "out")) == 24


def test_what_is_no_filter_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.jsonl")
    with raises(UsageError, "filter.unknown"):
        prepared(source, tmp_path / "out", tokenizer="sample:", filter=("gofer",), **CHOICES)
    assert not (tmp_path / "out").exists()


def test_a_users_filter_travels_to_workers_that_do_not_have_its_file(tmp_path: Path) -> None:
    filter_path, words = tmp_path / "mine.py", tmp_path / "bad.txt"
    filter_path.write_text(FILTER_SOURCE)
    words.write_text("blue\n")
    source = sources.resolve(str(_source(tmp_path / "rows.jsonl")))
    chosen = (f"{filter_path}:without_seven", f"c4:bad_words={words},sentences=1,line_words=1")
    task = registry.get("text2text")
    with_options = task.choose(CHOICES["options"])
    requested = task_settings.requested(with_options, {"filter": chosen})
    settings = task_settings.complete(with_options, requested, source=source)
    tokenizer = loading.load("sample:")
    job = steps.stage(settings, task=task, source=source, tokenizer=tokenizer, folder=str(tmp_path / "folder"))
    filter_path.unlink()
    words.unlink()
    try:
        (block,) = (
            scan_result
            for scan_result in scan(next(steps.limited_files(job)), job=job, block_bytes=1 << 20)
            if isinstance(scan_result, Block)
        )
        sorted_block = PrepareBlock(job).sort(block)
        assert sorted_block.totals.reasons["mine.without_seven seven"] == 1
        assert list(Chain(settings.filter).files()) == [str(filter_path), str(words)]
    finally:
        rules.install({})

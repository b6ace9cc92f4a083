"""Splits by group, by number of rows, and out of the training rows: who goes where, and that nobody is in two."""

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raised import raises
from small_corpora import by_id, prepared, questions, records, write_csv

from t5prep.dataset.settings import parse_held_out, parse_splits
from t5prep.errors import SourceError, UsageError
from t5prep.preparation import sorted_pairs, task_settings
from t5prep.preparation.task_settings import exact_shares

COLUMNS = {"inputs_column": "q", "targets_column": "a", "id_column": "id"}


def _pages(path: Path, *, pages: int, rows: int) -> Path:
    """Questions on pages: several rows of each page."""
    lines = [
        {"id": f"{page}-{row}", "q": f"page {page} question {row}", "a": "yes", "page": page if page else None}
        for page in range(pages)
        for row in range(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _ids(out: Path) -> dict[str, set[str]]:
    return {split: {row["id"][0].decode() for row in rows} for split, rows in records(out).items()}


@pytest.mark.parametrize("dedup", [{}, {"dedup": "exact"}, {"dedup": "near", "near_jaccard": 1.0}])
def test_a_group_is_in_one_split(tmp_path: Path, dedup: dict[str, Any]) -> None:
    source = _pages(tmp_path / "rows.jsonl", pages=40, rows=5)
    choices = {"task": "text2text", "tokenizer": "sample:", "options": COLUMNS, "splits": {"train": 0.7, "test": 0.3}}
    prepared(source, tmp_path / "out", group_column="page", **dedup, **choices)
    splits = _ids(tmp_path / "out")
    assert sum(map(len, splits.values())) == 200
    pages = {split: {id.partition("-")[0] for id in ids} - {"0"} for split, ids in splits.items()}
    assert pages["train"].isdisjoint(pages["test"])
    assert min(map(len, pages.values())) > 3
    if dedup:
        return
    prepared(source, tmp_path / "rows", **choices)  # without the option, pages are in both
    pages = {split: {id.partition("-")[0] for id in ids} for split, ids in _ids(tmp_path / "rows").items()}
    assert len(pages["train"] & pages["test"]) > 20


def test_one_id_or_text_in_two_groups_stays_in_one_split(tmp_path: Path) -> None:
    rows = [{"id": str(n // 2), "q": f"text {n // 2}", "a": "yes", "page": n} for n in range(200)]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for dedup in ("none", "exact"):
        prepared(
            source, tmp_path / dedup, task="text2text", tokenizer="sample:", options=COLUMNS, group_column="page",
            dedup=dedup, splits={"train": 0.5, "validation": 0.5},
        )  # fmt: skip
        splits = _ids(tmp_path / dedup)
        assert splits["train"].isdisjoint(splits["validation"])
        assert len(splits["train"] | splits["validation"]) == 100


def test_a_missing_group_column_is_a_sentence(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(3))
    with raises(SourceError, "column.missing"):
        prepared(source, tmp_path / "out", tokenizer="sample:", group_column="page")


def test_a_number_of_rows_is_kept_exactly(tmp_path: Path) -> None:
    rows = questions(100)
    rows[3]["Y"] = "unknown"  # rejected: not counted
    source = write_csv(tmp_path / "rows.csv", [*rows, rows[5]])  # and one twice
    for splits, expected in (
        ("validation=17", {"validation": 17, "train": 82}),
        ("validation=17,test=30,train=1.0", {"validation": 17, "test": 30, "train": 52}),
    ):
        manifest = prepared(
            source, tmp_path / splits, tokenizer="sample:", input_length=64, splits=parse_splits(splits)
        )
        assert {name: split.records for name, split in manifest.splits.items()} == expected
        second_manifest = prepared(
            source, tmp_path / splits, tokenizer="sample:", input_length=64, splits=parse_splits(splits)
        )
        assert second_manifest == manifest
    with raises(UsageError, "split.insufficient-rows", "99", "validation"):
        prepared(source, tmp_path / "no", tokenizer="sample:", input_length=64, splits=parse_splits("validation=99"))


@pytest.mark.parametrize("option", ["splits", "held_out"])
def test_a_number_of_rows_where_no_row_makes_an_example(tmp_path: Path, option: str) -> None:
    """Each row is rejected with its reason, as without a number of rows."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("train.csv", "test.csv"):
        write_csv(source / name, [{**row, "Y": "unknown"} for row in questions(9)])
    numbers = {"splits": parse_splits("validation=5")} if option == "splits" else {"held_out": parse_held_out("5")}
    with raises(SourceError, "row.example-missing"):
        prepared(source, tmp_path / "out", tokenizer="sample:", input_length=64, **numbers)
    assert len((tmp_path / "out" / "rejected.jsonl").read_text().splitlines()) == 18


def test_groups_fill_a_number_of_rows_at_least() -> None:
    draws = np.repeat([0.8, 0.2, 0.5, 0.4], 5)
    for part in (20, 1, 3):  # draws of one group may stand in several parts
        parts = np.split(np.sort(draws), range(part, 20, part))
        shares = exact_shares({"validation": 7, "train": 0.5, "test": 0.5}, parts)
        assert shares == exact_shares({"validation": 7, "train": 0.5, "test": 0.5}, [np.sort(draws)])
    assert list(shares) == ["validation", "train", "test"]
    assert 0.4 < shares["validation"] < 0.5
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["train"] == shares["test"]


def test_numbers_of_rows_are_counted_in_any_parts() -> None:
    draws = np.sort(np.random.default_rng(0).integers(0, 40, 200) / 40)
    for part in (200, 7, 1):
        parts = np.split(draws, range(part, 200, part))
        shares = exact_shares({"validation": 17, "test": 60, "train": 1.0}, parts)
        edges = np.cumsum([0.0, *shares.values()])
        numbers = np.histogram(draws, edges)[0].tolist()
        equal = max(np.unique(draws, return_counts=True)[1])
        assert 17 <= numbers[0] < 17 + equal
        assert 60 <= numbers[1] < 60 + equal
        assert sum(numbers) == 200
        with raises(UsageError, "split.insufficient-rows", "190", "200", "test"):
            exact_shares({"validation": 5, "test": 190, "train": 1.0}, parts)


def test_more_rows_than_memory_holds_are_drawn_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _pages(tmp_path / "rows.jsonl", pages=60, rows=4)
    choices = {"task": "text2text", "tokenizer": "sample:", "options": COLUMNS, "splits": parse_splits("test=50")}
    expected = prepared(source, tmp_path / "out", group_column="page", **choices)
    assert 50 <= expected.splits["test"].records < 54
    monkeypatch.setattr(task_settings, "SortedPairs", functools.partial(sorted_pairs.SortedPairs, max_pairs=20))
    assert prepared(source, tmp_path / "again", group_column="page", **choices).settings == expected.settings


@pytest.mark.parametrize("size", ["0.2", "12"])
def test_training_rows_become_validation_where_a_corpus_has_none(tmp_path: Path, size: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rows = questions(90)
    write_csv(source / "train.csv", rows[:60])
    write_csv(source / "test.csv", rows[60:])
    manifest = prepared(source, tmp_path / "out", tokenizer="sample:", input_length=64, held_out=parse_held_out(size))
    counts = Counter({name: split.records for name, split in manifest.splits.items()})
    assert counts["test"] == 30
    assert counts["train"] + counts["validation"] == 60
    assert counts["validation"] == 12 if size == "12" else 2 < counts["validation"] < 25
    assert {row["Id"] for row in rows} == by_id(tmp_path / "out").keys()
    write_csv(source / "dev.csv", questions(100)[90:])  # its own validation is used
    manifest = prepared(source, tmp_path / "own", tokenizer="sample:", input_length=64, held_out=parse_held_out(size))
    assert {name: split.records for name, split in manifest.splits.items()} == {
        "test": 30,
        "train": 60,
        "validation": 10,
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("validation=0", "option.malformed"),
        ("validation=1.5", "option.malformed"),
        ("validation=-3", "option.malformed"),
        ("validation=inf", "option.malformed"),
        ("a=5,b=0.5", "split.invalid-shares"),
        ("a=7,a=8", "split.invalid-shares"),
    ],
)
def test_what_is_no_split_is_a_sentence(text: str, code: str) -> None:
    with raises(UsageError, code, f'--splits "{text}"'):
        parse_splits(text)


@pytest.mark.parametrize("text", ["", "x", "0", "1", "2.5", "-1", "nan"])
def test_what_cannot_be_held_out_is_a_sentence(text: str) -> None:
    with raises(UsageError, "option.out-of-range" if text == "1" else "option.malformed", f'--held-out "{text}"'):
        parse_held_out(text)

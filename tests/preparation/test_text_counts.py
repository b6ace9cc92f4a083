"""What the summary says unasked: unknown characters, rows that repeat another row, HTML in texts."""

import collections
import csv
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from raised import raises
from small_corpora import prepared

from t5prep.dataset.manifest import Manifest, Repeats, TextFacts
from t5prep.errors import TaskError
from t5prep.preparation import text_counts
from t5prep.preparation.text_counts import RepeatCounts, digests
from t5prep.tokens import ragged
from t5prep.tokens.ragged import Ragged

TEXT2TEXT = {"inputs_column": "text", "targets_column": "label"}


def lists_of(rows: list[list[int]]) -> Ragged:
    return ragged.of([np.array(row, np.int32) for row in rows])


def brute_force(rows: list[tuple[str, int]]) -> Repeats:
    """Count repeated rows one by one; each row is its split and its content."""
    of_train = {content for split, content in rows if split == "train"}
    splits_of = collections.defaultdict(set)
    for split, content in rows:
        splits_of[content].add(split)
    across = sum(split != min(splits_of[content], key=lambda name: (name != "train", name)) for split, content in rows)
    assert of_train <= splits_of.keys()
    return Repeats(len(rows) - len(splits_of), across, True)


@pytest.mark.parametrize("seed", range(5))
def test_repeated_rows_are_counted_in_any_order_and_parts(seed: int) -> None:
    chooser = random.Random(seed)
    rows = [(chooser.choice(["train", "test", "validation"]), chooser.randrange(400)) for _ in range(600)]
    expected = brute_force(rows)
    mixed = digests(lists_of([[7, content] for _, content in rows]), lists_of([[1]] * len(rows)))
    for _ in range(2):
        order = chooser.sample(range(len(rows)), len(rows))
        total = RepeatCounts()
        for begin in range(0, len(rows), 70):
            part = RepeatCounts()
            for split in ("train", "test", "validation"):
                indices = [index for index in order[begin : begin + 70] if rows[index][0] == split]
                part.add(split, mixed[indices])
            total.merge(part)
        assert total.repeated() == expected


def test_more_rows_than_are_kept_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_counts, "MOST_DIGESTS", 1000)
    total, size = RepeatCounts(), 20_000
    row_digests = digests(lists_of([[content, 3] for content in range(size)]), lists_of([[1]] * size))
    for begin in range(0, size, 500):
        part = RepeatCounts()
        part.add("train", row_digests[begin : begin + 500])
        part.add("test", row_digests[begin : begin + 125])  # a row of four stands in both splits
        total.merge(part)
        assert (
            total.waiting + sum(len(counted_digests) for counted_digests, _ in total.counts_by_split.values())
            <= 3 * 1000 + 500
        )
    repeated = total.repeated()
    assert not repeated.exact
    assert repeated.rows == repeated.across_splits == pytest.approx(5000, rel=0.15)


def test_digests_tell_rows_apart() -> None:
    rows = [[], [0], [0, 0], [1, 2], [2, 1], [1, 2, 0], [5] * 5000, [5] * 5001, [5] * 4999 + [6, 5]]
    pairs = [(inputs, labels) for inputs in rows for labels in rows]
    row_digests = digests(lists_of([inputs for inputs, _ in pairs]), lists_of([labels for _, labels in pairs]))
    assert len(np.unique(row_digests)) == len(pairs)
    reversed_digests = digests(
        lists_of([inputs for inputs, _ in pairs[::-1]]), lists_of([labels for _, labels in pairs[::-1]])
    )
    assert (row_digests == reversed_digests[::-1]).all()


def table(path: Path, rows: list[tuple[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


def prepare(source: Path, out: Path, **choices: object) -> Manifest:
    shutil.rmtree(out, ignore_errors=True)
    choices = {"task": "text2text", "options": TEXT2TEXT, "tokenizer": "sample:", "splits": {"train": 1.0}, **choices}
    return prepared(source, out, **choices)


def test_the_manifest_counts_what_people_overlook(tmp_path: Path) -> None:
    rows = [(f"sort list {number}", f"number {number}") for number in range(40)]
    rows += [("a 漢 漢 b", "plain"), ("<p>tags</p>", "漢字"), rows[0], rows[0], ("x 漢", "字")]
    manifest = prepare(table(tmp_path / "rows.csv", rows), tmp_path / "out")
    assert manifest.texts == TextFacts(45, 2, 2, [("漢", 4), ("字", 2)], 1, Repeats(2, 0, True))
    (warning,) = [text for text in manifest.warnings if "the vocabulary lacks" in text]
    assert warning.startswith("2 targets hold characters that the vocabulary lacks, such as 漢 字")


def test_rows_of_two_splits_are_counted(tmp_path: Path) -> None:
    train_rows = [(f"sort list {number}", "yes no"[number % 2 :: 2]) for number in range(30)]
    source = tmp_path / "source"
    source.mkdir()
    for name, rows in (("train.csv", train_rows), ("test.csv", [*train_rows[:4], ("another", "yes")])):
        table(source / name, rows)
    manifest = prepare(source, tmp_path / "out", splits=None)
    assert manifest.texts is not None
    assert manifest.texts.repeats == Repeats(4, 4, True)
    exact = prepare(source, tmp_path / "out", splits=None, dedup="exact")
    assert exact.texts is not None
    assert exact.texts.repeats is None


def test_counts_do_not_depend_on_order_format_or_cache(tmp_path: Path) -> None:
    chooser = random.Random(0)
    rows = [
        (f"{chooser.choice('漢字{}é')} text {number % 90}", f"t {chooser.choice('漢x')} {number % 9}")
        for number in range(200)
    ]
    facts = []
    for number in range(2):
        chooser.shuffle(rows)
        source = table(tmp_path / f"{number}.csv", rows)
        for cache_path in (None, tmp_path / "kept", tmp_path / "kept"):
            facts.append(prepare(source, tmp_path / "out", **({"cache": cache_path} if cache_path else {})).texts)
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    facts.append(prepare(lines, tmp_path / "out").texts)
    assert all(text_facts == facts[0] for text_facts in facts)
    assert facts[0] is not None
    assert facts[0].characters[0][1] > 10


def test_classes_that_are_one_for_the_tokenizer_are_refused(tmp_path: Path) -> None:
    rows = [(f"text {number}", ("漢", "字")[number % 2]) for number in range(40)]
    with raises(TaskError, "tokenizer.indistinct-classes"):
        prepare(table(tmp_path / "rows.csv", rows), tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    manifest = prepare(
        tmp_path / "rows.csv", tmp_path / "out", options={**TEXT2TEXT, "label_map": "漢=chinese,字=letter"}
    )
    assert manifest.labels == ["chinese", "letter"]

"""Long examples whose target follows the input word by word become parts with the same words on both sides."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from raised import raises
from small_corpora import bytes_of, prepared, records, rejected

from t5prep.errors import Reject, UsageError
from t5prep.sources import sample
from t5prep.tasks.corpora.diacritics_ro import without_diacritics
from t5prep.tasks.example import Example, Protected
from t5prep.tokens import loading
from t5prep.tokens.splitting import Splitter

WORDS = [
    "Soarele",
    "răsare",
    "în",
    "țară.",
    "Și",
    "vântul",
    "bate",
    "peste",
    "câmpuri,",
    "iar",
    "ploaia",
    "…",
    "nu",
    "vine!",
    "„Unde-i?”",
    "întreabă",
    "mama\nfără",
    "grabă",
]
# Same number of words on both sides, except for the row that says "drop"; its target has a word fewer.
TASK_CODE = """
from t5prep.tasks import Columns, Example, Task
def to_example(record, options):
    text = record["text"]
    return Example(None, text.lower(), text.removeprefix("drop "))
TASK = Task(to_example=to_example, columns=Columns(["text"]), never_cut=True)
"""


def _text(seed: int, words: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("newlines", [False, True])
def test_parts_are_the_whole_text_on_both_sides_and_fit(seed: int, newlines: bool) -> None:
    tokenizer = loading.load("sample:")
    target = _text(seed, 60 + seed)
    example = Example(None, (Protected("vorba: "), without_diacritics(target)), target, (target.upper(),))
    parts = Splitter(tokenizer, 40, 48, newlines)(example)
    assert len(parts) > 1
    texts = [str(part.inputs[1]) for part in parts]
    assert [part.targets.split() for part in parts] == [
        target.split()[begin:end]
        for begin, end in itertools.pairwise(itertools.accumulate([0, *(len(text.split()) for text in texts)]))
    ]
    for part, text in zip(parts, texts, strict=True):
        assert text == without_diacritics(part.targets)
        assert part.references == (part.targets.upper(),)
        assert part.inputs[0] == Protected("vorba: ")
        assert len(tokenizer.encode("vorba: " + text)) + 1 <= 40
        assert len(tokenizer.encode(part.targets)) + 1 <= 48


def test_a_part_ends_with_a_sentence_where_one_fits() -> None:
    parts = Splitter(loading.load("sample:"), 40, 40, False)(
        Example(None, "One two three. Four five. " * 9, "A b c. D e. " * 9)
    )
    assert {part.targets[-1] for part in parts} == {"."}


@pytest.mark.parametrize(
    ("inputs", "targets", "says"),
    [
        ("one two", "one", "too long to split: its input has 2 words, and its target 1"),
        ("x" * 400, "y" * 400, '" alone does not fit'),
        ((Protected("one"),), "one", "its input has 0 texts that could be taken apart"),
    ],
)
def test_what_cannot_be_aligned_is_a_reason(inputs, targets: str, says: str) -> None:
    with pytest.raises(Reject, match=says):
        Splitter(loading.load("sample:"), 32, 32, False)(Example(None, inputs, targets))


def test_every_row_is_accounted_for_and_its_parts_go_to_one_split(tmp_path: Path) -> None:
    texts = [_text(seed, 3 + 7 * seed) for seed in range(30)] + ["drop " + _text(99, 80), "y" * 500, ""]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "mine.py").write_text(TASK_CODE)
    options = {
        "task": str(tmp_path / "mine.py"),
        "tokenizer": sample.tokenizer_path(),
        "input_length": 48,
        "target_length": 48,
    }
    options |= {"splits": {"train": 0.5, "validation": 0.5}, "cache": tmp_path / "kept"}
    manifest = prepared(tmp_path / "rows.jsonl", tmp_path / "out", **options)
    row_counts = manifest.rows["rows.jsonl"]
    assert row_counts.read == len(texts)
    assert row_counts.read + row_counts.parts == row_counts.examples + row_counts.rejected + row_counts.blank
    assert manifest.ledger["split"]["examples"] - manifest.ledger["split"]["rows"] == row_counts.parts > 50
    assert {rejection["reason"].partition(":")[0] for rejection in rejected(tmp_path / "out")} >= {"too long to split"}
    splits: dict[str, set[str]] = {}
    parts: dict[str, list[int]] = {}
    for split, split_records in records(tmp_path / "out").items():
        for record in split_records:
            row, _, part = record["id"][0].decode().partition("/")
            splits.setdefault(row, set()).add(split)
            parts.setdefault(row, []).append(int(part or 1))
    assert all(len(numbers) == 1 for numbers in splits.values())
    assert all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in parts.values())
    prepared(tmp_path / "rows.jsonl", tmp_path / "again", **options)  # from the cache
    assert bytes_of(tmp_path / "again") == bytes_of(tmp_path / "out")


def test_other_tasks_refuse_to_split(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,n\na,1\n")
    options = {"inputs_column": "text", "targets_column": "text"}
    with raises(UsageError, "option.inapplicable", "text2text"):
        prepared(
            tmp_path / "rows.csv",
            tmp_path / "out",
            tokenizer="sample:",
            task="text2text",
            options=options,
            long="split",
        )

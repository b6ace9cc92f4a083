"""A document a file, its folder as class."""

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from raised import raises
from small_corpora import rejected

import t5prep
from t5prep.dataset import tfrecord
from t5prep.errors import T5prepError
from t5prep.reading import documents
from t5prep.tokens import loading

COMMON_OPTIONS: dict[str, Any] = {
    "format": "document",
    "tokenizer": "sample:",
    "inputs_column": "text",
    "targets_column": "folder",
}
COMMON_OPTIONS |= {"workers": 0, "input_length": 32, "target_length": 8}


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """A corpus with the layout of aclImdb."""
    for split in ("train", "test"):
        for label in ("good", "bad"):
            folder = tmp_path / "reviews" / split / label
            folder.mkdir(parents=True)
            for number in range(3):
                (folder / f"{number}.txt").write_text(f"the {label} line {number}\n\nof {split}, twice\r\n")
    return tmp_path / "reviews"


def answers(out: Path) -> dict[str, tuple[str, str, str]]:
    """Return the split, the input and the target of each record."""
    tokenizer, records = loading.load("sample:"), {}
    for split, facts in t5prep.load(out).splits.items():
        for shard in facts.shards:
            with open(out / shard.name, "rb") as file:
                for record in map(tfrecord.parse, tfrecord.read(file)):
                    texts = (
                        tokenizer.decode(record[name][: record[name].index(1)]) for name in ("input_ids", "labels")
                    )
                    records[record["id"][0].decode()] = (split, *texts)
    return records  # type: ignore[return-value]


def test_each_file_is_a_row_of_its_folder(reviews: Path, tmp_path: Path) -> None:
    t5prep.prepare("text2text", source=reviews, out=tmp_path / "a", **COMMON_OPTIONS)
    expected = {
        f"{split}/{label}/{number}.txt:1": (split, f"the {label} line {number} of {split}, twice", label)
        for split in ("train", "test")
        for label in ("good", "bad")
        for number in range(3)
    }
    assert answers(tmp_path / "a") == expected
    t5prep.prepare("text2text", source=f"{reviews}/*/*/*.txt", out=tmp_path / "b", **COMMON_OPTIONS)
    assert answers(tmp_path / "b") == expected
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        for path in sorted(reviews.rglob("*.txt")):
            archive.write(path, os.path.relpath(path, reviews))
    t5prep.prepare("text2text", source=tmp_path / "c.zip", out=tmp_path / "c", **COMMON_OPTIONS)
    assert answers(tmp_path / "c") == {f"c.zip/{id}": row for id, row in expected.items()}


def test_what_is_no_text_and_what_is_empty_is_rejected(reviews: Path, tmp_path: Path) -> None:
    (reviews / "train" / "good" / "0.txt").write_bytes(b"")
    (reviews / "train" / "good" / "1.txt").write_bytes(b"caf\xe9")
    t5prep.prepare("text2text", source=reviews, out=tmp_path / "a", **COMMON_OPTIONS)
    assert len(answers(tmp_path / "a")) == 10
    reasons = {line["file"]: line["reason"] for line in rejected(tmp_path / "a")}
    assert reasons["train/good/0.txt"] == "empty input"
    assert reasons["train/good/1.txt"].startswith("no")
    t5prep.prepare("text2text", source=reviews, out=tmp_path / "b", encoding="latin-1", **COMMON_OPTIONS)
    assert len(answers(tmp_path / "b")) == 11


def test_a_huge_document_is_refused(reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 20)
    with raises(T5prepError, "file.oversized-document"):
        t5prep.prepare("text2text", source=reviews, out=tmp_path / "a", **COMMON_OPTIONS)

"""The built-in sample: the same bytes everywhere, and quality that is learned from what is said alone."""

import collections
import csv
import hashlib
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import sentencepiece
from raised import raises

from t5prep import sources
from t5prep.errors import OutputError
from t5prep.sources import sample

CLASSES = ("HQ", "LQ_EDIT", "LQ_CLOSE")
Row = dict[str, str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.write(tmp_path_factory.mktemp("sample") / "questions.csv")


@pytest.fixture(scope="module")
def rows(written: Path) -> list[Row]:
    with written.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.fixture(scope="module")
def good(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["Y"] in CLASSES and row["Body"]]


@pytest.fixture(scope="module")
def model() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(sample.tokenizer_path()))


def words(row: Row) -> set[str]:
    return set(re.findall(r"\w+", row["Title"] + " " + row["Body"]))


def guessed(rows: list[Row], features: Callable[[Row], Iterable[str]]) -> float:
    """The accuracy of naive Bayes on the last 600 rows, learned from the others."""
    word_counts: dict[str, collections.Counter[str]] = {quality: collections.Counter() for quality in CLASSES}
    for row in rows[:-600]:
        word_counts[row["Y"]].update(features(row))
    vocabulary = set().union(*word_counts.values())
    total = {quality: counts.total() + len(vocabulary) for quality, counts in word_counts.items()}

    def guess(row: Row) -> str:
        known_words = [word for word in features(row) if word in vocabulary]
        return max(CLASSES, key=lambda y: sum(math.log((word_counts[y][word] + 1) / total[y]) for word in known_words))

    return sum(guess(row) == row["Y"] for row in rows[-600:]) / 600


def test_the_bytes_are_pinned(written: Path) -> None:
    assert hashlib.sha256(written.read_bytes()).hexdigest() == sample.SHA256


def test_the_sample_is_written_once_and_again_where_it_was_altered(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "questions.csv"
    path.write_bytes(written.read_bytes()[:-1])
    assert sample.write(path).read_bytes() == written.read_bytes()
    monkeypatch.setattr(sample.bz2, "decompress", lambda _: pytest.fail("it is there already"))
    assert sample.write(path) == path


def test_the_columns_and_rows_of_the_kaggle_set(rows: list[Row]) -> None:
    assert tuple(rows[0]) == ("Id", "Title", "Body", "Tags", "CreationDate", "Y")
    assert len(rows) == len({row["Id"] for row in rows}) == 4000
    assert len({row["Body"] for row in rows if row["Body"]}) == 3997
    assert all(re.fullmatch(r"(<[^<>]+>){1,4}", row["Tags"]) for row in rows)
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", row["CreationDate"]) for row in rows)


def test_the_classes_are_balanced_and_five_rows_are_bad(rows: list[Row]) -> None:
    labels = collections.Counter(row["Y"] for row in rows)
    assert labels.pop("UNRATED") == 2
    assert set(labels) == set(CLASSES)
    assert max(labels.values()) - min(labels.values()) <= 3
    assert sum(not row["Title"] and not row["Body"] for row in rows) == 3


def test_fields_hold_what_breaks_careless_readers(rows: list[Row]) -> None:
    text = "".join(row["Title"] + row["Body"] for row in rows)
    for mark in (",", '"', "\n", "“", "’", "ü", "Ł", "ș", "🤔", "&lt;", "{", "~", "\\", "^", "\t"):
        assert mark in text, mark


def test_quality_is_learnable_from_the_words(good: list[Row]) -> None:
    assert 0.90 <= guessed(good, words) <= 0.98


@pytest.mark.parametrize(
    "features",
    [
        pytest.param(lambda row: re.findall(r"</?\w+|&\w+;", row["Body"]), id="markup"),
        pytest.param(lambda row: row["Tags"].strip("<>").split("><"), id="tags"),
        pytest.param(lambda row: [str(len(row["Body"]) // 100)], id="length"),
        pytest.param(lambda row: [row["CreationDate"][:7]], id="date"),
    ],
)
def test_nothing_but_the_words_tells_the_class(good: list[Row], features: Callable[[Row], Iterable[str]]) -> None:
    assert guessed(good, features) < 0.45  # chance is 0.33


def test_no_single_word_gives_the_class_away(good: list[Row]) -> None:
    word_counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in good:
        for word in words(row):
            word_counts[word][row["Y"]] += 1
    common = {word: counts for word, counts in word_counts.items() if counts.total() >= 80}
    assert len(common) > 500
    assert {word: counts for word, counts in common.items() if max(counts.values()) > 0.95 * counts.total()} == {}


def test_the_tokenizer_has_t5s_conventions(model: sentencepiece.SentencePieceProcessor) -> None:
    assert model.get_piece_size() == 8000
    assert (model.pad_id(), model.eos_id(), model.unk_id(), model.bos_id()) == (0, 1, 2, -1)
    assert [model.id_to_piece(id) for id in range(3)] == ["<pad>", "</s>", "<unk>"]
    plain = [id for id in range(3, 8000) if not (model.is_control(id) or model.is_unknown(id) or model.is_byte(id))]
    assert len(plain) == 7997
    assert model.encode("a\n\u00a0 ﬁx", out_type=str) == model.encode("a fix", out_type=str)  # nmt_nfkc
    assert model.encode("<extra_id_0></s>") != [8099, 1]


@pytest.mark.parametrize("word", ["none", "low", "high"])
def test_a_class_is_one_piece(model: sentencepiece.SentencePieceProcessor, word: str) -> None:
    assert model.encode(word, out_type=str) == ["▁" + word]


def test_some_questions_are_longer_than_512_tokens(
    good: list[Row], model: sentencepiece.SentencePieceProcessor
) -> None:
    lengths = sorted(
        len(title) + len(body) + 2 for title, body in (model.encode([r["Title"], r["Body"]]) for r in good)
    )
    assert 0.03 <= sum(length > 512 for length in lengths) / len(lengths) <= 0.05
    assert 100 <= lengths[len(lengths) // 2] <= 256


def test_hardly_anything_is_unknown(good: list[Row], model: sentencepiece.SentencePieceProcessor) -> None:
    ids = [id for row in good for id in model.encode(row["Body"])]
    assert 0 < ids.count(model.unk_id()) / len(ids) < 0.001


def test_the_sample_is_small() -> None:
    assert sum(path.stat().st_size for path in sample.tokenizer_path().parent.glob("*") if path.is_file()) < 1_100_000


def test_a_cache_that_cannot_be_written_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "file"))
    with raises(OutputError, "output.unwritable"):
        sources.resolve("sample:")

import json
import random
from pathlib import Path

import pytest
from raised import raises
from small_corpora import prepared, rejected

from t5prep.errors import SourceError, T5prepError, UsageError
from t5prep.preparation import evaluation_sets

CHOICES = {"task": "text2text", "options": {"inputs_column": "text", "targets_column": "label", "id_column": "id"}}
WORDS = [f"word{i}" for i in range(900)]


def _text(seed: int, words: int = 40) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def _write(path: Path, texts: dict[str, str]) -> Path:
    path.write_text("".join(json.dumps({"id": id, "text": text, "label": "yes"}) + "\n" for id, text in texts.items()))
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Twenty texts: one has 13 words of an evaluation text, one 12 of them, one is a short one of them but for its marks."""
    evaluation_words = _text(1000).split()
    texts = {f"id{i}": _text(i) for i in range(17)}
    texts["thirteen"] = " ".join([_text(50), *evaluation_words[10:23], _text(51)])
    texts["twelve"] = " ".join([_text(52), *evaluation_words[10:22], _text(53)])
    texts["short"] = "What IS it, called?"
    return _write(tmp_path / "rows.jsonl", texts)


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    return _write(tmp_path / "held.jsonl", {"a": _text(1000), "b": "what is it called", "c": _text(1001)})


def test_rows_that_share_a_run_of_words_with_a_raw_set_are_rejected(
    corpus: Path, held_out: Path, tmp_path: Path
) -> None:
    manifest = prepared(corpus, tmp_path / "out", tokenizer="sample:", decontaminate=(str(held_out),), **CHOICES)
    assert manifest.rejected == {"leak": 2}
    assert list(manifest.evaluation_sets) == [str(held_out)]
    shared = " ".join(_text(1000).split()[10:23])
    assert {line["id"]: line["reason"] for line in rejected(tmp_path / "out")} == {
        "thirteen": f'leak: "{shared}" is in {held_out}',
        "short": f'leak: "What IS it, called" is in {held_out}',
    }
    assert manifest.rejected_tokens["leak"] > 13


def test_a_prepared_set_is_read_by_its_tokens(corpus: Path, held_out: Path, tmp_path: Path) -> None:
    prepared(held_out, tmp_path / "held", tokenizer="sample:", splits={"test": 1.0}, **CHOICES)
    manifest = prepared(
        corpus, tmp_path / "out", tokenizer="sample:", decontaminate=(str(tmp_path / "held"),), **CHOICES
    )
    assert {line["id"] for line in rejected(tmp_path / "out")} == {"thirteen", "short"}
    assert manifest.rejected == {"leak": 2}


def test_the_training_rows_of_an_earlier_dataset_are_left_out_of_the_next(
    corpus: Path, held_out: Path, tmp_path: Path
) -> None:
    last = str(tmp_path / "last")
    prepared(held_out, last, tokenizer="sample:", splits={"train": 0.999, "test": 0.001}, **CHOICES)
    manifest = prepared(corpus, tmp_path / "out", tokenizer="sample:", decontaminate=(f"{last}#train",), **CHOICES)
    assert {line["id"] for line in rejected(tmp_path / "out")} == {"thirteen", "short"}
    assert list(manifest.evaluation_sets) == [f"{last}#train"]
    with raises(UsageError, "split.unknown", f"{last}#validation", "train"):
        prepared(corpus, tmp_path / "no", tokenizer="sample:", decontaminate=(f"{last}#validation",), **CHOICES)


def test_fewer_words_find_more(corpus: Path, held_out: Path, tmp_path: Path) -> None:
    options = {"decontaminate": (str(held_out),), "decontaminate_words": 12, **CHOICES}
    prepared(corpus, tmp_path / "out", tokenizer="sample:", **options)
    assert {line["id"] for line in rejected(tmp_path / "out")} == {"thirteen", "twelve", "short"}


def test_another_evaluation_set_makes_other_kept_tokens(corpus: Path, held_out: Path, tmp_path: Path) -> None:
    options = {"decontaminate": (str(held_out),), "cache": tmp_path / "kept", **CHOICES}
    assert prepared(corpus, tmp_path / "one", tokenizer="sample:", **options).rejected == {"leak": 2}
    _write(held_out, {"a": _text(3)})
    assert prepared(corpus, tmp_path / "two", tokenizer="sample:", workers=1, **options).rejected == {"leak": 1}


def test_a_set_that_is_not_there_is_a_sentence(corpus: Path, tmp_path: Path) -> None:
    with raises(T5prepError, "source.not-found", "nothing.jsonl"):
        prepared(corpus, tmp_path / "out", tokenizer="sample:", decontaminate=("nothing.jsonl",), **CHOICES)
    assert not (tmp_path / "out").exists()


def test_what_is_written_is_read() -> None:
    evaluation_set = evaluation_sets.collect({"one": [_text(1)], "two": [_text(1), _text(2)]}, words=13)
    reloaded_set = evaluation_sets.loads(evaluation_set.dumps())
    assert reloaded_set.find([_text(2), _text(1), "", _text(3)]) == evaluation_set.find(
        [_text(2), _text(1), "", _text(3)]
    )
    assert [reason.rpartition(" ")[2] for reason in evaluation_set.find([_text(2), _text(1), _text(3)])] == [
        "two",
        "one",
        "",
    ]
    assert evaluation_set.digests() == reloaded_set.digests()


def test_a_set_without_texts_finds_nothing() -> None:
    assert evaluation_sets.collect({"labels": ["yes", "no"]}, words=13).find(["yes", _text(1)]) == ["", ""]


@pytest.mark.parametrize(
    ("encoding", "delimiter", "of_set"),
    [("cp1252", "", "cp1252"), ("cp1252", "", "utf-8"), ("utf-16", ";", "utf-16"), ("utf-8", "|", "utf-8")],
)
def test_a_raw_set_is_read_as_the_rows_are(encoding: str, delimiter: str, of_set: str, tmp_path: Path) -> None:
    """`--encoding` was said, and the error about the evaluation set asked for it again."""
    divider = delimiter or ","
    texts = ["a café, where naïve people sit all day long and talk of many things", "quite another text"]
    quoted = "".join(f'"{text}"{divider}yes\n' for text in texts)
    (tmp_path / "rows.csv").write_text(f"text{divider}label\n{quoted}", encoding)
    (tmp_path / "held.csv").write_text(f'label{divider}text\nyes{divider}"{texts[0]}"\n', of_set)
    options = {"inputs_column": "text", "targets_column": "label"}
    prepared(
        tmp_path / "rows.csv", tmp_path / "out", tokenizer="sample:", task="text2text", options=options, encoding=encoding,
        delimiter=delimiter, decontaminate=(str(tmp_path / "held.csv"),), splits={"train": 1.0},
    )  # fmt: skip
    assert [line["row"] for line in rejected(tmp_path / "out")] == [1]


def test_unknown_tokens_of_a_prepared_set_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What <unk> stood for is not known: nothing is found that is not there, and the message names what to compare with."""
    chinese = "世界经济史是一部基于假象和谎言的连续剧"
    raw_path = _write(tmp_path / "held.jsonl", {"a": f"{_text(7)} {chinese} {_text(8)}", "b": chinese})
    prepared(raw_path, tmp_path / "held", tokenizer="sample:", splits={"test": 1.0}, **CHOICES)
    rows = {"whole": chinese, "words": _text(7), "gap": " ".join([*_text(7).split()[-6:], *_text(8).split()[:7]])}
    corpus = _write(tmp_path / "rows.jsonl", rows)
    capsys.readouterr()
    for name, expected_ids in ((tmp_path / "held", {"words"}), (raw_path, {"words", "whole"})):
        prepared(
            corpus, tmp_path / f"out-{name.suffix}", tokenizer="sample:", decontaminate=(str(name),), splits={"train": 1.0}, **CHOICES
        )  # fmt: skip
        assert {line["id"] for line in rejected(tmp_path / f"out-{name.suffix}")} == expected_ids
        message = capsys.readouterr().err
        assert (f"--decontaminate {raw_path}" in message) == (name == tmp_path / "held")


def test_of_a_raw_set_in_splits_the_rows_for_evaluation_are_compared(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := tmp_path / "eval").mkdir()
    _write(folder / "train.jsonl", {"a": _text(0)})
    _write(folder / "test.jsonl", {"a": _text(1)})
    manifest = prepared(corpus, tmp_path / "out", tokenizer="sample:", decontaminate=(str(folder),), **CHOICES)
    assert {line["id"] for line in rejected(tmp_path / "out")} == {"id1"}
    assert f"--decontaminate {folder}: Reading only test, not train" in capsys.readouterr().err
    assert manifest.rejected == {"leak": 1}
    (folder / "none.jsonl").write_text('{"n": 1}\n')
    with raises(SourceError, "row.text-missing", f"--decontaminate {folder}/none.jsonl"):
        prepared(corpus, tmp_path / "no", tokenizer="sample:", decontaminate=(str(folder / "none.jsonl"),), **CHOICES)


def test_a_raw_set_is_read_as_its_card_says(corpus: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "eval").mkdir()
    card = '---\nconfigs:\n- config_name: default\n  data_files: a.csv\n  names: [id, text]\n  sep: "|"\n---\n'
    (folder / "README.md").write_text(card)
    (folder / "a.csv").write_text(f"a|{_text(1)}\nb|{_text(2)}\n")
    prepared(corpus, tmp_path / "out", tokenizer="sample:", decontaminate=(str(folder),), **CHOICES)
    assert {line["id"] for line in rejected(tmp_path / "out")} == {"id1", "id2"}

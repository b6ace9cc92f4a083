"""The honesty report: what T5's tokenizer and the sample's do to texts whose fate is known."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from raised import raises

from t5prep.cli import main
from t5prep.errors import TokenizerError
from t5prep.sources import sample
from t5prep.tokens import audit, huggingface_files, loading
from t5prep.tokens.audit import Report
from t5prep.tokens.tokenizer import Tokenizer
from tests import encoders


@pytest.fixture
def t5(shared_data):
    return Tokenizer((shared_data / "t5_tokenizer" / "spiece.model").read_bytes(), name="t5")


def summarize_losses(report: Report) -> dict[str, tuple[int, str]]:
    return {
        loss.name.split()[0] if loss.name[0] in "{}<~" else loss.name: (loss.count, loss.becomes)
        for loss in report.lost
    }


@pytest.mark.extra("seeds")
def test_what_t5_loses_of_code(t5):
    report = audit.examine(["if (x < 1) {\n\ty  =  ~x;\n}"], t5)
    assert summarize_losses(report) == {
        "<": (1, "<unk>"),
        "{": (1, "<unk>"),
        "}": (1, "<unk>"),
        "~": (1, "<unk>"),
        "newline": (2, "a space"),
        "tab": (1, "a space"),
        "run of spaces": (2, "one space"),
    }
    assert (report.texts, report.returned, report.changed) == (1, 0, 1)
    assert report.unknown == 4
    assert report.lost_share == 9 / report.characters


@pytest.mark.extra("seeds")
def test_plain_english_comes_back(t5):
    report = audit.examine(["The quick brown fox.", "It jumps over 12 lazy dogs!"], t5)
    assert (report.returned, report.changed, report.unknown, report.lost) == (2, 0, 0, [])
    assert report.words == 10
    assert audit.advice(report) == []


@pytest.mark.extra("seeds")
@pytest.mark.parametrize(
    ("text", "name", "becomes"),
    [
        ("a\u200bb", "U+200B ZERO WIDTH SPACE", "a space"),
        ("ﬁx", "ﬁ U+FB01 LATIN SMALL LIGATURE FI", "fi"),
        ("a\u00a0b", "U+00A0 NO-BREAK SPACE", "a space"),
        ("a\x01b", "U+0001", "nothing"),
    ],
)
def test_what_normalization_makes_of_a_character(t5, text, name, becomes):
    (loss,) = audit.examine([text], t5).lost
    assert (loss.name, loss.count, loss.becomes) == (name, 1, becomes)


@pytest.mark.extra("seeds")
def test_an_unknown_token_may_stand_for_several_characters(t5):
    report = audit.examine(["a{{}}b"], t5)
    assert report.unknown == 1
    assert sum(loss.count for loss in report.lost) == 4


@pytest.mark.extra("seeds")
def test_the_advice_is_what_one_types(t5):
    report = audit.examine(["<p>a</p>\n<p>{b}</p>"] * 20, t5)
    advice = " ".join(audit.advice(report))
    for flag in ("--keep-newlines", "--html strip", "--byte-fallback"):
        assert flag in advice


@pytest.mark.extra("seeds")
@pytest.mark.parametrize(
    ("text", "theirs", "field"),
    [
        ("fine", lambda ids: ids, "equal"),
        ("----", lambda ids: [ids[0], *ids[:0:-1]], "ties"),
        ("a <unk> b", lambda ids: [5], "spelled"),
        ("other", lambda ids: [5], "unexplained"),
    ],
)
def test_why_a_tokenizer_json_has_other_ids(t5, text, theirs, field):
    by_file = lambda texts: [theirs(ids) for ids in t5.processor.encode(texts)]  # noqa: E731
    report = audit.examine([text], t5, in_transformers={"transformers 4": by_file})
    advice = "By transformers 4, 1 text would get other ids, for example 'other'"
    assert any(advice in sentence for sentence in audit.advice(report)) == (text == "other")
    agreement = report.agreements["transformers 4"]
    assert (agreement.texts, getattr(agreement, field)) == (1, 1)
    assert agreement.equal + agreement.ties + agreement.spelled + agreement.unexplained == 1


@pytest.mark.extra("seeds")
def test_unknown_characters_are_counted_as_sentencepiece_counts_them(t5, shared_data):
    """Character by character, on real text: every character that is <unk>, and no other."""
    text = (shared_data / "stackoverflow" / "questions_cp1252.csv").read_bytes().decode("cp1252")
    texts = [line for line in text.split("\n") if line.strip() and "´" not in line]  # normalizes to space + accent
    unknown = 0
    for line in texts:
        pairs = zip(t5.processor.encode(line), t5.processor.encode(line, out_type=str), strict=True)
        unknown += sum(len(piece) for token, piece in pairs if token == t5.unk_id)
    report = audit.examine(texts, t5)
    assert sum(loss.count for loss in report.lost if loss.becomes == "<unk>") == unknown > 10_000


def test_the_sample_with_its_tokenizer():
    tokenizer = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")
    bodies = [row["Body"] for row in csv.DictReader(io.StringIO(sample.rows().decode(), newline=""))][:300]
    report = audit.examine(bodies, tokenizer)
    summary = report.to_json()
    assert summary["texts"] == 300
    assert 0 < summary["unk_rate"] < 0.002
    assert {loss["name"] for loss in summary["lost"]} >= {"newline", "run of spaces"}
    assert any("--keep-newlines" in sentence for sentence in summary["advice"])


def test_a_tokenizer_json_that_cannot_be_read_is_a_sentence(capfd: pytest.CaptureFixture) -> None:
    with raises(TokenizerError, "tokenizer.damaged"):
        audit.encode_by(b'{"model": {}}', name="it")
    broken = huggingface_files.tokenizer_json(Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:"))
    normalizer = broken["normalizer"]
    charsmap = next(step for step in [normalizer, *normalizer.get("normalizers", [])] if step["type"] == "Precompiled")
    charsmap["precompiled_charsmap"] = "AAAA"
    with raises(TokenizerError, "tokenizer.damaged"):
        audit.encode_by(json.dumps(broken).encode(), name="it")
    assert capfd.readouterr().err == ""


@pytest.mark.extra("seeds")
def test_padding_and_truncation_are_not_compared(t5):
    padding = {"strategy": {"Fixed": 16}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    document = {**huggingface_files.tokenizer_json(t5), "truncation": truncation}
    content = json.dumps({**document, "padding": {**padding, "pad_to_multiple_of": None}}).encode()
    by_file = {"the file": audit.encode_by(content, name="it")}
    report = audit.examine(["The quick brown fox."], t5, in_transformers=by_file)
    assert report.agreements == {"the file": audit.Agreement(texts=1, equal=1)}


@pytest.mark.parametrize("has_json", [False, True])
def test_check_reads_the_folders_of_google(tmp_path: Path, has_json: bool) -> None:
    """google/t5-v1_1-* and google/mt5-* have a spiece.model, and no tokenizer.json."""
    sample_tokenizer = loading.load("sample:")
    (tmp_path / "spiece.model").write_bytes(sample_tokenizer.model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 100}))
    if has_json:
        (tmp_path / "tokenizer.json").write_text(json.dumps(huggingface_files.tokenizer_json(sample_tokenizer)))
    (tmp_path / "rows.csv").write_text("text\nsort a list\n")
    arguments = ["tokenizer", "check", str(tmp_path), "--source", str(tmp_path / "rows.csv"), "--column", "text"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    sources = ["the folder's tokenizer.json" if has_json else "transformers 4", "transformers 5"]
    assert [f"same ids           100.00%  of texts by {source};" in result.output for source in sources] == [True, True]
    assert "advice" not in result.output


def test_a_tokenizer_json_is_examined_too(tmp_path):
    bert = loading.load(str(encoders.bert(tmp_path / "bert")))
    by_file = audit.encode_by(bert.model, name="bert")
    report = audit.examine(["a charming film .", "A movie {"], bert, in_transformers={"the file": by_file})
    assert summarize_losses(report) == {"A U+0041 LATIN CAPITAL LETTER A": (1, "a"), "{": (1, "<unk>")}
    assert (report.texts, report.returned) == (2, 0)  # "film." comes back
    assert report.agreements == {"the file": audit.Agreement(texts=2, equal=2)}

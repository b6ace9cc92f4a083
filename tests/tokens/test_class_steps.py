"""What transformers 4 and 5 make of a folder by its class: the ids of `tokenizer check`, and refused folders."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from raised import raises

from t5prep.cli import main
from t5prep.errors import TokenizerError
from t5prep.tokens import audit, class_steps, huggingface_files, loading, model_proto
from t5prep.tokens.special_tokens import added
from tests import encoders, published_folders

SAMPLE = loading.load("sample:")


def check(folder: Path, *texts: str) -> audit.Report:
    tokenizer = loading.load(str(folder))
    documents = loading.as_in_transformers(str(folder), tokenizer)
    encoders_ = {source: audit.encode_by(content, name="it") for source, content in documents.items()}
    return audit.examine(texts, tokenizer, in_transformers=encoders_)


def differing(report: audit.Report) -> dict[str, list[str]]:
    return {source: agreement.examples for source, agreement in report.agreements.items()}


@pytest.mark.parametrize("family", published_folders.FAMILIES)
def test_check_calls_published_folders_sound(tmp_path: Path, family: str) -> None:
    folder = published_folders.FAMILIES[family](tmp_path / family)
    (tmp_path / "rows.csv").write_text("text\n" + "\n".join(f'"{line}"' for line in encoders.SENTENCES[:4]))
    arguments = [
        "tokenizer",
        "check",
        str(folder),
        "--source",
        str(tmp_path / "rows.csv"),
        "--column",
        "text",
        "--json",
    ]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    agreements = json.loads(result.output)["agreements"]
    assert [counts["unexplained"] for counts in agreements.values()] == [0] * len(agreements)
    assert bool(agreements) == (family not in ("byt5", "codet5", "bert", "roberta"))  # these have one way for all


def test_check_names_texts_with_marks_that_transformers_maps_by_graphemes(tmp_path: Path) -> None:
    folder = published_folders.t5_v1_1(tmp_path / "t5")
    dropped, kana, plain = "see\u0301\u0323 it", "k \u304b\u3099 k", "se\u0301e it, caf\xe9"
    report = check(folder, dropped, kana, plain)
    assert differing(report) == {"transformers 4": [dropped, kana], "transformers 5": [dropped, kana]}
    tokenizer = loading.load(str(folder))
    assert tokenizer.encode(dropped) == tokenizer.encode(
        "se\xe9\u0323 it"
    )  # as SentencePiece maps it, and T5 was trained
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in (dropped, plain)))
    arguments = ["tokenizer", "check", str(folder), "--source", str(tmp_path / "rows.jsonl"), "--column", "text"]
    result = CliRunner().invoke(main, arguments)
    assert "same ids            50.00%  of texts by transformers 5;" in result.output
    assert f"By transformers 4, 1 text would get other ids, for example {dropped!r}." in result.output


def test_check_names_characters_that_only_sentencepiece_spells_in_bytes(tmp_path: Path) -> None:
    report = check(published_folders.mt5(tmp_path / "mt5"), "rows \u6f22", "rows")
    assert differing(report) == {"transformers 4": ["rows \u6f22"], "transformers 5": ["rows \u6f22"]}


def test_a_deberta_has_the_ids_of_transformers_4_and_check_says_those_of_5(tmp_path: Path) -> None:
    from tokenizers import Regex, Tokenizer, normalizers

    folder = published_folders.deberta(tmp_path / "deberta")
    tokenizer = loading.load(str(folder))
    theirs = Tokenizer.from_str(tokenizer.model.decode())
    charsmap = model_proto.charsmap((folder / "spm.model").read_bytes())
    theirs.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    odd = ["\n\x01\u2009\u202f\r\u200b\x01", "\x85\u3000\x7fa\ufeff\x7f \x01", "a line\u200b ", "\u1680\ufeff\x01\x7f"]
    for text in odd:
        assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text
    plain, ligature = "it 's a line .", "a \ufb01le \u2026"
    assert differing(check(folder, plain, ligature)) == {"transformers 5": [ligature]}


@pytest.mark.parametrize("option", ["do_lower_case", "split_by_punct"])
def test_options_of_a_deberta_change_its_ids(tmp_path: Path, option: str) -> None:
    from tokenizers import Tokenizer, pre_tokenizers

    folder = published_folders.deberta(tmp_path / "deberta")
    plain = loading.load(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({option: True, "vocab_type": "spm"}))
    tokenizer, text = loading.load(str(folder)), 'The "rows", OF files: (folder)'
    if option == "do_lower_case":
        assert tokenizer.encode(text) == plain.encode(text.lower()) != plain.encode(text)
        return
    theirs = Tokenizer.from_str(plain.model.decode())
    theirs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Metaspace()])
    assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids != plain.encode(text)


@pytest.mark.parametrize("family", ["t5_v1_1", "umt5", "mt5"])
def test_a_t5_without_a_space_before_texts_is_refused(tmp_path: Path, family: str) -> None:
    folder = published_folders.FAMILIES[family](tmp_path / family)
    plain, config = loading.load(str(folder)), json.loads((folder / "tokenizer_config.json").read_text())
    for option in (False, None):
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "add_prefix_space": option}))
        with raises(
            TokenizerError, "tokenizer.ambiguous-prefix-space", str(json.dumps(option)), "tokenizer_config.json"
        ):
            loading.load(str(folder))
    (folder / "tokenizer.json").write_text(json.dumps(class_steps.converted(plain)))  # beside which null says nothing
    assert loading.load(str(folder)).model == plain.model


def saved_t5(folder: Path, tokenizer_class: str, *tokens: dict[str, Any]) -> Path:
    """Write a T5 with added tokens as transformers 4 saves it."""
    document = class_steps.converted(SAMPLE)
    document["added_tokens"] += [{**token, "id": SAMPLE.size + index} for index, token in enumerate(tokens)]
    files = {"tokenizer.json": document, "tokenizer_config.json": {"tokenizer_class": tokenizer_class}}
    return published_folders.written(folder, {"spiece.model": SAMPLE.model, **files})


def test_added_tokens_for_which_transformers_5_has_other_ids_are_refused(tmp_path: Path) -> None:
    brace = added(0, "{{", special=False, normalized=True)
    with raises(TokenizerError, "tokenizer.unsupported-class", "T5Tokenizer"):
        loading.load(str(saved_t5(tmp_path / "class", "T5Tokenizer", brace)))
    tokenizer = loading.load(str(saved_t5(tmp_path / "any", "PreTrainedTokenizerFast", brace)))
    assert SAMPLE.size in tokenizer.encode("a {{ b")
    assert loading.load(str(saved_t5(tmp_path / "none", "T5Tokenizer"))).model == SAMPLE.model
    blank = added(0, "\n", special=False, normalized=True)  # transformers finds it between all letters
    with raises(TokenizerError, "tokenizer.blank-added-token", "\\n"):
        loading.load(str(saved_t5(tmp_path / "blank", "T5Tokenizer", blank)))
    folder = saved_t5(tmp_path / "umt5", "T5Tokenizer", brace)  # transformers 5 reads the file of umT5 as it is
    (folder / "config.json").write_text('{"model_type": "umt5"}')
    assert loading.load(str(folder)).encode("a {{ b") == tokenizer.encode("a {{ b")


def test_the_steps_of_transformers_5_are_accepted_with_added_tokens(tmp_path: Path) -> None:
    folder = saved_t5(tmp_path / "t5", "T5Tokenizer", added(0, "{{", special=False, normalized=True))
    document = json.loads((folder / "tokenizer.json").read_text())
    rebuilt = class_steps.rebuilt(document, {}, "t5tokenizer")
    assert rebuilt is not None
    (folder / "tokenizer.json").write_text(json.dumps(rebuilt))
    assert class_steps.rebuilt(rebuilt, {}, "t5tokenizer") is None
    space = next(id for id in range(SAMPLE.vocab_size) if SAMPLE.piece(id) == "▁")
    ids = loading.load(str(folder)).encode("a {{ b")
    assert ids[ids.index(SAMPLE.size) - 1] != space


def test_an_encoder_with_a_sentencepiece_model_alone_is_refused_with_the_command(tmp_path: Path) -> None:
    config = {"model_type": "xlm-roberta"}
    folder = published_folders.written(tmp_path / "x", {"sentencepiece.bpe.model": SAMPLE.model, "config.json": config})
    with raises(TokenizerError, "tokenizer.missing-file"):
        loading.load(str(folder))


def test_an_mt5_with_added_tokens_keeps_its_sentinels(tmp_path: Path) -> None:
    plain = loading.load(str(published_folders.mt5(tmp_path / "mt5")))
    document = huggingface_files.tokenizer_json(plain)
    document["added_tokens"].append({**added(0, "<sep>"), "id": plain.size})
    files = {"tokenizer.json": document, "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}
    tokenizer = loading.load(str(published_folders.written(tmp_path / "added", files)))
    assert [tokenizer.sentinel(number) for number in (0, 1, 99)] == [plain.sentinel(number) for number in (0, 1, 99)]
    assert (tokenizer.sentinels, tokenizer.size) == (100, plain.size + 1)
    ids = tokenizer.encode("a <extra_id_3> b <sep>")
    assert plain.size in ids
    assert plain.sentinel(3) not in ids
    assert tokenizer.decode([*tokenizer.encode("rows"), tokenizer.sentinel(3)]) == "rows <extra_id_3>"

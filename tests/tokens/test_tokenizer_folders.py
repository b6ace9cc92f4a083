"""Tokenizer folders as people have them: other numbers of sentinels, tokens that a user added, files that contradict each other."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from raised import raises

from t5prep.errors import TokenizerError
from t5prep.tasks.example import EOS, Example, Part
from t5prep.tasks.targets import ClassTarget
from t5prep.tokens import huggingface_files, loading, model_proto
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.featurizer import Featurizer
from t5prep.tokens.ragged import Frame
from t5prep.tokens.special_tokens import added
from t5prep.tokens.tokenizer import Tokenizer
from tests import encoders

SAMPLE = loading.load("sample:")


def write_json(folder: Path, name: str, content: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content))


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def t5_folder(folder: Path, **config: Any) -> Path:
    """Write a T5 as google publishes it: spiece.model and two small files."""
    folder.mkdir(exist_ok=True)
    (folder / "spiece.model").write_bytes(SAMPLE.model)
    write_json(folder, "tokenizer_config.json", {"tokenizer_class": "T5Tokenizer", **config})
    return folder


def sentinels(count: int) -> list[str]:
    return [f"<extra_id_{number}>" for number in range(count)]


@pytest.mark.parametrize("stated", ["extra_ids", "additional_special_tokens", "special_tokens_map"])
def test_umt5_has_300_sentinels(tmp_path: Path, stated: str) -> None:
    config: dict[str, Any] = {"extra_ids": 300} if stated == "extra_ids" else {}
    if stated == "additional_special_tokens":
        config |= {"additional_special_tokens": sentinels(300)}
    folder = t5_folder(tmp_path / "umt5", **config)
    if stated == "special_tokens_map":
        write_json(folder, "special_tokens_map.json", {"additional_special_tokens": sentinels(300)})
    tokenizer = loading.load(str(folder))
    pieces = SAMPLE.vocab_size
    assert [tokenizer.sentinel(number) for number in (0, 1, 299)] == [pieces + 299, pieces + 298, pieces]
    assert (tokenizer.sentinels, tokenizer.size, tokenizer.slow) == (300, pieces + 300, "")
    text = "fill <extra_id_7> in, and {more}"
    assert tokenizer.encode(text) == SAMPLE.encode(text)
    assert tokenizer.decode([pieces + 292, *SAMPLE.encode("a list")]) == "<extra_id_7> a list"
    reloaded_tokenizer = loading.of_content(tokenizer.model, name="staged")  # as a worker and a run keep it
    assert (reloaded_tokenizer.sentinel(0), reloaded_tokenizer.sentinels) == (pieces + 299, 300)


def test_umt5_is_written_and_read_again(tmp_path: Path) -> None:
    tokenizer = Tokenizer(model_proto.with_sentinels(SAMPLE.model, 300), name="umt5")
    huggingface_files.write(tmp_path, tokenizer, config={"model_type": "umt5"})
    reloaded_tokenizer = loading.load(str(tmp_path))
    assert (reloaded_tokenizer.model, reloaded_tokenizer.sentinels) == (tokenizer.model, 300)
    (tmp_path / "spiece.model").unlink()
    of_json = loading.load(str(tmp_path))
    assert [of_json.sentinel(n) for n in range(300)] == [tokenizer.sentinel(n) for n in range(300)]
    assert of_json.encode("sort a list") == tokenizer.encode("sort a list")


def test_sentinels_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with raises(TokenizerError, "tokenizer.config-conflict", "100", "50"):
        loading.load(str(t5_folder(tmp_path, extra_ids=50, additional_special_tokens=sentinels(100))))
    decoder = {str(SAMPLE.vocab_size + number): added(0, f"<extra_id_{number}>") for number in range(100)}
    with raises(TokenizerError, "tokenizer.inconsistent-ids", "8,000", "<extra_id_0>"):
        loading.load(str(t5_folder(tmp_path, added_tokens_decoder=decoder)))


def mt5() -> bytes:
    """Return a model whose last pieces are its sentinels, as mT5's is: `▁<extra_id_0>`."""
    texts = [f"▁{text}" for text in reversed(sentinels(100))]
    pieces = [*model_proto.SPECIAL, *(model_proto.Piece(text, -2.0) for text in ("▁", "a", "b", *texts))]
    return model_proto.build(pieces, model_proto.Normalization("identity"))


def test_an_mt5_is_written_without_sentinels_above_its_own(tmp_path: Path) -> None:
    tokenizer = Tokenizer(mt5(), name="mt5")
    huggingface_files.write(tmp_path, tokenizer, config={"model_type": "mt5"})
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    assert max(token["id"] for token in document["added_tokens"]) < tokenizer.vocab_size
    assert len(document["model"]["vocab"]) == tokenizer.vocab_size
    assert loading.load(str(tmp_path)).sentinel(0) == tokenizer.sentinel(0) == tokenizer.vocab_size - 1


def with_added(folder: Path, *tokens: dict[str, Any]) -> Path:
    """Write a T5's tokenizer.json to which a user added tokens behind its sentinels."""
    document = huggingface_files.tokenizer_json(SAMPLE)
    document["added_tokens"] += [{**token, "id": SAMPLE.size + index} for index, token in enumerate(tokens)]
    write_json(folder, "tokenizer.json", document)
    write_json(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    return folder


BRACE, SEPARATOR = added(0, "{{", special=False, normalized=True), added(0, "<sep>")


@pytest.mark.parametrize("has_model", [False, True])
def test_added_tokens_have_the_ids_of_the_folder(tmp_path: Path, has_model: bool) -> None:
    from tokenizers import Tokenizer as FastTokenizer

    folder = with_added(tmp_path / "t5", BRACE, SEPARATOR)
    if has_model:
        (folder / "spiece.model").write_bytes(SAMPLE.model)
    tokenizer = loading.load(str(folder))
    fast = FastTokenizer.from_file(str(folder / "tokenizer.json"))
    texts = ["select {{name}} from t", "a<sep>b <sep> c", "{{", "int main() {{ return 0; }"]
    for text in texts:
        assert tokenizer.encode(text) == fast.encode(text, add_special_tokens=False).ids
    assert SAMPLE.size in tokenizer.encode("a {{ b")
    assert SAMPLE.size + 1 in tokenizer.encode("a <sep> b")
    assert tokenizer.decode(tokenizer.encode("sort a <sep> list")) == "sort a<sep> list"
    assert (tokenizer.size, tokenizer.sentinels, tokenizer.sentinel(0)) == (SAMPLE.size + 2, 100, SAMPLE.sentinel(0))
    assert tokenizer.frame == Frame((), (1,), (1,))
    plain = tokenizer.encode("</s> <extra_id_3>")  # text is only text
    assert not {tokenizer.eos_id, tokenizer.sentinel(3)} & {*plain}
    reloaded_tokenizer = loading.of_content(tokenizer.model, name="staged")
    assert [reloaded_tokenizer.encode(text) for text in texts] == [tokenizer.encode(text) for text in texts]


def test_added_tokens_of_small_files_alone_are_refused(tmp_path: Path) -> None:
    folder = t5_folder(tmp_path / "slow")
    write_json(folder, "added_tokens.json", {"{": SAMPLE.size})
    with raises(TokenizerError, "tokenizer.missing-json", "spiece.model"):
        loading.load(str(folder))
    assert loading.load(str(folder / "spiece.model")).size == SAMPLE.size  # a file is only itself


def test_added_white_space_that_is_normalized_is_refused(tmp_path: Path) -> None:
    with raises(TokenizerError, "tokenizer.blank-added-token", "\\n"):
        loading.load(str(with_added(tmp_path / "t5", added(0, "\n", special=False, normalized=True))))
    tokenizer = loading.load(str(with_added(tmp_path / "new", added(0, "\n", special=False))))
    assert SAMPLE.size in tokenizer.encode("a\nb")


def test_tokens_added_to_bytes_are_refused(tmp_path: Path) -> None:
    write_json(tmp_path, "tokenizer_config.json", {"tokenizer_class": "ByT5Tokenizer"})
    assert loading.load(str(tmp_path)).is_bytes
    write_json(tmp_path, "added_tokens.json", {"<sep>": 384})
    with raises(TokenizerError, "tokenizer.unsupported-added-token", "<sep>"):
        loading.load(str(tmp_path))


@pytest.mark.parametrize("make", [encoders.bert, encoders.roberta], ids=["vocab.txt", "vocab.json"])
def test_added_tokens_of_an_encoder_are_found(tmp_path: Path, make: Any) -> None:
    folder = make(tmp_path / "model")
    plain = loading.load(str(folder))
    assert isinstance(plain, EncoderTokenizer)
    assert plain._encode_by_words is not None
    write_json(folder, "added_tokens.json", {"[E1]": plain.size, "new york": plain.size + 1})
    write_json(folder, "special_tokens_map.json", {"additional_special_tokens": ["[E1]"]})
    tokenizer = loading.load(str(folder))
    assert isinstance(tokenizer, EncoderTokenizer)
    assert tokenizer._encode_by_words is None
    ids = tokenizer.encode("a [E1] new york movie")
    assert {plain.size, plain.size + 1} <= {*ids}
    assert tokenizer.size == plain.size + 2
    assert tokenizer.encode("[SEP] </s>") == plain.encode("[SEP] </s>")
    assert "[E1]" in tokenizer.decode(ids)
    write_json(folder, "added_tokens.json", {"[E1]": plain.size + 7})
    with raises(TokenizerError, "tokenizer.inconsistent-ids", "[E1]"):
        loading.load(str(folder))


def bert_json(folder: Path, **changes: Any) -> Path:
    """Write a BERT's tokenizer.json, changed, and no vocab.txt."""
    encoders.bert(folder)
    write_json(folder, "tokenizer.json", {**json.loads(loading.load(str(folder)).model), **changes})
    (folder / "vocab.txt").unlink()
    return folder


def template(**texts: str) -> dict[str, Any]:
    from tokenizers import processors

    special = [("[CLS]", 2), ("[SEP]", 3)]
    return dict(json.loads(processors.TemplateProcessing(**texts, special_tokens=special).__getstate__()))


def ids_of(tokenizer: Tokenizer, *texts: str) -> list[int]:
    """Return the ids of one row of these texts, as a dataset with labels has them."""
    featurizer = Featurizer(
        tokenizer, input_length=32, target_length=4, policy="head", marker="none", target=ClassTarget(("x", "y"))
    )
    inputs: tuple[Part, ...] = tuple(part for text in texts for part in (EOS, text))[1:]
    (row,) = featurizer.inputs_of([Example("1", inputs, "x")])
    return row.ids.tolist()  # type: ignore[union-attr]


SINGLE, PAIR = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"


def test_a_template_of_single_texts_is_sound_for_single_texts(tmp_path: Path) -> None:
    tokenizer = loading.load(str(bert_json(tmp_path / "bert", post_processor=template(single=SINGLE))))
    assert ids_of(tokenizer, "a movie") == [2, *tokenizer.encode("a movie"), 3]
    with raises(TokenizerError, "tokenizer.missing-template", "pair"):
        ids_of(tokenizer, "a movie", "a film")


def test_a_template_of_pairs_is_sound_for_pairs(tmp_path: Path) -> None:
    tokenizer = loading.load(str(bert_json(tmp_path / "bert", post_processor=template(single="$A", pair=PAIR))))
    expected = [2, *tokenizer.encode("a movie"), 3, *tokenizer.encode("a film"), 3]
    assert ids_of(tokenizer, "a movie", "a film") == expected
    with raises(TokenizerError, "tokenizer.missing-template", "single"):
        ids_of(tokenizer, "a movie")


def test_padding_and_truncation_of_a_file_change_no_ids(tmp_path: Path) -> None:
    padding = {"strategy": {"Fixed": 16}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    folder = bert_json(tmp_path / "bert")
    text = "a gorgeous , witty , seductive movie ."
    plain = loading.load(str(folder)).encode(text)
    change_json(folder / "tokenizer.json", padding={**padding, "pad_to_multiple_of": None}, truncation=truncation)
    assert loading.load(str(folder)).encode(text) == plain
    assert len(plain) > 4


@pytest.mark.parametrize(
    ("make", "changes", "config", "message"),
    [
        (
            "bert",
            {},
            {"do_lower_case": False},
            ("tokenizer.config-conflict", "lowercase", "true", "do_lower_case", "false"),
        ),
        ("bert", {}, {"strip_accents": True}, ("tokenizer.config-conflict", "strip_accents", "null", "true")),
        ("bert", {"normalizer": {"type": "Lowercase"}}, {}, ("tokenizer.unsupported-class", "Lowercase")),
        (
            "bert",
            {},
            {"add_bos_token": False, "bos_token": "[CLS]"},
            ("tokenizer.config-conflict", '"add_bos_token": false', "tokenizer.json"),
        ),
        ("roberta", {}, {"add_prefix_space": True}, ("tokenizer.config-conflict", "false", "true")),
        (
            "codet5",
            {},
            {"add_bos_token": False},
            ("tokenizer.config-conflict", '"add_bos_token": false', "tokenizer.json"),
        ),
    ],
)
def test_files_that_contradict_each_other_are_refused(
    tmp_path: Path, make: str, changes: dict[str, Any], config: dict[str, Any], message: tuple[str, ...]
) -> None:
    folder = getattr(encoders, make)(tmp_path / "model")
    write_json(folder, "tokenizer.json", {**json.loads(loading.load(str(folder)).model), **changes})
    if not changes:
        loading.load(str(folder))
    change_json(folder / "tokenizer_config.json", **config)
    with raises(TokenizerError, *message):
        loading.load(str(folder))


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (
            lambda document: document["model"]["vocab"].__setitem__(40, ["zz", -3.0]),
            ("'zz'",),
        ),
        (
            lambda document: document["model"]["vocab"].__setitem__(40, [document["model"]["vocab"][40][0], -1.0]),
            (),
        ),
        (lambda document: document["normalizer"]["normalizers"].append({"type": "Lowercase"}), ("Lowercase",)),
        (lambda document: document["normalizer"]["normalizers"].pop(0), ()),
        (lambda document: document["pre_tokenizer"].update(prepend_scheme="never"), ()),
    ],
)
def test_a_model_and_a_json_with_other_ids_are_refused(tmp_path: Path, change: Any, values: tuple[str, ...]) -> None:
    folder = t5_folder(tmp_path)
    document = copy.deepcopy(huggingface_files.tokenizer_json(SAMPLE))
    write_json(folder, "tokenizer.json", document)
    assert loading.load(str(folder)).model == SAMPLE.model
    change(document)
    write_json(folder, "tokenizer.json", document)
    with raises(TokenizerError, "tokenizer.file-conflict", "spiece.model", *values):
        loading.load(str(folder))


def test_a_token_with_two_ids_or_two_ways_is_refused(tmp_path: Path) -> None:
    folder = with_added(tmp_path / "t5", BRACE)
    token = {**BRACE, "id": SAMPLE.size}
    write_json(folder, "tokenizer_config.json", {"added_tokens_decoder": {str(SAMPLE.size + 5): token}})
    with raises(TokenizerError, "tokenizer.inconsistent-ids", "8,100", "8,105"):
        loading.load(str(folder))
    write_json(folder, "tokenizer_config.json", {"added_tokens_decoder": {str(SAMPLE.size): {**token, "rstrip": True}}})
    with raises(TokenizerError, "tokenizer.config-conflict", "False", "True", "rstrip"):
        loading.load(str(folder))


@pytest.mark.parametrize("add_bos_token", [True, False])
def test_a_llama_without_a_json_is_refused(tmp_path: Path, add_bos_token: bool) -> None:
    folder = t5_folder(tmp_path, tokenizer_class="LlamaTokenizer", add_bos_token=add_bos_token)
    with raises(TokenizerError, "tokenizer.missing-json"):
        loading.load(str(folder))


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}


def llama_folder(folder: Path, *, pad: str = "<pad>") -> Path:
    """Write a Llama's tokenizer as transformers 5 saves it, beside a SentencePiece model."""
    import sentencepiece

    texts = folder.parent / "texts.txt"
    texts.write_text("x a b the fox\nthe box of a fox x\n" * 40)
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        **{"input": str(texts), "model_prefix": str(folder / "tokenizer"), "vocab_size": 290, "model_type": "bpe"},
        **{"byte_fallback": True, "remove_extra_whitespaces": False, "pad_id": 3, "pad_piece": pad, "minloglevel": 2},
        **{"normalization_rule_name": "identity", "hard_vocab_limit": False},
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    ids = {model.id_to_piece(id): id for id in range(model.get_piece_size())}
    pairs = ((left, right, ids[left + right]) for left in ids for right in ids if left + right in ids)
    merges = [[left, right] for left, right, _ in sorted(pairs, key=lambda pair: pair[2])]
    roles = ["<unk>", "<s>", "</s>", *(["<pad>"] if pad == "<pad>" else [])]
    document = {
        "version": "1.0",
        "added_tokens": [added(ids[text], text) for text in roles],
        "normalizer": None,
        "pre_tokenizer": METASPACE,
        "model": {"type": "BPE", "vocab": ids, "merges": merges, "unk_token": "<unk>", "byte_fallback": True},
    }
    write_json(folder, "tokenizer.json", document)
    write_json(folder, "tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False})
    return folder


def test_a_llama_writes_the_spaces_of_a_text_as_its_json_says(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as FastTokenizer

    folder = llama_folder(tmp_path / "llama")
    theirs, tokenizer = FastTokenizer.from_file(str(folder / "tokenizer.json")), loading.load(str(folder))
    for text in (" x", "x", "  a  b", "the fox ", "a\nb é"):
        assert tokenizer.encode(text) == theirs.encode(text).ids
    assert [tokenizer.piece(id) for id in tokenizer.encode(" x")] == ["▁x"]


def test_a_llama_for_which_transformers_has_two_answers_is_refused(tmp_path: Path) -> None:
    folder = llama_folder(tmp_path / "llama")
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    steps = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]}
    change_json(folder / "tokenizer.json", normalizer=steps, pre_tokenizer=None)
    with raises(TokenizerError, "tokenizer.unsupported-class", "LlamaTokenizer"):
        loading.load(str(folder))
    change_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    tokenizer = loading.load(str(folder))
    assert [tokenizer.piece(id) for id in tokenizer.encode(" x")] == ["▁", "▁x"]


def test_a_llama_without_padding_is_refused_for_that(tmp_path: Path) -> None:
    folder = llama_folder(tmp_path / "llama", pad="<fill>")
    (folder / "tokenizer.model").unlink()
    with raises(TokenizerError, "tokenizer.missing-token"):
        loading.load(str(folder))


def test_a_damaged_tokenizer_json_of_a_t5_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with raises(TokenizerError, "tokenizer.damaged", "JSONDecodeError"):
        loading.load(str(tmp_path))

"""BPE tokenizers of models that write texts: Gemma's, by SentencePiece or its tokenizer.json, and CodeT5's."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from fuzzed_texts import fuzzed
from raised import raises

from t5prep.errors import TokenizerError
from t5prep.tokens import huggingface_files, loading, words
from t5prep.tokens.bpe_tokenizer import BpeTokenizer
from t5prep.tokens.ragged import Frame
from tests import encoders

ODD = [
    "",
    " ",
    "a  b",
    " a",
    "a ",
    "x\n\ny  \n",
    "  ",
    "a \x1e b",
    "漢字 🙂 é",
    "a    b c",
    "def f(x):\n    return x  # 1,234",
]
SPECIAL_SPELLINGS = ["<unused3> <eos> <pad>", "</s> <extra_id_0><s>", "a <bos> b"]


@pytest.fixture(scope="module")
def texts():
    chooser = random.Random(0)
    mixed = [*ODD, *encoders.SENTENCES[:5], *(text for text in fuzzed(chooser, 300) if "<" not in text)]
    return [*mixed, *(" ".join(chooser.choices(mixed, k=4)) for _ in range(100))]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    folder = encoders.gemma(tmp_path_factory.mktemp("gemma"), [*encoders.SENTENCES, *ODD, "def  main ( ) : 12 34"])
    huggingface_files.write(folder, loading.load(str(folder / "tokenizer.model")), config={"model_type": "t5gemma"})
    (folder / "spiece.model").unlink()
    return folder


@pytest.fixture(scope="module")
def codet5(tmp_path_factory):
    return encoders.codet5(tmp_path_factory.mktemp("tokenizers") / "codet5")


def block(tokenizer, texts):
    return [ids.tolist() for ids in tokenizer.encode_block(pa.array(texts, pa.large_string())).to_arrays()]


def test_gemmas_sentencepiece_model_has_the_ids_of_sentencepiece(gemma, texts):
    tokenizer = loading.load(str(gemma))
    assert block(tokenizer, texts) == tokenizer.processor.encode(texts)
    assert tokenizer.blocks._is_cut
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.sentinels) == (0, 1, 99)
    assert tokenizer.processor.id_to_piece([tokenizer.sentinel(0), tokenizer.sentinel(98)]) == [
        "<unused98>",
        "<unused0>",
    ]
    assert tokenizer.size == tokenizer.vocab_size == tokenizer.processor.get_piece_size()  # no sentinels on top
    decoded_texts = [tokenizer.decode(ids) for ids in block(tokenizer, texts)]
    assert decoded_texts == [text.replace("\u2581", " ") for text in texts]  # how SentencePiece writes a space


@pytest.mark.parametrize("kind", ["model", "json"])
def test_what_spells_a_special_token_of_gemma_is_text(gemma, kind):
    tokenizer = loading.load(str(gemma / ("tokenizer.model" if kind == "model" else "tokenizer.json")))
    for text, ids in zip(SPECIAL_SPELLINGS, block(tokenizer, SPECIAL_SPELLINGS), strict=True):
        assert not {tokenizer.pad_id, tokenizer.eos_id, 2} & {*ids}
        assert not any(tokenizer.sentinel(98) <= token <= tokenizer.sentinel(0) for token in ids)
        assert tokenizer.decode(ids) == text


def test_gemmas_json_has_the_ids_of_its_sentencepiece_model(gemma, texts):
    """And `huggingface_files` made it, so that what is exported has them too."""
    model_tokenizer, json_tokenizer = (
        loading.load(str(gemma / "tokenizer.model")),
        loading.load(str(gemma / "tokenizer.json")),
    )
    assert isinstance(json_tokenizer, BpeTokenizer)
    assert json_tokenizer._encode_by_words is words.before_spaces
    assert (
        block(json_tokenizer, texts)
        == block(model_tokenizer, texts)
        == [ids.tolist() for ids in json_tokenizer.encode_all(texts)]
    )
    assert (json_tokenizer.pad_id, json_tokenizer.eos_id, json_tokenizer.unk_id, json_tokenizer.size) == (
        model_tokenizer.pad_id,
        model_tokenizer.eos_id,
        model_tokenizer.unk_id,
        model_tokenizer.size,
    )
    assert [*map(json_tokenizer.sentinel, range(99))] == [*map(model_tokenizer.sentinel, range(99))]


def test_a_json_that_begins_texts_is_read_beside_a_sentencepiece_model(gemma, tmp_path):
    """As T5Gemma 2's does; T5Gemma's puts nothing before a text."""
    document = json.loads((gemma / "tokenizer.json").read_text())
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, bos, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
    }
    (tmp_path / "tokenizer.model").write_bytes((gemma / "tokenizer.model").read_bytes())
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    tokenizer = loading.load(str(tmp_path))
    assert isinstance(tokenizer, BpeTokenizer)
    assert tokenizer.frame == Frame((2,), (1,), (1,))
    assert tokenizer.frame_of_targets == Frame((), (), (1,))  # the decoder begins with <bos> by itself
    assert not isinstance(loading.load(str(gemma)), BpeTokenizer)


def test_codet5s_files_have_the_ids_of_the_library(codet5, texts):
    tokenizer = loading.load(str(codet5))
    assert isinstance(tokenizer, BpeTokenizer)
    fast = tokenizers.Tokenizer.from_str(tokenizer.model.decode())
    assert block(tokenizer, texts) == [encoding.ids for encoding in fast.encode_batch(texts, add_special_tokens=False)]
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 2, 3)
    assert tokenizer.frame == Frame((1,), (2,), (2,))
    assert tokenizer.frame_of_targets == Frame((1,), (), (2,))
    added = json.loads((codet5 / "added_tokens.json").read_text())
    assert [tokenizer.sentinel(number) for number in range(100)] == [added[f"<extra_id_{n}>"] for n in range(100)]
    assert tokenizer.size == added["<extra_id_0>"] + 1
    assert tokenizer.decode([1, *tokenizer.encode("a film"), tokenizer.sentinel(4), 2, 0]) == "a film <extra_id_4> </s>"


def test_few_words_are_encoded(codet5, monkeypatch):
    tokenizer, encoded_texts = loading.load(str(codet5)), []
    plain = tokenizer._encode_whole
    monkeypatch.setattr(tokenizer, "_encode_whole", lambda texts: encoded_texts.extend(texts) or plain(texts))
    tokenizer.encode_block(pa.array(["a film of a film"] * 1000, pa.large_string()))
    assert len(encoded_texts) <= 5


def test_a_piece_across_a_space_leaves_texts_whole(gemma):
    document = json.loads((gemma / "tokenizer.json").read_text())
    document["added_tokens"].append({**document["added_tokens"][-1], "id": 600, "content": "New▁York"})
    tokenizer = BpeTokenizer(json.dumps(document).encode(), name="changed")
    assert tokenizer._encode_by_words is None
    assert 600 in tokenizer.encode_block(pa.array(["a New York b"], pa.large_string())).ids


@pytest.mark.slow
def test_what_is_exported_has_the_same_ids_in_transformers(gemma, codet5, tmp_path, texts):
    import transformers

    for name, path in (("gemma", gemma / "tokenizer.json"), ("codet5", codet5)):
        tokenizer = loading.load(str(path))
        (tmp_path / name).mkdir()
        huggingface_files.write_encoders(tmp_path / name, tokenizer, config={"model_type": "t5"})
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        expected = [[*tokenizer.frame.first, *ids, *tokenizer.frame.last] for ids in block(tokenizer, texts)]
        assert theirs(texts)["input_ids"] == expected
        assert (theirs.pad_token_id, theirs.eos_token_id) == (tokenizer.pad_id, tokenizer.eos_id)


@pytest.mark.parametrize("missing_token", ["<pad>", "</s>"])
def test_what_a_vocabulary_lacks_is_named(codet5, missing_token):
    document = json.loads(loading.load(str(codet5)).model)
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] != missing_token]
    with raises(TokenizerError, "tokenizer.missing-token", str(missing_token)):
        BpeTokenizer(json.dumps(document).encode(), name="changed")


@pytest.mark.extra("seeds")
def test_real_text_has_the_same_ids_with_and_without_words(shared_data, tmp_path):
    lines = [line for line in (shared_data / "english" / "wikitext2_valid.txt").read_text().split("\n") if line.strip()]
    tokenizer = loading.load(str(encoders.gemma(tmp_path, lines[:300], size=1500)))
    actual = tokenizer.encode_block(pa.array(lines, pa.large_string()))
    expected = tokenizer.processor.encode(lines, return_type="numpy", num_threads=1)
    np.testing.assert_array_equal(actual.ids, np.concatenate(expected))

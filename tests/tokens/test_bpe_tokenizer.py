"""BPE tokenizers of models that write texts: Gemma's, by SentencePiece or its tokenizer.json, and CodeT5's."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from fuzzed_texts import fuzzed

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
SPELLED = ["<unused3> <eos> <pad>", "</s> <extra_id_0><s>", "a <bos> b"]


@pytest.fixture(scope="module")
def texts():
    chooser = random.Random(0)
    mixed = [*ODD, *encoders.SENTENCES[:5], *(text for text in fuzzed(chooser, 300) if "<" not in text)]
    return [*mixed, *(" ".join(chooser.choices(mixed, k=4)) for _ in range(100))]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    place = encoders.gemma(tmp_path_factory.mktemp("gemma"), [*encoders.SENTENCES, *ODD, "def  main ( ) : 12 34"])
    huggingface_files.write(place, loading.load(str(place / "tokenizer.model")), config={"model_type": "t5gemma"})
    (place / "spiece.model").unlink()
    return place


@pytest.fixture(scope="module")
def codet5(tmp_path_factory):
    return encoders.codet5(tmp_path_factory.mktemp("tokenizers") / "codet5")


def block(tokenizer, texts):
    return [ids.tolist() for ids in tokenizer.encode_block(pa.array(texts, pa.large_string())).apart()]


def test_gemmas_sentencepiece_model_has_the_ids_of_sentencepiece(gemma, texts):
    own = loading.load(str(gemma))
    assert block(own, texts) == own.processor.encode(texts)
    assert own.blocks._is_cut
    assert (own.pad_id, own.eos_id, own.sentinels) == (0, 1, 99)
    assert own.processor.id_to_piece([own.sentinel(0), own.sentinel(98)]) == ["<unused98>", "<unused0>"]
    assert own.size == own.vocab_size == own.processor.get_piece_size()  # no sentinels on top
    back = [own.decode(ids) for ids in block(own, texts)]
    assert back == [text.replace("\u2581", " ") for text in texts]  # how SentencePiece writes a space


@pytest.mark.parametrize("kind", ["model", "json"])
def test_what_spells_a_special_token_of_gemma_is_text(gemma, kind):
    own = loading.load(str(gemma / ("tokenizer.model" if kind == "model" else "tokenizer.json")))
    for text, ids in zip(SPELLED, block(own, SPELLED), strict=True):
        assert not {own.pad_id, own.eos_id, 2} & {*ids}
        assert not any(own.sentinel(98) <= token <= own.sentinel(0) for token in ids)
        assert own.decode(ids) == text


def test_gemmas_json_has_the_ids_of_its_sentencepiece_model(gemma, texts):
    """And `huggingface_files` made it, so that what is exported has them too."""
    own, other = loading.load(str(gemma / "tokenizer.model")), loading.load(str(gemma / "tokenizer.json"))
    assert isinstance(other, BpeTokenizer)
    assert other._cutting is words.before_spaces
    assert block(other, texts) == block(own, texts) == [ids.tolist() for ids in other.encode_all(texts)]
    assert (other.pad_id, other.eos_id, other.unk_id, other.size) == (own.pad_id, own.eos_id, own.unk_id, own.size)
    assert [*map(other.sentinel, range(99))] == [*map(own.sentinel, range(99))]


def test_a_json_that_begins_texts_is_read_beside_a_sentencepiece_model(gemma, tmp_path):
    """As T5Gemma 2's does; T5Gemma's puts nothing before a text."""
    whole = json.loads((gemma / "tokenizer.json").read_text())
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    whole["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, bos, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
    }
    (tmp_path / "tokenizer.model").write_bytes((gemma / "tokenizer.model").read_bytes())
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    own = loading.load(str(tmp_path))
    assert isinstance(own, BpeTokenizer)
    assert own.frame == Frame((2,), (1,), (1,))
    assert own.frame_of_targets == Frame((), (), (1,))  # the decoder begins with <bos> by itself
    assert not isinstance(loading.load(str(gemma)), BpeTokenizer)


def test_codet5s_files_have_the_ids_of_the_library(codet5, texts):
    own = loading.load(str(codet5))
    assert isinstance(own, BpeTokenizer)
    fast = tokenizers.Tokenizer.from_str(own.model.decode())
    assert block(own, texts) == [one.ids for one in fast.encode_batch(texts, add_special_tokens=False)]
    assert (own.pad_id, own.eos_id, own.unk_id) == (0, 2, 3)
    assert own.frame == Frame((1,), (2,), (2,))
    assert own.frame_of_targets == Frame((1,), (), (2,))
    added = json.loads((codet5 / "added_tokens.json").read_text())
    assert [own.sentinel(number) for number in range(100)] == [added[f"<extra_id_{n}>"] for n in range(100)]
    assert own.size == added["<extra_id_0>"] + 1
    assert own.decode([1, *own.encode("a film"), own.sentinel(4), 2, 0]) == "a film <extra_id_4> </s>"


def test_few_words_are_encoded(codet5, monkeypatch):
    own, asked = loading.load(str(codet5)), []
    plain = own._encode_whole
    monkeypatch.setattr(own, "_encode_whole", lambda texts: asked.extend(texts) or plain(texts))
    own.encode_block(pa.array(["a film of a film"] * 1000, pa.large_string()))
    assert len(asked) <= 5


def test_a_piece_across_a_space_leaves_texts_whole(gemma):
    whole = json.loads((gemma / "tokenizer.json").read_text())
    whole["added_tokens"].append({**whole["added_tokens"][-1], "id": 600, "content": "New▁York"})
    own = BpeTokenizer(json.dumps(whole).encode(), name="changed")
    assert own._cutting is None
    assert 600 in own.encode_block(pa.array(["a New York b"], pa.large_string())).ids


@pytest.mark.slow
def test_what_is_exported_has_the_same_ids_in_transformers(gemma, codet5, tmp_path, texts):
    import transformers

    for name, place in (("gemma", gemma / "tokenizer.json"), ("codet5", codet5)):
        own = loading.load(str(place))
        (tmp_path / name).mkdir()
        huggingface_files.write_encoders(tmp_path / name, own, config={"model_type": "t5"})
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        wanted = [[*own.frame.first, *ids, *own.frame.last] for ids in block(own, texts)]
        assert theirs(texts)["input_ids"] == wanted
        assert (theirs.pad_token_id, theirs.eos_token_id) == (own.pad_id, own.eos_id)


@pytest.mark.parametrize("lost", ["<pad>", "</s>"])
def test_what_a_vocabulary_lacks_is_named(codet5, lost):
    whole = json.loads(loading.load(str(codet5)).model)
    whole["added_tokens"] = [one for one in whole["added_tokens"] if one["content"] != lost]
    with pytest.raises(TokenizerError, match=f"changed has no {lost}.*, so a T5-like model cannot use it"):
        BpeTokenizer(json.dumps(whole).encode(), name="changed")


@pytest.mark.extra("seeds")
def test_real_text_has_the_same_ids_with_and_without_words(shared_data, tmp_path):
    lines = [line for line in (shared_data / "english" / "wikitext2_valid.txt").read_text().split("\n") if line.strip()]
    own = loading.load(str(encoders.gemma(tmp_path, lines[:300], size=1500)))
    found = own.encode_block(pa.array(lines, pa.large_string()))
    wanted = own.processor.encode(lines, return_type="numpy", num_threads=1)
    np.testing.assert_array_equal(found.ids, np.concatenate(wanted))

"""Texts that are encoded word by word have the ids that the `tokenizers` library gives them whole."""

import json
import random

import pyarrow as pa
import pytest
from fuzzed_texts import fuzzed

from t5prep.tokens import loading
from t5prep.tokens.encoder_tokenizer import cutting
from tests import encoders

ODD = [
    " a",
    "a ",
    "it 's 5 . ",
    ". ",
    "a  b",
    "a\tb",
    "a \u00a0b",
    "a\u3000 b",
    "a \u0301b",
    "a\x85b c",
    "",
    " ",
    "a [SEP] b </s> c",
    "it 's",
    "x" * 150,
]


@pytest.fixture(scope="module", params=["uncased", "cased", "roberta"])
def words(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("tokenizers") / request.param
    made = encoders.roberta(place) if request.param == "roberta" else encoders.bert(place, lowercase="un" in place.name)
    return loading.load(str(made))


@pytest.mark.parametrize("seed", range(3))
def test_ids_are_those_of_whole_texts(words, seed):
    chooser = random.Random(seed)
    texts = [*ODD, *encoders.SENTENCES[:5], *fuzzed(chooser, 400)]
    texts += [" ".join(chooser.choices(texts, k=3)) for _ in range(100)]
    found, wanted = words.encode_block(pa.array(texts, pa.large_string())), words.encode_block(texts)
    assert found.starts.tolist() == wanted.starts.tolist()
    assert found.ids.tolist() == wanted.ids.tolist()


@pytest.mark.parametrize("text", ["a film of a film", "a film of a film "])
def test_few_words_are_encoded(words, monkeypatch, text):
    asked = []
    plain = words._encode_whole
    monkeypatch.setattr(words, "_encode_whole", lambda texts: asked.extend(texts) or plain(texts))
    words.encode_block(pa.array([text] * 1000, pa.large_string()))
    assert len(asked) <= 5


def test_what_may_be_cut_elsewhere_is_encoded_whole(words):
    whole = json.loads(words.model)
    assert cutting(whole) is not None
    own = {**whole["added_tokens"][0], "content": "New York", "special": False}
    assert cutting({**whole, "added_tokens": [*whole["added_tokens"], own]}) is None
    assert cutting({**whole, "pre_tokenizer": {"type": "Metaspace"}}) is None

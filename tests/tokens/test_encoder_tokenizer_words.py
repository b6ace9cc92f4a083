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
    path = tmp_path_factory.mktemp("tokenizers") / request.param
    folder = encoders.roberta(path) if request.param == "roberta" else encoders.bert(path, lowercase="un" in path.name)
    return loading.load(str(folder))


@pytest.mark.parametrize("seed", range(3))
def test_ids_are_those_of_whole_texts(words, seed):
    chooser = random.Random(seed)
    texts = [*ODD, *encoders.SENTENCES[:5], *fuzzed(chooser, 400)]
    texts += [" ".join(chooser.choices(texts, k=3)) for _ in range(100)]
    actual, expected = words.encode_block(pa.array(texts, pa.large_string())), words.encode_block(texts)
    assert actual.starts.tolist() == expected.starts.tolist()
    assert actual.ids.tolist() == expected.ids.tolist()


@pytest.mark.parametrize("text", ["a film of a film", "a film of a film "])
def test_few_words_are_encoded(words, monkeypatch, text):
    encoded_texts = []
    plain = words._encode_whole
    monkeypatch.setattr(words, "_encode_whole", lambda texts: encoded_texts.extend(texts) or plain(texts))
    words.encode_block(pa.array([text] * 1000, pa.large_string()))
    assert len(encoded_texts) <= 5


def test_what_may_be_cut_elsewhere_is_encoded_whole(words):
    document = json.loads(words.model)
    assert cutting(document) is not None
    added_token = {**document["added_tokens"][0], "content": "New York", "special": False}
    assert cutting({**document, "added_tokens": [*document["added_tokens"], added_token]}) is None
    assert cutting({**document, "pre_tokenizer": {"type": "Metaspace"}}) is None

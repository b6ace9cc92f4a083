"""Examples of a classification: special tokens stay, pairs are cut as transformers cuts them, classes are numbers."""

import pytest

from t5prep.errors import Reject
from t5prep.tasks.example import EOS, Example, Protected
from t5prep.tokens import loading
from t5prep.tokens.class_encoder import ClassEncoder
from tests import encoders

CLASSES = ["negative", "positive"]
LONG = " ".join(encoders.SENTENCES[:3])
SHORT = "unflinchingly bleak"


@pytest.fixture(scope="module", params=["bert", "roberta"])
def folder(request, tmp_path_factory):
    return getattr(encoders, request.param)(tmp_path_factory.mktemp("vocabulary") / request.param)


def encode(folder, inputs, *, length, policy="head", target="positive"):
    encoder = ClassEncoder(loading.load(str(folder)), classes=CLASSES, input_length=length, policy=policy)
    (made,) = encoder([Example("a", inputs, target)])
    return made


def ids_of(features):
    return [int(one) for piece in features.inputs for one in piece]


@pytest.mark.parametrize("texts", [[LONG], [LONG, LONG[5:]], [LONG, SHORT], [SHORT, LONG]])
@pytest.mark.parametrize("length", [13, 14, 40, 2000])
def test_head_is_the_truncation_of_transformers(folder, texts, length):
    from transformers import AutoTokenizer

    wanted = AutoTokenizer.from_pretrained(folder)(*texts, truncation=True, max_length=length)["input_ids"]
    inputs = texts[0] if len(texts) == 1 else (texts[0], EOS, texts[1])
    assert ids_of(encode(folder, inputs, length=length)) == wanted


def test_head_tail_keeps_both_ends_and_the_special_tokens(folder):
    whole, made = (ids_of(encode(folder, LONG, length=length, policy="head_tail")) for length in (2000, 16))
    assert made == whole[:8] + whole[-8:]


def test_tail_keeps_the_first_special_token(folder):
    whole, made = (ids_of(encode(folder, LONG, length=length, policy="tail")) for length in (2000, 16))
    assert made == whole[:1] + whole[-15:]


def test_protected_text_is_never_cut(folder):
    question = Protected("the film ?")
    own = loading.load(str(folder)).encode("the film ?")
    made = ids_of(encode(folder, (question, EOS, LONG), length=30))
    assert len(made) == 30
    assert made[1 : 1 + len(own)] == own
    assert isinstance(encode(folder, (Protected(LONG), EOS, SHORT), length=20), Reject)


def test_a_class_is_its_number_and_tokens_count_special_ones(folder):
    made = encode(folder, SHORT, length=64)
    assert made.labels.tolist() == [1]
    assert (made.tokens, made.target_tokens) == (len(ids_of(made)), 1)


def test_an_unknown_class_and_an_empty_text_are_rejected(folder):
    assert "unknown class: 'neutral'" in str(encode(folder, SHORT, length=64, target="neutral"))
    assert str(encode(folder, " ", length=64)) == "empty input"

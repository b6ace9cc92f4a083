"""Words and their tags, labels and numbers as features: the ids and the places that the `tokenizers` library gives words."""

import json

import numpy as np
import pytest
from featurized_examples import featurized, featurizer
from tokenizers import Tokenizer as FastTokenizer

from t5prep.errors import Reject
from t5prep.tasks.example import EOS, Example
from t5prep.tasks.example_table import SPACE_IN_WORD
from t5prep.tasks.targets import LabelsTarget, NumberTarget, TagsTarget, bits_of, numbers_of
from t5prep.tokens import loading
from tests import encoders

WORDS = ["a", "gorgeous", ",", "movie", f"don't{SPACE_IN_WORD}ever", "\u200b", "中文", "journeys", "."]
CLASSES = ["B-X", "I-X", "O"]


@pytest.fixture(scope="module", params=["bert", "roberta", "xlm_roberta", "modernbert", "mmbert"])
def vocabulary(request, tmp_path_factory):
    folder = getattr(encoders, request.param)(tmp_path_factory.mktemp("tokenizers") / request.param)
    return loading.load(str(folder))


def of_words(vocabulary, words, tags, *, length=64, policy="head_tail"):
    featurize = featurizer(vocabulary, length=length, policy=policy, target=TagsTarget.of(CLASSES))
    (features,) = featurized(featurize, [Example("1", " ".join(words), " ".join(tags))])
    return features


def test_words_have_the_ids_and_first_pieces_of_words_given_apart(vocabulary):
    tokenizer_json = json.loads(vocabulary.model)
    if (tokenizer_json["pre_tokenizer"] or {}).get("type") == "ByteLevel":
        tokenizer_json["pre_tokenizer"]["add_prefix_space"] = True  # as run_ner.py asks of RoBERTa's
    fast = FastTokenizer.from_str(json.dumps(tokenizer_json))
    plain = [word.replace(SPACE_IN_WORD, " ") for word in WORDS]
    words = plain if (tokenizer_json["normalizer"] or {}).get("type") != "Replace" else [f" {word}" for word in plain]
    encoding = fast.encode(words, is_pretokenized=True)
    tags = [CLASSES[index % 3] for index in range(len(WORDS))]
    features = of_words(vocabulary, WORDS, tags)
    assert features.inputs == encoding.ids
    labels, previous_word = [], None
    for word in encoding.word_ids:
        labels.append(-100 if word is None or word == previous_word else word % 3)
        previous_word = word if word is not None else previous_word
    assert features.labels == labels


@pytest.mark.parametrize(
    ("policy", "word_indices"), [("head", [0, 1, 2, 3]), ("tail", [6, 7, 8, 9]), ("head_tail", [0, 1, 8, 9])]
)
def test_tags_are_cut_with_their_words(policy, word_indices, tmp_path):
    vocabulary = loading.load(str(encoders.bert(tmp_path / "bert")))
    words, tags = ["movie", "a"] * 5, [CLASSES[index % 3] for index in range(10)]
    features = of_words(vocabulary, words, tags, length=6, policy=policy)
    assert vocabulary.decode(features.inputs[1:-1]) == " ".join(words[index] for index in word_indices)
    assert features.labels == [-100, *(index % 3 for index in word_indices), -100]
    assert features.tokens == 12


@pytest.mark.parametrize(
    ("inputs", "targets", "reason"),
    [
        ("a movie", "O", "2 words and 1 tags"),
        ("a movie", "O B-Y", "unknown class: 'B-Y' is not one of B-X, I-X, O"),
        ("a  movie", "O O O", "empty word"),
        ("\u200b", "O", "empty input"),
        (("a", EOS, "movie"), "O O", "tags are for the words of one text"),
    ],
)
def test_rows_without_tags_for_their_words_say_why(inputs, targets, reason, tmp_path):
    vocabulary = loading.load(str(encoders.bert(tmp_path / "bert")))
    featurize = featurizer(vocabulary, length=16, target=TagsTarget.of(CLASSES))
    good, bad = featurized(featurize, [Example("1", "a movie", "O I-X"), Example("2", inputs, targets)])
    assert good.labels == [-100, 2, 1, -100]
    assert isinstance(bad, Reject)
    assert str(bad).startswith(reason)


def test_an_input_to_predict_names_the_words_at_their_first_pieces(tmp_path):
    vocabulary = loading.load(str(encoders.bert(tmp_path / "bert")))
    featurize = featurizer(vocabulary, length=16, target=TagsTarget.of(CLASSES))
    features, rejection = featurize.inputs_of([Example(None, "a \u200b journeys", ""), Example(None, "a  movie", "")])
    assert [word for word in features.words.tolist() if word != -100] == [0, 2]
    assert isinstance(rejection, Reject)


def test_labels_are_flags_and_numbers_are_bits(tmp_path):
    vocabulary = loading.load(str(encoders.bert(tmp_path / "bert")))
    of_labels = featurizer(vocabulary, length=16, targets=3, target=LabelsTarget.of(CLASSES))
    outcomes = featurized(of_labels, [Example(str(n), "a", text) for n, text in enumerate(["O,B-X", "", "O,no"])])
    assert [outcome.labels for outcome in outcomes[:2]] == [[1, 0, 1], [0, 0, 0]]
    assert str(outcomes[2]) == "unknown class: 'no' is not one of B-X, I-X, O"
    of_number = featurizer(vocabulary, length=16, targets=1, target=NumberTarget.of([]))
    outcomes = featurized(
        of_number, [Example(str(n), "a", text) for n, text in enumerate(["-1.5", "1e3", "x", "nan", "1e39"])]
    )
    assert [numbers_of(outcome.labels).tolist() for outcome in outcomes[:2]] == [[-1.5], [1000.0]]
    assert [str(outcome) for outcome in outcomes[2:]] == ["no number: 'x'", "no number: 'nan'", "no number: '1e39'"]


def test_no_number_has_the_bits_of_a_label_that_is_none():
    assert np.isnan(numbers_of([-100])).all()
    assert numbers_of(bits_of([3.25, -0.0])).tolist() == [3.25, -0.0]

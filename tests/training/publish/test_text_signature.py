"""A SavedModel that takes texts: the ids and answers of `predict --as-text`, inside TensorFlow."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from raised import raises

from t5prep.dataset.settings import MARKERS, POLICIES
from t5prep.errors import UsageError
from t5prep.options.fields import build
from t5prep.options.models import ExportOptions, PredictOptions
from t5prep.tokens import loading
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weights import random_weights, save_weights
from t5prep.training.predict import predictions
from t5prep.training.publish import export
from t5prep.training.run import run
from tests.featurized_examples import truncate

LENGTH = 12
TEXTS = [
    "quality: How do I sort a list? éà ﬁ",
    "  two  spaces </s> <pad> <extra_id_0> \u2581",
    "",
    "new\nline",
    "word " * 50 + "the end.",
]


@pytest.fixture(autouse=True)
def _with_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensorflow_text import Keras, which tests/conftest.py turns off."""
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)


@pytest.mark.extra("tensorflow_text")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("marker", MARKERS)
def test_texts_are_encoded_and_cut_as_they_are_prepared(policy: str, marker: str) -> None:
    from t5prep.training.publish.export import TextSignature

    tokenizer = loading.load("sample:")
    settings = dataclasses.replace(run.UNKNOWN_DATA, input_length=LENGTH, truncation=policy, marker=marker)
    ids = TextSignature(tokenizer, settings).encode(tf.constant(TEXTS)).numpy()
    mark = tokenizer.sentinel(1) if marker != "none" else None
    for text, row_ids in zip(TEXTS, ids.tolist(), strict=True):
        full_ids = [*tokenizer.encode(text), tokenizer.eos_id]
        cut = truncate(full_ids, LENGTH, policy=policy, marker=mark)
        assert row_ids == cut + [tokenizer.pad_id] * (LENGTH - len(cut))


@pytest.mark.extra("tensorflow_text")
@pytest.mark.slow
def test_a_saved_model_answers_texts_as_predict_does(tmp_path: Path) -> None:
    """A SavedModel that takes texts, called without t5prep's tokenizer."""
    tokenizer = loading.load("sample:")
    shape = ModelConfig(
        vocab_size=tokenizer.padded_size,
        d_model=16,
        d_kv=4,
        d_ff=32,
        num_layers=1,
        num_decoder_layers=1,
        num_heads=2,
    )
    model = tmp_path / "model"
    save_weights(model, shape, random_weights(shape, seed=3))
    (model / "config.json").write_text(json.dumps(shape.to_json()))
    (model / "spiece.model").write_bytes(tokenizer.model)
    texts = [text for text in TEXTS if text and "\n" not in text]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    prediction_run = predictions.Predictions(
        str(model), str(tmp_path / "texts.txt"), build(PredictOptions, {"as_text": True})
    )
    expected = [answer.prediction for answer in prediction_run]

    export.export_saved_model(str(model), out=str(tmp_path / "saved"), options=ExportOptions("savedmodel", text=True))
    signatures = tf.saved_model.load(str(tmp_path / "saved")).signatures
    answers = signatures["serving_default"](input=tf.constant(texts))
    assert [text.decode() for text in answers["prediction"].numpy()] == expected
    assert set(signatures) == {"serving_default", "ids"}


def test_without_tensorflow_text_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from t5prep.training.publish.export import TextSignature

    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    with raises(UsageError, "install.extra-missing"):
        TextSignature(loading.load("sample:"), run.UNKNOWN_DATA)


def test_a_model_of_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from t5prep.training.publish import export

    monkeypatch.setattr(export, "_installed", lambda: True)
    tokenizer = loading.load("sample:")
    monkeypatch.setattr(tokenizer, "is_bytes", True)
    with raises(UsageError, "option.inapplicable"):
        export.TextSignature(tokenizer, run.UNKNOWN_DATA)

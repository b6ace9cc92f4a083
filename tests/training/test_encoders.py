"""Encoders with a classification head: the logits and training steps of PyTorch, from and to its files."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import torch_process
from raised import raises
from safetensors import safe_open
from torch_encoders import LONG, MODERNBERTS, T5_TYPES, TYPES
from torch_t5 import FAMILIES

from t5prep.errors import UsageError
from t5prep.training.model.architecture import CLASS_NAMES, EncoderConfig, ModelConfig, read_config
from t5prep.training.model.forward import forward
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import for_classes, load_config, load_weights, random_weights, save_weights
from t5prep.training.publish.export import export_hf
from tests import adamw_steps

pytestmark = pytest.mark.extra("torch")

PROGRAM = "torch_encoders.py"


@pytest.fixture(params=[*TYPES, *T5_TYPES])
def model(published, request):
    return published / request.param


@pytest.fixture(params=TYPES)
def encoder(published, request):
    return published / request.param


def reference(model):
    reference_arrays = np.load(model / "reference.npz")
    batch = {
        "input_ids": reference_arrays["ids"],
        "attention_mask": reference_arrays["texts"],
        "labels": reference_arrays["labels"][:, None],
    }
    return reference_arrays, {name: tf.constant(value, tf.int32) for name, value in batch.items()}


def logits_of(model, batch, **options):
    config, weights = load_weights(model)
    return forward(weights, config, batch, **options).numpy()[:, 0]


def test_logits_are_those_of_pytorch(model):
    reference_arrays, batch = reference(model)
    expected = reference_arrays["logits"]
    for folder in (model, model / "bin"):
        np.testing.assert_allclose(logits_of(folder, batch), expected, atol=1e-5)
    np.testing.assert_allclose(logits_of(model, batch, remat=True), expected, atol=1e-5)


@pytest.mark.parametrize("name", LONG)
def test_longer_texts_have_the_logits_of_pytorch(published, name):
    reference_arrays = np.load(published / name / "reference.npz")
    batch = {"input_ids": reference_arrays["long_ids"], "attention_mask": reference_arrays["long_texts"]}
    batch = {name: tf.constant(value, tf.int32) for name, value in batch.items()}
    for remat in (False, True):
        logits = logits_of(published / name, batch, remat=remat)
        np.testing.assert_allclose(logits, reference_arrays["long_logits"], atol=1e-5)


@pytest.mark.parametrize("name", MODERNBERTS)
def test_a_masked_language_model_gives_all_but_the_last_matrix(published, name):
    """The tensors of answerdotai/ModernBERT-base: `decoder.weight` is the embeddings, and is not stored."""
    with safe_open(published / name / "published" / "model.safetensors", "np") as file:
        assert {"decoder.bias", "head.dense.weight", "head.norm.weight"} <= {*file.keys()}
        assert "decoder.weight" not in file.keys()  # noqa: SIM118 - it is no dict
    (_, weights), (_, read) = (load_weights(published / name / folder) for folder in (".", "published"))
    assert weights.keys() == read.keys()
    for name in weights.keys() - {"head.classifier", "head.classifier_bias"}:
        np.testing.assert_array_equal(read[name], weights[name])


# The others compute as one of these, between other embeddings and heads.
@pytest.mark.parametrize("name", ["bert", "albert", "electra_small", "deberta", "modernbert", "eurobert", "umt5"])
@pytest.mark.slow
def test_gradients_and_training_steps_are_those_of_pytorch(published, name, tmp_path):
    """Gradients of each tensor; the tests of logits see no backward pass."""
    model = published / name
    reference_arrays, batch = reference(model)
    config, weights = load_weights(model)
    steps = adamw_steps.STEPS if name == "bert" else 1
    losses, first = adamw_steps.train(config, weights, batch, steps=steps)
    np.testing.assert_allclose(losses, reference_arrays["losses"][:steps], atol=1e-5)
    save_weights(tmp_path, config, first)
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        for name in file.keys():  # noqa: SIM118 - it is no dict
            expected = reference_arrays[f"gradient/{name}"]
            np.testing.assert_allclose(file.get_tensor(name), expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


def test_a_saved_model_is_the_file_that_was_read(model, tmp_path):
    config, weights = load_weights(model)
    save_weights(tmp_path, config, weights)
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    reloaded_config = load_config(tmp_path)
    assert reloaded_config == config
    for name, value in load_weights(tmp_path)[1].items():
        np.testing.assert_array_equal(value, weights[name])


# What transformers makes of exported models: the logits of each one's batch, and the names that it misses or does not know.
LOADED = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from transformers import AutoModelForSequenceClassification
said = {}
for name in sys.argv[2:]:
    place, kept = Path(sys.argv[1]) / name, np.load(Path(sys.argv[1]) / name / "reference.npz")
    model, loaded = AutoModelForSequenceClassification.from_pretrained(place / "exported", output_loading_info=True)
    batch = {"input_ids": torch.tensor(kept["ids"]), "attention_mask": torch.tensor((kept["texts"] > 0).astype(int))}
    if getattr(model.config, "type_vocab_size", 1) > 1:
        batch["token_type_ids"] = torch.tensor(np.maximum(kept["texts"] - 1, 0))
    with torch.no_grad():
        logits = model.eval()(**batch).logits.tolist()
    names = [sorted(loaded[kind]) for kind in ("missing_keys", "unexpected_keys")]
    said[name] = {"logits": logits, "names": names, "class": type(model).__name__}
print(json.dumps(said))
"""


@pytest.mark.slow
def test_transformers_loads_what_is_exported_with_the_same_logits(published):
    """transformers misses no tensor of an export, and knows each."""
    for name in TYPES:
        export_hf(str(published / name), out=str(published / name / "exported"))
    reports = json.loads(torch_process.pytorch_code(LOADED, published, *TYPES))
    for name, config in TYPES.items():
        assert reports[name]["class"] == f"{CLASS_NAMES[config['model_type']]}ForSequenceClassification"
        assert reports[name]["names"] == [[], []]
        np.testing.assert_allclose(reports[name]["logits"], reference(published / name)[0]["logits"], atol=1e-5)


def test_a_pretrained_model_gets_a_new_head(encoder):
    (encoder_config, weights), (config, bare) = load_weights(encoder), load_weights(encoder / "bare")
    assert config == encoder_config
    for name in weights:
        if not name.startswith("head."):
            np.testing.assert_array_equal(bare[name], weights[name])
    assert bare["head.classifier"].std() == pytest.approx(weight_layouts(config)["head.classifier"].stddev, rel=0.5)


@pytest.mark.parametrize("family", ["t5_1_1", "umt5"])
def test_a_t5_gives_its_encoder_a_head(family):
    written = ModelConfig.from_json(FAMILIES[family])
    weights = random_weights(written)
    config, classifier_weights = for_classes(written, weights, ["no", "yes"], seed=3)
    assert classifier_weights.keys() == weight_layouts(config).keys()
    assert not any(name.startswith(("decoder.", "lm_head")) for name in classifier_weights)
    assert all(classifier_weights[name] is weights[name] for name in classifier_weights if not name.startswith("head."))
    assert classifier_weights["head.classifier"].shape == (written.d_model, 2)
    renamed_config, renamed_weights = for_classes(config, classifier_weights, ["bad", "good"], seed=4)
    assert renamed_config.classes == ("bad", "good")
    assert all(renamed_weights[name] is classifier_weights[name] for name in classifier_weights)


@pytest.mark.parametrize("name", TYPES)
def test_dropout_changes_the_logits_and_its_seed_repeats_them(name):
    config = read_config(json.dumps(TYPES[name]).encode(), location="config.json")
    config = dataclasses.replace(config, dropout_rate=0.3)
    weights = random_weights(config, seed=1)
    batch = {name: tf.ones([2, 5], tf.int32) for name in ("input_ids", "attention_mask")}
    logits, other_logits, repeated_logits = (
        forward(weights, config, batch, dropout_seed=tf.constant([0, n])) for n in (1, 2, 1)
    )
    assert not np.allclose(logits, other_logits)
    np.testing.assert_array_equal(logits, repeated_logits)


def test_a_weight_that_is_missing_is_named(published, tmp_path):
    shutil.copytree(published / "bert", tmp_path / "bert")
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    (tmp_path / "bert" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    with raises(UsageError, "weights.missing-tensor", "bert.encoder.layer.3"):
        load_weights(tmp_path / "bert")


def test_inputs_that_are_too_long_are_a_sentence():
    config = EncoderConfig.from_json(TYPES["roberta"])
    batch = {name: tf.ones([1, 41], tf.int32) for name in ("input_ids", "attention_mask")}
    with raises(UsageError, "model.short-positions", "40", "41"):
        forward(random_weights(config), config, batch)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"position_embedding_type": "relative_key"},
            ("model.unsupported-config", "position_embedding_type", "relative_key"),
        ),
        ({"model_type": "albert", "num_hidden_groups": 2}, ("model.unsupported-config", "num_hidden_groups", "2")),
        ({"hidden_act": "silu"}, ("model.unsupported-config", "hidden_act", "silu")),
        ({"num_hidden_layers": -1}, ("model.invalid-config", "num_layers", "-1")),
        ({"num_attention_heads": 5}, ("model.invalid-config",)),
        ({"model_type": "gpt2"}, ("model.unknown-type", "gpt2")),
        ({"id2label": {"a": "b"}}, ("model.invalid-config",)),
        ({"model_type": "modernbert", "mlp_bias": True}, ("model.unsupported-config", "mlp_bias", "True")),
        (
            {"model_type": "modernbert", "hidden_activation": "tanh"},
            ("model.unsupported-config", "hidden_activation", "tanh"),
        ),
        (
            {"model_type": "modernbert", "classifier_pooling": "max"},
            ("model.unsupported-config", "classifier_pooling", "max"),
        ),
        (
            {"model_type": "modernbert", "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            ("model.unsupported-config", "rope_type", "yarn"),
        ),
        (
            {"model_type": "modernbert", "rope_parameters": {"full_attention": {"rope_type": "linear"}}},
            ("model.unsupported-config", "rope_type", "linear"),
        ),
        (
            {"model_type": "modernbert", "layer_types": ["sliding_attention"] * 3},
            ("model.unsupported-config", "sliding_attention"),
        ),
        ({"model_type": "modernbert", "global_rope_theta": -1.0}, ("model.invalid-config",)),
        ({"model_type": "modernbert", "local_attention": 0}, ("model.invalid-config", "window", "0")),
    ],
)
def test_what_is_no_encoder_is_a_sentence(changed, message):
    with raises(UsageError, *message):
        read_config(json.dumps({**TYPES["bert"], **changed}).encode(), location="config.json")


@pytest.mark.parametrize(
    "entries",
    [
        {"model_type": "modernbert", "num_hidden_layers": 1 << 24},
        {"model_type": "modernbert", "layer_types": ["sliding_attention"] * 100_000},
        {"model_type": "modernbert", "num_labels": 10**9},
        {"model_type": "modernbert", "num_labels": float("inf")},
        {"model_type": "modernbert", "local_rope_theta": 10**400},
        {"model_type": "modernbert", "local_rope_theta": 1e-320},
        {"model_type": "modernbert", "local_rope_theta": "1_000"},
        {"model_type": "modernbert", "local_rope_theta": True},
        {"model_type": "modernbert", "num_labels": "1_000"},
        {"model_type": "modernbert", "mlp_dropout": float("nan")},
        {"model_type": "modernbert", "classifier_pooling": "A" * 100_000},
        {"model_type": "modernbert", "mlp_bias": ["A"] * 100_000},
        {"model_type": "A" * 100_000},
        {"model_type": "bert", "num_attention_heads": "A" * 100_000},
        {"model_type": "deberta-v2", "relative_attention": "A" * 100_000},
        {"model_type": "t5", "feed_forward_proj": "A" * 100_000},
        {"model_type": "t5", "eos_token_id": []},
        {"model_type": "t5", "d_model": "A" * 100_000},
    ],
)
def test_a_config_of_absurd_values_is_one_short_sentence(entries):
    """None takes memory or time: ten million layers have as many names, and kinds of layers were compared in all orders."""
    with pytest.raises(UsageError) as refused:
        read_config(json.dumps(entries).encode(), location="config.json")
    assert len(str(refused.value)) < 500

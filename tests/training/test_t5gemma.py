"""T5Gemma and the text half of T5Gemma 2: the logits, gradients, training steps and answers of PyTorch, from and to its files."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import torch_process
from raised import raises
from safetensors import safe_open
from torch_t5gemma import LENGTH, MODELS

from t5prep.errors import UsageError
from t5prep.training.model.architecture import config_of, read_config
from t5prep.training.model.beam_search import generate
from t5prep.training.model.forward import forward
from t5prep.training.model.t5gemma import T5GemmaConfig
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import load_config, load_weights, random_weights, save_weights
from t5prep.training.publish.export import export_hf
from tests import adamw_steps

PROGRAM = "torch_t5gemma.py"


@pytest.fixture(params=MODELS)
def model(published, request):
    return published / request.param


def reference(model):
    reference_arrays = np.load(model / "reference.npz")
    return reference_arrays, {
        name: tf.constant(reference_arrays[name]) for name in ("input_ids", "attention_mask", "labels")
    }


def assert_same_logits(logits, reference_arrays):
    """Of targets alone: transformers masks the padding behind them as keys, also for the padding itself."""
    is_target = reference_arrays["labels"] >= 0
    np.testing.assert_allclose(np.asarray(logits)[is_target], reference_arrays["logits"][is_target], atol=1e-4)


def small(name, **changed):
    config = read_config(json.dumps(MODELS[name]).encode(), location="config.json")
    return dataclasses.replace(config, **changed)


def batch_of(*, rows=2, inputs=20, targets=12, seed=0):
    rng = np.random.default_rng(seed)
    ids, labels = rng.integers(3, 96, (rows, inputs)), rng.integers(3, 96, (rows, targets))
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}
    return {name: tf.constant(value, tf.int32) for name, value in batch.items()}


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_logits_are_those_of_pytorch(model):
    reference_arrays, batch = reference(model)
    config, weights = load_weights(model)
    for remat in (False, True):
        assert_same_logits(forward(weights, config, batch, remat=remat), reference_arrays)


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_gradients_are_those_of_pytorch(model, tmp_path):
    """The backward pass of grouped queries, windows and caps, of every tensor."""
    reference_arrays, batch = reference(model)
    config, weights = load_weights(model)
    loss, gradients = adamw_steps.gradients_of(config, weights, batch)
    np.testing.assert_allclose(loss, reference_arrays["losses"][0], atol=1e-4)
    save_weights(tmp_path, config, gradients)
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        names = [*file.keys()]
        assert {f"gradient/{name}" for name in names} == {
            key for key in reference_arrays if key.startswith("gradient/")
        }
        for name in names:
            expected = reference_arrays[f"gradient/{name}"]
            np.testing.assert_allclose(file.get_tensor(name), expected, atol=1e-4 * max(1.0, np.abs(expected).max()))


@pytest.mark.extra("torch")
@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 3])
def test_answers_are_those_of_pytorch(model, beams):
    reference_arrays, batch = reference(model)
    config, weights = load_weights(model)
    answers = generate(weights, config, batch["input_ids"], batch["attention_mask"], max_length=LENGTH, beams=beams)
    expected = reference_arrays[f"beams {beams}"]
    np.testing.assert_array_equal(answers[:, : expected.shape[1]], expected)


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_the_published_layout_is_read(model):
    """bfloat16 in two files, the vision tower beside it, and the names of transformers 5.0."""
    (config, weights), (published_config, read) = load_weights(model), load_weights(model / "published")
    assert published_config == config
    assert weights.keys() == read.keys()
    for name in weights:
        np.testing.assert_array_equal(read[name], tf.cast(tf.cast(weights[name], tf.bfloat16), tf.float32))


# What transformers makes of exported models: the logits of each one's batch, and the names that it misses or does not know.
LOADED = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from transformers import AutoModelForSeq2SeqLM
said = {}
for name in sys.argv[2:]:
    place = Path(sys.argv[1]) / name
    model, loaded = AutoModelForSeq2SeqLM.from_pretrained(
        place / "exported", output_loading_info=True, attn_implementation="eager"
    )
    kept = np.load(place / "reference.npz")
    batch = {one: torch.tensor(kept[one]).long() for one in ("input_ids", "attention_mask", "labels")}
    with torch.no_grad():
        logits = model.eval()(**batch).logits.tolist()
    names = [sorted(loaded[kind]) for kind in ("missing_keys", "unexpected_keys")]
    said[name] = {"logits": logits, "names": names, "class": type(model).__name__}
print(json.dumps(said))
"""


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_transformers_loads_what_is_exported_with_the_same_logits(published):
    for name in MODELS:
        export_hf(str(published / name), out=str(published / name / "exported"))
    reports = json.loads(torch_process.pytorch_code(LOADED, published, *MODELS))
    for name, kind in (("t5gemma", "T5Gemma"), ("t5gemma2", "T5Gemma2")):
        assert reports[name]["class"] == f"{kind}ForConditionalGeneration"
        missing, unknown = reports[name]["names"]
        assert [key for key in missing if "vision_tower" not in key and "multi_modal_projector" not in key] == []
        assert unknown == []
        assert_same_logits(reports[name]["logits"], reference(published / name)[0])


@pytest.mark.parametrize("name", MODELS)
def test_a_config_is_read_back_as_it_was_written(name, tmp_path):
    config = small(name)
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    assert load_config(tmp_path) == config
    assert config_of(json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.mark.parametrize("name", MODELS)
def test_packed_rows_have_the_logits_of_their_examples(name):
    config = small(name)
    weights = random_weights(config, seed=1)
    first_batch, second_batch = batch_of(rows=1, seed=1), batch_of(rows=1, inputs=13, targets=9, seed=2)
    packed = {part: tf.concat([first_batch[part], second_batch[part]], axis=1) for part in first_batch}
    for part, segments in (("input_ids", "input_segment_ids"), ("labels", "label_segment_ids")):
        packed[segments] = tf.constant([[1] * first_batch[part].shape[1] + [2] * second_batch[part].shape[1]])
    logits = forward(weights, config, packed)
    np.testing.assert_allclose(logits[:, :12], forward(weights, config, first_batch), atol=1e-5)
    np.testing.assert_allclose(logits[:, 12:], forward(weights, config, second_batch), atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_dropout_changes_the_logits_and_its_seed_repeats_them(name):
    config = small(name, dropout_rate=0.3)
    weights, batch = random_weights(config, seed=1), batch_of()
    logits, other_logits, repeated_logits = (
        forward(weights, config, batch, dropout_seed=tf.constant([0, n])) for n in (1, 2, 1)
    )
    assert not np.allclose(logits, other_logits)
    np.testing.assert_array_equal(logits, repeated_logits)


def test_the_published_sizes_are_those_of_the_paper():
    """T5Gemma 2, arXiv:2512.14856: 270M-270M has about 370 million parameters without its vision tower."""
    total = sum(np.prod(layout.shape) for layout in weight_layouts(T5GemmaConfig()).values())
    assert 365e6 < total < 375e6


def test_what_a_checkpoint_lacks_is_named(tmp_path):
    config = small("t5gemma")
    save_weights(tmp_path, config, random_weights(config))
    changed = config.to_json()
    changed["decoder"] |= {"num_hidden_layers": 3, "layer_types": None}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with raises(UsageError, "weights.missing-tensor", "model.decoder.layers.2.cross_attn.k_proj.weight"):
        load_weights(tmp_path)


def changed(name, stack, **entries):
    config = json.loads(json.dumps(MODELS[name]))
    text_config = config[stack]["text_config"] if "text_config" in config[stack] else config[stack]
    text_config |= entries
    return config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (changed("t5gemma", "decoder", head_dim=4), ("model.unsupported-config", "head_dim", "8", "4")),
        (changed("t5gemma", "encoder", attention_bias=True), ("model.unsupported-config", "attention_bias", "True")),
        (
            changed("t5gemma", "encoder", hidden_activation="silu"),
            ("model.unsupported-config", "hidden_activation", "silu"),
        ),
        (changed("t5gemma", "decoder", num_key_value_heads=3), ("model.invalid-config",)),
        (
            changed("t5gemma", "decoder", rope_parameters={"rope_type": "yarn"}),
            ("model.unsupported-config", "rope_type", "yarn"),
        ),
        (
            changed("t5gemma", "decoder", layer_types=["full_attention", "sliding_attention"]),
            ("model.unsupported-config",),
        ),
        (changed("t5gemma2", "encoder", hidden_size=64), ("model.invalid-config",)),
        (changed("t5gemma2", "decoder", num_key_value_heads=0), ("model.invalid-config",)),
        ({"model_type": "t5gemma2", "decoder": {}}, ("model.invalid-config",)),
        (
            {**MODELS["t5gemma"], "tie_word_embeddings": False},
            ("model.unsupported-config", "tie_word_embeddings", "False"),
        ),
    ],
)
def test_what_is_no_t5gemma_is_a_sentence(config, message):
    with raises(UsageError, *message):
        read_config(json.dumps(config).encode(), location="config.json")


def test_a_head_for_classes_is_a_sentence():
    with raises(UsageError, "dataset.target-mismatch", "T5Gemma 2"):
        small("t5gemma2").with_classes(["no", "yes"])


def test_the_products_that_plan_counts_are_those_of_the_matrices():
    """By hand, of one token in and one out: each matrix of a layer once, the scores and their sums, and the output table."""
    config = small("t5gemma2")
    q, kv, wide = 32 * 48, 2 * 32 * 24, 3 * 32 * 40
    encoder, decoder = 4 * (2 * q + kv + wide + 2 * 48), 3 * (2 * q + kv + wide + 2 * 48 + kv + 2 * 48)
    assert config.products(input_length=1, target_length=1) == encoder + decoder + 32 * 96

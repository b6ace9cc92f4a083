"""Encoders of tags, of several labels and of a number: the logits, gradients and training steps of PyTorch, and its files."""

import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors import safe_open
from torch_targets import JOBS, TARGETS

from t5prep.tasks.targets import LabelsTarget, bits_of
from t5prep.training.model.forward import forward
from t5prep.training.model.weights import for_classes, load_weights, save_weights
from t5prep.training.objectives import LabelsObjective
from tests import adamw_steps

pytestmark = pytest.mark.extra("torch")

PROGRAM = "torch_targets.py"


def reference(model, target):
    reference_arrays = np.load(model / "reference.npz")
    labels = bits_of(reference_arrays["labels"]) if target == "number" else reference_arrays["labels"]
    batch = {"input_ids": reference_arrays["ids"], "attention_mask": reference_arrays["texts"], "labels": labels}
    return reference_arrays, {name: tf.constant(value, tf.int32) for name, value in batch.items()}


@pytest.mark.parametrize("name", JOBS)
def test_logits_and_gradients_are_those_of_transformers(published, name, tmp_path):
    """The heads and losses of tags, labels and numbers; test_encoders has those of classes."""
    _, target = JOBS[name]
    reference_arrays, batch = reference(published / name, target)
    config, weights = load_weights(published / name)
    assert (config.target, len(config.classes)) == (target, 1 if target == "number" else 3)
    logits = forward(weights, config, batch).numpy()
    is_token = reference_arrays["texts"] > 0  # what stands at padding is nobody's
    our_logits, theirs = (
        (logits[is_token], reference_arrays["logits"][is_token])
        if target == "tags"
        else (logits[:, 0], reference_arrays["logits"])
    )
    np.testing.assert_allclose(our_logits, theirs, atol=1e-5)
    loss, gradients = adamw_steps.gradients_of(config, weights, batch)
    np.testing.assert_allclose(loss, reference_arrays["losses"][0], rtol=1e-4)
    save_weights(tmp_path, config, gradients)
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        names = {f"gradient/{tensor}" for tensor in file.keys()}  # noqa: SIM118 - it is no dict
        assert names == {key for key in reference_arrays if key.startswith("gradient")}
        for tensor in file.keys():  # noqa: SIM118 - it is no dict
            expected = reference_arrays[f"gradient/{tensor}"]
            np.testing.assert_allclose(file.get_tensor(tensor), expected, atol=2e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("name", JOBS)
def test_what_is_exported_is_the_file_and_the_class_of_transformers(published, name, tmp_path):
    _, target = JOBS[name]
    config, weights = load_weights(published / name)
    save_weights(tmp_path, config, weights)
    (saved_file, theirs) = (safe_open(folder / "model.safetensors", "np") for folder in (tmp_path, published / name))
    aliases = {"transformer.encoder.embed_tokens.weight"}
    assert {*saved_file.keys()} == {*theirs.keys()} - aliases
    for tensor in saved_file.keys():  # noqa: SIM118 - it is no dict
        np.testing.assert_array_equal(saved_file.get_tensor(tensor), theirs.get_tensor(tensor))
    written, read = config.to_json(), json.loads((published / name / "config.json").read_text())
    assert written["architectures"] == read["architectures"]
    assert written.get("problem_type") == TARGETS[target]


def test_a_model_of_one_target_begins_anew_with_another_head(published):
    config, weights = load_weights(published / "roberta-tags")
    assert "head.dense" not in weights
    changed, new_weights = for_classes(config, weights, ["a", "b", "c"], seed=1, target="labels")
    assert changed.target == "labels"
    assert {"head.dense", "head.dense_bias"} <= new_weights.keys()
    assert new_weights["layers.0.query"] is weights["layers.0.query"]
    renamed_config, renamed_weights = for_classes(config, weights, ["a", "b", "c"], seed=1, target="tags")
    assert renamed_config.classes == ("a", "b", "c")
    assert all(renamed_weights[name] is weights[name] for name in weights)


def test_a_published_model_of_one_logit_is_of_a_number(published, tmp_path):
    config = json.loads((published / "bert-number" / "config.json").read_text())
    del config["problem_type"]  # as cross-encoder/ms-marco-MiniLM-L6-v2 has none
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(published / "bert-number" / "model.safetensors")
    assert load_weights(tmp_path)[0].target == "number"


def test_likeliest_labels_are_those_above_one_half():
    objective, logits = LabelsObjective(LabelsTarget(("a", "b"))), tf.constant([[[2.0, -1.0]]])
    losses, right, _ = objective.losses(logits, tf.constant([[1, 1]]))
    assert objective.likeliest(logits).numpy().tolist() == [[1, 0]]
    assert right.numpy().tolist() == [[True, False]]
    np.testing.assert_allclose(losses, [[np.log(1 + np.exp(-2)), np.log(1 + np.e)]], rtol=1e-6)

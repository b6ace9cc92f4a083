"""Every architecture from every file format: the same weights, and PyTorch's logits and answers."""

import json
import os
import shutil
from pathlib import Path

import model_formats
import numpy as np
import pytest
import tensorflow as tf
from torch_t5 import FAMILIES, LENGTH, draw_batch

from t5prep.io import model_files
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.beam_search import generate
from t5prep.training.model.forward import forward
from t5prep.training.model.weights import load_weights, random_weights, save_weights
from t5prep.training.published import choosing

GOLDEN = Path(__file__).parents[2] / "data" / "published"
PYTORCH = ("bin", "legacy", "sharded")
FLAX_FILES = {"flax": "flax_model.msgpack"}


@pytest.fixture(scope="module")
def torch_models(torch_t5: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What PyTorch saves of every family, and the same tensors in Flax's layout."""
    out = tmp_path_factory.mktemp("models")
    shutil.copytree(torch_t5, out, dirs_exist_ok=True)
    for family in FAMILIES:
        stored = choosing.tensors(model_files.find(out / family))
        tensors = {name: tensor.read() for name, tensor in stored.items()}
        (out / family / "flax").mkdir()
        shutil.copy(out / family / "config.json", out / family / "flax")
        model_formats.write_flax(out / family / "flax" / FLAX_FILES["flax"], tensors)
    return out


@pytest.mark.extra("torch")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_format_gives_the_weights_of_every_architecture_bit_for_bit(torch_models: Path, family: str) -> None:
    config, expected = load_weights(torch_models / family)
    for kind in (*PYTORCH, *FLAX_FILES):
        loaded_config, weights = load_weights(torch_models / family / kind)
        assert loaded_config == config
        assert all(np.array_equal(weights[name], expected[name]) for name in expected), kind
    for kind, tolerance in (("half", 1e-3), ("bfloat16", 1e-2)):
        weights = load_weights(torch_models / family / kind)[1]
        assert weights["shared"].dtype == np.float32
        assert all(np.allclose(weights[name], expected[name], rtol=tolerance, atol=1e-6) for name in expected), kind


@pytest.mark.extra("torch")
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_answers_are_those_of_pytorch(torch_models: Path, family: str) -> None:
    config, read = load_weights(torch_models / family / "bin")
    weights = {name: tf.constant(value) for name, value in read.items()}
    reference = np.load(torch_models / family / "reference.npz")
    batch = {name: tf.constant(value) for name, value in draw_batch(config.vocab_size).items()}
    np.testing.assert_allclose(forward(weights, config, batch), reference["logits"], atol=1e-5)
    for beams in (1, 3):
        expected = reference[f"beams {beams}"]
        # Behind the first EOS transformers' beam search writes more of them: it takes a pad id of 0 for none.
        is_after_eos = np.cumsum(expected == config.eos_token_id, axis=1) - (expected == config.eos_token_id) > 0
        inputs = (batch["input_ids"], batch["attention_mask"])
        ids = generate(weights, config, *inputs, max_length=LENGTH, beams=beams).numpy()
        assert ids[:, : expected.shape[1]].tolist() == np.where(is_after_eos, 0, expected).tolist()
        assert not ids[:, expected.shape[1] :].any()


@pytest.mark.extra("torch")
@pytest.mark.parametrize("family", ["umt5"])
def test_layers_as_a_loop_compute_the_same(torch_models: Path, family: str) -> None:
    config, read = load_weights(torch_models / family)
    weights = {name: tf.constant(value) for name, value in read.items()}
    batch = {name: tf.constant(value) for name, value in draw_batch(config.vocab_size).items()}
    outputs = []
    for remat in (False, True):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits = forward(weights, config, batch, remat=remat)
            loss = tf.reduce_mean(tf.square(logits))
        outputs.append((logits, tape.gradient(loss, weights)))
    np.testing.assert_allclose(outputs[0][0], outputs[1][0], atol=1e-5)
    for name in weights:
        np.testing.assert_allclose(*(tf.convert_to_tensor(gradients[name]) for _, gradients in outputs), atol=1e-5)


@pytest.mark.parametrize(("family", "kind"), [("t5", "flax"), ("t5_1_1", "flax/sharded")])
def test_what_transformers_4_wrote_computes_what_transformers_4_did(family: str, kind: str) -> None:
    """Whole files and parts, by its own Flax classes (tests/data/published/make_by_transformers4.py)."""
    folder = GOLDEN / family / kind
    config, read = load_weights(folder)
    assert config.tie_word_embeddings == (family == "t5")
    weights = {name: tf.constant(value) for name, value in read.items()}
    reference = np.load(folder / "reference.npz")
    # Its decoder inputs are a start token and then labels, of which the last is never read.
    labels = np.concatenate([reference["decoder_input_ids"][:, 1:], [[7], [7]]], axis=1).astype(np.int32)
    batch = {"input_ids": reference["input_ids"], "attention_mask": reference["attention_mask"], "labels": labels}
    logits = forward(weights, config, {name: tf.constant(value) for name, value in batch.items()})
    np.testing.assert_allclose(logits, reference["logits"], atol=1e-5)


def test_flax_arrays_in_chunks_and_in_bfloat16_are_the_same_arrays() -> None:
    expected = load_weights(GOLDEN / "t5" / "flax")[1]
    chunked = load_weights(GOLDEN / "t5" / "chunked")[1]
    assert all(np.array_equal(chunked[name], expected[name]) for name in expected)
    rounded = load_weights(GOLDEN / "t5" / "bf16")[1]
    for name in expected:
        assert np.array_equal(rounded[name], tf.cast(tf.cast(expected[name], tf.bfloat16), tf.float32))


@pytest.mark.parametrize("kind", ["msgpack", "zarr", "orbax"])
@pytest.mark.parametrize("family", ["t5", "t5_1_1", "byt5"])
def test_a_checkpoint_of_t5x_is_a_model_without_a_config(tmp_path: Path, family: str, kind: str) -> None:
    """Its shape is that of its tensors, and parts of weights are read from the chunks that hold them."""
    config = ModelConfig.from_json(FAMILIES[family])
    expected = random_weights(config)
    save_weights(tmp_path, config, expected)
    stored = choosing.tensors(model_files.find(tmp_path))
    (tmp_path / "t5x").mkdir()
    model_formats.write_t5x(tmp_path / "t5x", {name: tensor.read() for name, tensor in stored.items()}, kind=kind)
    loaded_config, weights = load_weights(tmp_path / "t5x")
    assert loaded_config == config
    assert all(np.array_equal(weights[name], expected[name]) for name in expected)
    assert np.array_equal(weights["encoder.kv"][1, :, 3:7, 2:], expected["encoder.kv"][1, :, 3:7, 2:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_is_saved_in_a_dtype_is_what_tensorflow_and_safetensors_make_of_it(tmp_path: Path, dtype: str) -> None:
    from safetensors import safe_open

    config, weights = load_weights(GOLDEN / "t5" / "flax")
    path = save_weights(tmp_path, config, weights, dtype=dtype)
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    with safe_open(path, framework="tensorflow") as file:
        assert file.metadata() == {"format": "pt"}
        shared = file.get_tensor("shared.weight")
    assert shared.dtype.name == dtype
    assert np.array_equal(shared, tf.cast(weights["shared"], dtype))
    reloaded_weights = load_weights(tmp_path)[1]
    assert np.array_equal(reloaded_weights["shared"], tf.cast(shared, tf.float32))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.errors import UsageError  # noqa: E402
from t5prep.train.attention import relative_bias, relative_buckets  # noqa: E402
from t5prep.train.decoding import decode_step, init_cache, reorder_cache  # noqa: E402
from t5prep.train.model import encode, forward, shift_right  # noqa: E402
from t5prep.train.model_config import ModelConfig  # noqa: E402
from t5prep.train.weights import load_weights, random_weights  # noqa: E402

FAMILIES = ["t5", "t5_1_1", "mt5", "byt5"]
SMALL = ModelConfig(vocab_size=96, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=4)
INPUTS = ("input_ids", "attention_mask", "labels")


@pytest.fixture(scope="session")
def torch_references(tmp_path_factory) -> Path:
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")):
        pytest.skip("PyTorch and transformers are not installed: the golden numbers stand in")
    out = tmp_path_factory.mktemp("torch_t5")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, Path(__file__).with_name("torch_t5.py"), out], check=True, env=environment)
    return out


@pytest.fixture(scope="session")
def small_weights() -> dict[str, np.ndarray]:
    return random_weights(SMALL, seed=1)


def compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_pytorch(family, torch_references):
    config, weights = load_weights(torch_references / family)
    reference = np.load(torch_references / family / "reference.npz")
    batch = {name: tf.constant(reference[name]) for name in INPUTS}
    logits = compiled(lambda: forward(weights, config, batch))()
    np.testing.assert_allclose(logits, reference["logits"], atol=1e-4)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_looks_up_the_bucket_of_each_distance(bidirectional):
    table = np.random.default_rng(0).standard_normal((32, 3)).astype(np.float32)
    distances = np.arange(300)[None, :] - np.arange(200)[:, None]
    buckets = relative_buckets(distances, bidirectional=bidirectional, buckets=32, max_distance=128)
    bias = relative_bias(
        tf.constant(table), tf.range(200), tf.range(300), bidirectional=bidirectional, max_distance=128
    )
    np.testing.assert_array_equal(bias, table[buckets].transpose(2, 0, 1))


def test_decoding_step_by_step_gives_the_logits_of_the_whole_row(small_weights):
    rng = np.random.default_rng(2)
    labels = tf.constant(rng.integers(2, 96, (2, 7)), tf.int32)
    mask = tf.constant([[1] * 9, [1] * 5 + [0] * 4], tf.int32)
    batch = {"input_ids": tf.constant(rng.integers(2, 96, (2, 9)), tf.int32), "attention_mask": mask, "labels": labels}
    whole = forward(small_weights, SMALL, batch)
    fed = shift_right(labels, SMALL)
    encoded = encode(small_weights, SMALL, batch["input_ids"], mask)
    cache = init_cache(small_weights, SMALL, encoded, length=7)
    step = compiled(
        lambda tokens, cache, position: decode_step(
            small_weights, SMALL, tokens, cache, position=position, attention_mask=mask
        )
    )
    for position in range(7):
        logits, cache = step(fed[:, position], cache, tf.constant(position))
        np.testing.assert_allclose(logits, whole[:, position], atol=1e-4)


def test_a_reordered_cache_goes_on_as_the_other_beam(small_weights):
    encoded = tf.repeat(encode(small_weights, SMALL, tf.constant([[5, 6, 7]]), tf.ones([1, 3], tf.int32)), 2, axis=0)
    mask = tf.ones([2, 3], tf.int32)
    cache = init_cache(small_weights, SMALL, encoded, length=4)
    _, cache = decode_step(small_weights, SMALL, tf.constant([0, 9]), cache, position=0, attention_mask=mask)
    swapped = reorder_cache(cache, tf.constant([1, 0]))
    plain, _ = decode_step(small_weights, SMALL, tf.constant([4, 4]), cache, position=1, attention_mask=mask)
    other, _ = decode_step(small_weights, SMALL, tf.constant([4, 4]), swapped, position=1, attention_mask=mask)
    np.testing.assert_allclose(plain[0], other[1], atol=1e-6)
    assert np.abs(plain[0] - other[0]).max() > 1e-3


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": "bert"}, "bert"),
        ({"model_type": "umt5"}, "umt5"),
        ({"model_type": "t5", "feed_forward_proj": "gated-silu"}, "gated-silu"),
        ({}, "None"),
    ],
)
def test_another_architecture_is_refused(config, word):
    with pytest.raises(UsageError, match=word):
        ModelConfig.from_json(config)


@pytest.mark.parametrize(
    ("config", "tied", "scaled"),
    [
        ({"model_type": "t5"}, True, True),
        ({"model_type": "t5", "tie_word_embeddings": False}, False, False),
        ({"model_type": "t5", "tie_word_embeddings": True, "scale_decoder_outputs": False}, False, False),
        ({"model_type": "mt5", "tie_word_embeddings": True}, False, False),
    ],
)
def test_config_knows_tied_from_untied_in_files_of_any_age(config, tied, scaled):
    read = ModelConfig.from_json(config)
    assert (read.tie_word_embeddings, read.scale_decoder_outputs) == (tied, scaled)
    assert ModelConfig.from_json(read.to_json()) == read

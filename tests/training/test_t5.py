import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from raised import raises
from torch_t5 import FAMILIES, draw, draw_batch

from t5prep.errors import UsageError
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.cached_decoder import Decoder, reorder_cache
from t5prep.training.model.forward import forward
from t5prep.training.model.layers import Dropout
from t5prep.training.model.positions import relative_bias, relative_buckets
from t5prep.training.model.t5 import shift_right
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import load_weights, random_weights
from t5prep.training.step.step import Sums

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "model" / "golden_t5.json").read_text())
SMALL = ModelConfig(vocab_size=96, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=4)


@pytest.fixture(scope="module")
def small_weights():
    return {name: tf.constant(value) for name, value in random_weights(SMALL, seed=1).items()}


def loss_and_gradients(weights, config, batch):
    """The logits, the sums, and the gradients of the summed loss."""
    with tf.GradientTape() as tape:
        tape.watch(weights)
        logits = forward(weights, config, batch)
        sums = Sums.of(*config.objective.losses(logits, batch["labels"]))
    return logits, sums, {n: tf.convert_to_tensor(g) for n, g in tape.gradient(sums.loss, weights).items()}


def by_tensor(config, values):
    """Our stacked values under their Hugging Face names, in PyTorch's orientation."""
    tensors = {}
    for name, layout in weight_layouts(config).items():
        flat = np.reshape(values[name], (-1, *layout.shape[layout.stacked_axes :]))
        tensors |= {t: v.T if layout.transposed else v for t, v in zip(layout.tensors, flat, strict=True)}
    return tensors


def drawn_weights(config):
    """The weights of tests/torch_t5.py in our layout."""
    weights = {}
    for name, layout in weight_layouts(config).items():
        shape = layout.shape[layout.stacked_axes :]
        tensors = [draw(t, shape[::-1]).T if layout.transposed else draw(t, shape) for t in layout.tensors]
        weights[name] = tf.constant(np.reshape(tensors, layout.shape))
    return weights


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_loss_and_gradients_are_those_recorded_from_pytorch(family):
    golden = GOLDEN[family]
    config = ModelConfig.from_json(golden["config"])
    batch = {name: tf.constant(value) for name, value in draw_batch(config.vocab_size).items()}
    logits, sums, gradients = loss_and_gradients(drawn_weights(config), config, batch)
    np.testing.assert_allclose(logits[:, ::4, :3], golden["logits[:, ::4, :3]"], atol=1e-5)
    assert float(sums.loss / sums.targets) == pytest.approx(golden["loss"], abs=1e-5)
    tensors = by_tensor(config, gradients)
    norms = {name: np.linalg.norm(value) / sums.targets.numpy() for name, value in tensors.items()}
    assert norms == pytest.approx(golden["gradient_norms"], rel=1e-3)


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_logits_and_gradients_are_those_of_pytorch(torch_t5):
    """The golden numbers are those of today's PyTorch; of two families each logit and gradient. test_step_layouts has steps."""
    todays = json.loads((torch_t5 / "golden_t5.json").read_text())
    assert todays.keys() == GOLDEN.keys()
    for family in FAMILIES:
        golden = GOLDEN[family]
        for name in ("logits[:, ::4, :3]", "loss"):
            np.testing.assert_allclose(todays[family][name], golden[name], atol=1e-5)
        assert todays[family]["gradient_norms"] == pytest.approx(golden["gradient_norms"], rel=1e-3)
    for family in ("t5", "t5_1_1"):
        config, stored = load_weights(torch_t5 / family)
        weights = {name: tf.constant(np.asarray(array)) for name, array in stored.items()}
        reference = np.load(torch_t5 / family / "reference.npz")
        batch = {name: tf.constant(value) for name, value in draw_batch(config.vocab_size).items()}
        logits, sums, gradients = loss_and_gradients(weights, config, batch)
        np.testing.assert_allclose(logits, reference["logits"], atol=1e-5)
        for name, gradient in by_tensor(config, gradients).items():
            np.testing.assert_allclose(gradient / sums.targets.numpy(), reference[f"gradient/{name}"], atol=1e-5)


def test_packed_rows_have_the_loss_and_gradients_of_their_examples(small_weights):
    rng = np.random.default_rng(4)
    lengths = [(7, 4), (9, 3), (5, 5), (12, 6)]  # input and target tokens of four examples, packed two and two
    alone = {name: np.zeros((4, 12), np.int32) for name in ("input_ids", "attention_mask")}
    alone["labels"] = np.full((4, 6), -100, np.int32)
    names = ("input_ids", "attention_mask", "input_segment_ids", "input_positions")
    packed = {name: np.zeros((2, 20), np.int32) for name in names}
    packed |= {name: np.zeros((2, 12), np.int32) for name in ("label_segment_ids", "label_positions")}
    packed["labels"] = np.full((2, 12), -100, np.int32)
    for row in range(2):
        begin, target_begin = 0, 0
        for segment in (1, 2):
            example = 2 * row + segment - 1
            length, targets = lengths[example]
            input_slice, target_slice = slice(begin, begin + length), slice(target_begin, target_begin + targets)
            alone["input_ids"][example, :length] = rng.integers(2, 96, length)
            alone["attention_mask"][example, :length] = 1
            alone["labels"][example, :targets] = rng.integers(2, 96, targets)
            packed["input_ids"][row, input_slice] = alone["input_ids"][example, :length]
            packed["labels"][row, target_slice] = alone["labels"][example, :targets]
            packed["input_segment_ids"][row, input_slice] = packed["label_segment_ids"][row, target_slice] = segment
            packed["attention_mask"][row, input_slice] = 1
            packed["input_positions"][row, input_slice] = np.arange(length)
            packed["label_positions"][row, target_slice] = np.arange(targets)
            begin, target_begin = input_slice.stop, target_slice.stop
    results = [
        loss_and_gradients(small_weights, SMALL, {n: tf.constant(v) for n, v in batch.items()})
        for batch in (alone, packed)
    ]
    (_, sums, gradients), (_, packed_sums, packed_gradients) = results
    assert float(sums.targets) == float(packed_sums.targets) == 18
    assert float(packed_sums.loss) == pytest.approx(float(sums.loss), rel=1e-5)
    for name in gradients:
        np.testing.assert_allclose(packed_gradients[name], gradients[name], rtol=1e-4, atol=1e-4)


def test_a_step_that_computes_the_first_layers_is_that_of_a_model_of_these_layers(small_weights):
    one_layer_config = dataclasses.replace(SMALL, num_layers=1, num_decoder_layers=1)
    shapes = {name: layout.shape for name, layout in weight_layouts(one_layer_config).items()}
    first = {name: value[: shapes[name][0]] for name, value in small_weights.items()}
    batch = draw_batch(SMALL.vocab_size)
    expected_logits, _, gradients = loss_and_gradients(first, one_layer_config, batch)
    first_of_two = dataclasses.replace(SMALL, computed_layers=1, computed_decoder_layers=1)
    logits, _, of_all = loss_and_gradients(small_weights, first_of_two, batch)
    np.testing.assert_array_equal(logits, expected_logits)
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(of_all[name][: shapes[name][0]], gradient, err_msg=name)
    assert not {"computed_layers", "computed_decoder_layers"} & first_of_two.to_json().keys()


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_looks_up_the_bucket_of_each_distance(bidirectional):
    table = np.random.default_rng(0).standard_normal((32, 3)).astype(np.float32)
    distances = np.arange(300)[None, :] - np.arange(200)[:, None]
    buckets = relative_buckets(distances, bidirectional=bidirectional, buckets=32, max_distance=128)
    options = {"bidirectional": bidirectional, "max_distance": 128}
    bias = relative_bias(tf.constant(table), queries=200, keys=300, **options)
    np.testing.assert_array_equal(bias, table[buckets].transpose(2, 0, 1))
    one_query_bias = relative_bias(tf.constant(table), queries=1, keys=300, first_query=tf.constant(150), **options)
    np.testing.assert_array_equal(one_query_bias[:, 0], bias[:, 150])


def test_decoding_step_by_step_gives_the_logits_of_the_whole_row(small_weights):
    rng = np.random.default_rng(2)
    labels = tf.constant(rng.integers(2, 96, (2, 5)), tf.int32)
    mask = tf.constant([[1] * 9, [1] * 5 + [0] * 4], tf.int32)
    batch = {"input_ids": tf.constant(rng.integers(2, 96, (2, 9)), tf.int32), "attention_mask": mask, "labels": labels}
    expected_logits = forward(small_weights, SMALL, batch)
    fed = shift_right(labels, SMALL)
    decoder = Decoder(small_weights, SMALL, batch["input_ids"], mask, max_length=5, beams=1, dtype=tf.float32)
    step, cache = tf.function(decoder, jit_compile=True, autograph=False), decoder.cache
    for position in range(5):
        logits, cache = step(fed[:, position, None], cache, tf.constant(position))
        np.testing.assert_allclose(logits, tf.transpose(expected_logits[:, position]), atol=1e-5)


def test_a_reordered_cache_goes_on_as_the_other_beam(small_weights):
    ids, mask = tf.constant([[5, 6, 7]]), tf.ones([1, 3], tf.int32)
    step = Decoder(small_weights, SMALL, ids, mask, max_length=4, beams=2, dtype=tf.float32)
    _, cache = step(tf.constant([[0, 9]]), step.cache, 0)
    swapped = reorder_cache(cache, tf.constant([1, 0]))
    plain, _ = step(tf.constant([[4, 4]]), cache, 1)
    reordered_logits, _ = step(tf.constant([[4, 4]]), swapped, 1)
    np.testing.assert_allclose(plain[:, 0], reordered_logits[:, 1], atol=1e-6)
    assert np.abs(plain[:, 0] - reordered_logits[:, 0]).max() > 1e-3


def test_labels_shift_right_within_their_segment():
    labels = tf.constant([[5, 6, 7, 8, -100]])
    segments = tf.constant([[1, 1, 2, 2, 0]])
    assert shift_right(labels, SMALL).numpy().tolist() == [[0, 5, 6, 7, 8]]
    assert shift_right(labels, SMALL, segment_ids=segments).numpy().tolist() == [[0, 5, 0, 7, 0]]
    assert shift_right(tf.constant([[5, -100, -100]]), SMALL).numpy().tolist() == [[0, 5, 0]]


def test_dropout_drops_its_rate_alike_along_the_row_and_scales_the_rest():
    dropout = Dropout(0.25, tf.constant([3, 4]))
    dropped = dropout(tf.ones([50, 6, 100]), site=7).numpy()
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    assert (dropped == 0).mean() == pytest.approx(0.25, abs=0.03)
    assert (dropped == dropped[:, :1]).all()
    np.testing.assert_array_equal(dropped, dropout(tf.ones([50, 6, 100]), site=7))
    for other_tensor in (
        dropout(tf.ones([50, 6, 100]), site=8),
        Dropout(0.25, tf.constant([3, 5]))(tf.ones([50, 6, 100]), site=7),
    ):
        assert 0.25 < (dropped == other_tensor.numpy()).mean() < 0.75
    assert (Dropout(0.25, None)(tf.ones([2, 3, 4]), site=0).numpy() == 1).all()


def test_dropout_keeps_the_mean_and_depends_on_the_seed_alone(small_weights):
    batch = {name: tf.constant(value) for name, value in draw_batch(96).items()}
    runs = [forward(small_weights, SMALL, batch, dropout_seed=tf.constant([0, seed])).numpy() for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 0.01


def test_bf16_follows_float32_and_gives_float32_logits(small_weights):
    batch = {name: tf.constant(value) for name, value in draw_batch(96).items()}
    exact = forward(small_weights, SMALL, batch)
    rounded = forward(small_weights, SMALL, batch, dtype=tf.bfloat16)
    assert rounded.dtype == tf.float32
    error = np.abs(rounded - exact).max() / np.abs(exact).max()
    assert 1e-4 < error < 0.1


def test_label_smoothing_and_z_loss_are_their_formulas():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, 3, 7)).astype(np.float32)
    labels = np.array([[1, -100, 6], [0, 2, -100]], np.int32)
    log_z = np.log(np.exp(logits).sum(-1))
    logp = logits - log_z[..., None]
    mask = labels >= 0
    nll = -np.take_along_axis(logp, np.maximum(labels, 0)[..., None], -1)[..., 0]
    expected = ((0.9 * nll - 0.1 * logp.mean(-1) + 0.01 * log_z**2) * mask).sum()

    def loss(x):
        return Sums.of(*SMALL.objective.losses(x, tf.constant(labels), label_smoothing=0.1, z_loss=0.01)).loss

    sums = Sums.of(*SMALL.objective.losses(logits, tf.constant(labels), label_smoothing=0.1, z_loss=0.01))
    assert float(sums.loss) == pytest.approx(expected, rel=1e-5)
    assert float(sums.targets) == 4
    assert float(sums.correct) == ((logits.argmax(-1) == labels) & mask).sum()
    theory, numeric = tf.test.compute_gradient(loss, [tf.constant(logits)], delta=1e-2)
    np.testing.assert_allclose(theory[0], numeric[0], atol=1e-3)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": ("model.unknown-type", "bert")}, ("model.unknown-type", "bert")),
        ({"model_type": ("model.unknown-type", "longt5")}, ("model.unknown-type", "longt5")),
        (
            {"model_type": "t5", "feed_forward_proj": ("model.unsupported-config", "gated-relu")},
            ("model.unsupported-config", "gated-relu"),
        ),
        ({}, ("model.unknown-type", "None")),
    ],
)
def test_another_architecture_is_refused(config, word):
    with raises(UsageError, *word):
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

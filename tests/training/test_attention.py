"""Attention and its gradients are those of a plain formula in float64, whatever is masked, biased, capped or packed."""

import numpy as np
import pytest
import tensorflow as tf

from t5prep.training.model import attention
from t5prep.training.model.layers import Dropout, project, scores_by_table
from t5prep.training.model.positions import AttentionSpan

BATCH, QUERIES, KEYS, HEADS, WIDTH = 4, 5, 7, 2, 4


def draw_normal(*shape: int, seed: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def mask_of(kind: str) -> tf.Tensor:
    rng = np.random.default_rng(9)
    shape = {"keys": (BATCH, 1, 1, KEYS), "causal": (1, 1, QUERIES, KEYS), "segments": (BATCH, 1, QUERIES, KEYS)}[kind]
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    return tf.constant(mask)


def formula(query, key, value, *biases, mask, dropped, cap):
    """Return attention as it is defined."""
    scores = tf.einsum("bqhd,bkhd->bhqk", query, key)
    scores = cap * tf.tanh(scores / cap) if cap else scores
    scores = tf.where(mask, scores + biases[0] if biases else scores, tf.constant(-1e9, scores.dtype))
    return tf.einsum("bhqk,bkhd->bqhd", tf.nn.softmax(scores), value if dropped is None else value * dropped)


@pytest.mark.parametrize(
    ("kind", "dtype", "error"),
    [("segments", "bfloat16", 0.06), *((kind, "float32", 1e-5) for kind in ("keys", "causal", "segments"))],
)
@pytest.mark.parametrize(
    ("bias", "drops", "cap"),
    [((), False, 0.0), ((HEADS,), True, 0.0), ((BATCH, HEADS), False, 0.0), ((), True, 1.5)],
)
def test_attention_is_its_formula(kind, bias, drops, cap, dtype, error):
    shapes = [(BATCH, QUERIES, HEADS, WIDTH), *[(BATCH, KEYS, HEADS, WIDTH)] * 2]
    inputs = [tf.cast(draw_normal(*shape, seed=seed), dtype) for seed, shape in enumerate(shapes)]
    # A bias of each row has the dtype of queries; one of all rows is float32.
    biases = (
        [tf.cast(draw_normal(*bias, QUERIES, KEYS, seed=5), "float32" if len(bias) == 1 else dtype)] if bias else []
    )
    upstream = tf.cast(draw_normal(*shapes[0], seed=6), dtype)
    dropped = tf.cast(draw_normal(BATCH, KEYS, HEADS, 1, seed=7) > 0, dtype) * 2 if drops else None

    def gradients(function, *tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            attended = function(*tensors)
        return [attended, *tape.gradient(attended, tensors, output_gradients=tf.cast(upstream, attended.dtype))]

    def ours(query, key, value, *biases):
        options = {"bias": biases[0] if biases else None, "mask": mask_of(kind), "dropped": dropped, "cap": cap}
        return attention.attend(query, key, value, **options)

    def theirs(*tensors):
        wide = None if dropped is None else tf.cast(dropped, tf.float64)
        return formula(*tensors, mask=mask_of(kind), dropped=wide, cap=cap)

    outputs = tf.function(gradients, jit_compile=True, autograph=False)(ours, *inputs, *biases)
    expected = gradients(theirs, *(tf.cast(tensor, tf.float64) for tensor in (*inputs, *biases)))
    assert [tensor.dtype for tensor in outputs] == [inputs[0].dtype, *(tensor.dtype for tensor in (*inputs, *biases))]
    for ours_, theirs_ in zip(outputs, expected, strict=True):
        size = max(1.0, float(tf.reduce_max(tf.abs(theirs_))))
        np.testing.assert_allclose(tf.cast(ours_, tf.float64) / size, theirs_ / size, atol=error)


def test_a_row_with_nothing_to_attend_to_has_numbers():
    query, key = draw_normal(1, 2, 1, 4, seed=1), draw_normal(1, 3, 1, 4, seed=2)
    attended = attention.attend(query, key, key, mask=tf.zeros([1, 1, 1, 3], tf.bool))
    np.testing.assert_allclose(attended, tf.repeat(tf.reduce_mean(key, axis=1, keepdims=True), 2, axis=1), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "share"), [("float32", 1 / (1 + np.exp(-1))), ("bfloat16", 0.5)])
def test_scores_have_the_dtype_of_queries_before_the_softmax(dtype, share):
    """Scores of 256 and 257 are one number in bfloat16: so `transformers` computes them under autocast."""
    query, key, value = (
        tf.reshape(tf.constant(numbers, dtype), [1, -1, 1, 2])
        for numbers in ([16.0, 1.0], [16.0, 0.0, 16.0, 1.0], [0.0, 0.0, 1.0, 1.0])
    )
    attended = attention.attend(query, key, value, mask=tf.ones([1, 1, 1, 2], tf.bool))
    np.testing.assert_allclose(tf.cast(attended, tf.float32), np.full([1, 1, 1, 2], share), rtol=1e-5)


def test_heads_of_keys_are_repeated_for_the_queries_that_share_them():
    key = draw_normal(2, 3, 2, 4, seed=1)
    assert attention.repeat_heads(key, 2) is key
    np.testing.assert_array_equal(attention.repeat_heads(key, 4), np.repeat(key.numpy(), 2, axis=2))


def test_biases_of_the_four_products_and_a_bias_made_of_queries_and_keys():
    x, mask = draw_normal(2, 5, 6, seed=1), tf.ones([1, 1, 1, 5], tf.bool)
    matrices = [*(draw_normal(6, 8, seed=seed) for seed in (2, 3, 4)), draw_normal(8, 6, seed=5)]
    biases = [*(draw_normal(8, seed=seed) for seed in (6, 7, 8)), draw_normal(6, seed=9)]
    query, key, value = (
        tf.reshape(x @ matrix + bias, [2, 5, 2, 4]) for matrix, bias in zip(matrices[:3], biases[:3], strict=True)
    )
    scores = tf.einsum("bqhd,bkhd->bhqk", query, key)
    attended = tf.einsum("bhqk,bkhd->bqhd", tf.nn.softmax(1.5 * scores), value)
    output = attention.multi_head_attention(
        x,
        x,
        matrices,
        heads=2,
        span=AttentionSpan(mask),
        scale=0.5,
        dropout=Dropout(0.0, None),
        dropout_site=0,
        biases=biases,
        bias=lambda scaled, keys: 2.0 * tf.einsum("bqhd,bkhd->bhqk", scaled, keys),
    )
    expected = tf.reshape(attended, [2, 5, 8]) @ matrices[3] + biases[3]
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


def test_the_gradient_of_a_matrix_is_one_product():
    """On a GPU a product of each row of the batch, and then their sum, takes twice the time of a step's products."""

    def gradient(x, matrix):
        with tf.GradientTape() as tape:
            tape.watch(matrix)
            y = project(x, matrix)
        return tape.gradient(y, matrix)

    specs = tf.TensorSpec([4, 8, 16], tf.bfloat16), tf.TensorSpec([16, 32], tf.bfloat16)
    module = tf.function(gradient, jit_compile=True, autograph=False).experimental_get_compiler_ir(*specs)(stage="hlo")
    assert "bf16[16,32]" in module
    assert "[4,16,32]" not in module


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("bfloat16", 0.03)])
def test_scores_by_a_table_round_both_sides_alone(dtype, error):
    x, table, upstream = (
        tf.cast(draw_normal(2, 3, 16, seed=1), dtype),
        draw_normal(40, 16, seed=2),
        draw_normal(2, 3, 40, seed=3),
    )
    with tf.GradientTape() as tape:
        tape.watch([x, table])
        scores = scores_by_table(x, table)
    assert scores.dtype == tf.float32
    rounded = tf.cast(tf.cast(table, dtype), tf.float32)
    np.testing.assert_allclose(scores, tf.einsum("blw,vw->blv", tf.cast(x, tf.float32), rounded), rtol=1e-5, atol=1e-5)
    found_x, found_table = tape.gradient(scores, [x, table], output_gradients=upstream)
    assert (found_x.dtype, found_table.dtype) == (x.dtype, tf.float32)
    wide = tf.cast(x, tf.float32)
    np.testing.assert_allclose(
        tf.cast(found_x, tf.float32), tf.einsum("blv,vw->blw", upstream, rounded), atol=20 * error
    )
    np.testing.assert_allclose(found_table, tf.einsum("blv,blw->vw", upstream, wide), atol=5 * error)

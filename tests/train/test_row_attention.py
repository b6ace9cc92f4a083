"""Attention row by row is attention: the same values and gradients, whatever is masked, biased or packed."""

import pytest

tf = pytest.importorskip("tensorflow", reason="needs the extra train")
np = pytest.importorskip("numpy")

from t5prep.train.model import attention, row_attention  # noqa: E402
from t5prep.train.model.sums import SLICES, row_and_column_sums, sum_of_squares, weighted_sum  # noqa: E402

BATCH, QUERIES, KEYS, HEADS, WIDTH = 4, 5, 7, 2, 4


def drawn(*shape: int, seed: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def mask_of(kind: str) -> tf.Tensor:
    rng = np.random.default_rng(9)
    shape = {"keys": (BATCH, 1, 1, KEYS), "causal": (1, 1, QUERIES, KEYS), "segments": (BATCH, 1, QUERIES, KEYS)}[kind]
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    if kind == "keys":
        mask[1] = False  # nothing to attend to
    return tf.constant(mask)


def run(kind: str, *, biased: bool, drops: bool, dtype: tf.DType) -> list[np.ndarray]:
    query, key, value = (drawn(BATCH, n, HEADS, WIDTH, seed=n) for n in (QUERIES, KEYS, KEYS + 1))
    inputs = [tf.cast(x, dtype) for x in (query, key, value[:, :KEYS])]
    bias = [drawn(HEADS, QUERIES, KEYS, seed=1)] if biased else []
    upstream = [tf.cast(drawn(BATCH, QUERIES, HEADS * WIDTH, seed=2), dtype)]
    dropped = tf.cast(drawn(BATCH, KEYS, HEADS, 1, seed=3) > 0, dtype) * 2 if drops else None
    with tf.GradientTape() as tape:
        tape.watch([inputs, bias])
        found = attention.attend(*inputs, bias=bias[0] if biased else None, mask=mask_of(kind), dropped=dropped)
    found = [one for one in found if one is not None]
    upstream += [drawn(HEADS, QUERIES, KEYS, seed=4)] * biased  # what later layers found of the bias
    return [found[0].numpy(), *(one.numpy() for one in tape.gradient(found, [*inputs, *bias], upstream))]


@pytest.mark.parametrize("kind", ["keys", "causal", "segments"])
@pytest.mark.parametrize(("biased", "drops"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("most", [1, 2 * QUERIES * KEYS * HEADS, 1 << 25])
@pytest.mark.parametrize(("dtype", "error"), [(tf.float32, 2e-6), (tf.bfloat16, 0.06)])
def test_row_by_row_finds_the_same_with_the_same_gradients(monkeypatch, kind, biased, drops, dtype, error, most):
    together = run(kind, biased=biased, drops=drops, dtype=dtype)
    monkeypatch.setattr(attention, "MANY", 0)
    monkeypatch.setattr(row_attention, "MOST", most)
    one_by_one = run(kind, biased=biased, drops=drops, dtype=dtype)
    assert len(together) == 4 + biased
    for ours, other in zip(one_by_one, together, strict=True):
        assert ours.dtype == other.dtype
        np.testing.assert_allclose(ours.astype(np.float32), other.astype(np.float32), atol=error, rtol=error)


@pytest.mark.parametrize("stack", [(), (3,), (3, 2)])
@pytest.mark.parametrize(("rows", "columns"), [(SLICES * 16, 150), (60, 80)])
def test_sums_are_sums(stack, rows, columns):
    x = drawn(*stack, rows, columns, seed=3)
    squares = np.square(x.numpy())
    np.testing.assert_allclose(sum_of_squares(x, stacked_axes=len(stack)), squares.sum((-1, -2)), rtol=1e-5)
    for found, axis in zip(row_and_column_sums(tf.square(x)), (-1, -2), strict=True):
        np.testing.assert_allclose(found, squares.sum(axis), rtol=1e-5)
    of_rows, of_columns = drawn(*stack, rows, seed=4), drawn(*stack, columns, seed=5)
    expected = np.einsum("...ij,...i,...j->...", squares, of_rows, of_columns)
    np.testing.assert_allclose(weighted_sum(tf.square(x), of_rows, of_columns), expected, rtol=1e-3)

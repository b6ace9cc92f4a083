"""Attention row by row is attention: the same values and gradients, whatever is masked, biased or packed."""

import pytest

tf = pytest.importorskip("tensorflow", reason='needs TensorFlow: pip install "t5prep[train]"')
np = pytest.importorskip("numpy")

from t5prep.train import attention  # noqa: E402
from t5prep.train.sums import SLICES, mean_squares, slices, sum_of_squares  # noqa: E402

BATCH, QUERIES, KEYS, HEADS, WIDTH = 3, 5, 7, 2, 4


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


def run(kind: str, *, biased: bool, dtype: tf.DType) -> list[np.ndarray]:
    query, key, value = (drawn(BATCH, n, HEADS, WIDTH, seed=n) for n in (QUERIES, KEYS, KEYS + 1))
    inputs = [tf.cast(x, dtype) for x in (query, key, value[:, :KEYS])]
    bias = [drawn(HEADS, QUERIES, KEYS, seed=1)] if biased else []
    upstream = tf.cast(drawn(BATCH, QUERIES, HEADS * WIDTH, seed=2), dtype)
    with tf.GradientTape() as tape:
        tape.watch([inputs, bias])
        found = attention.attend(*inputs, bias=bias[0] if biased else None, mask=mask_of(kind))
    return [found.numpy(), *(one.numpy() for one in tape.gradient(found, [*inputs, *bias], upstream))]


@pytest.mark.parametrize("kind", ["keys", "causal", "segments"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("dtype", "error"), [(tf.float32, 2e-6), (tf.bfloat16, 0.04)])
def test_row_by_row_finds_the_same_with_the_same_gradients(monkeypatch, kind, biased, dtype, error):
    together = run(kind, biased=biased, dtype=dtype)
    monkeypatch.setattr(attention, "MANY", 0)
    one_by_one = run(kind, biased=biased, dtype=dtype)
    assert len(together) == 4 + biased
    for ours, other in zip(one_by_one, together, strict=True):
        assert ours.dtype == other.dtype
        np.testing.assert_allclose(ours.astype(np.float32), other.astype(np.float32), atol=error, rtol=error)


@pytest.mark.parametrize(("rows", "columns", "cut"), [(SLICES * 16, 150, SLICES), (60, 80, 1), (SLICES * 16, 5, 1)])
def test_sums_in_slices_are_sums(rows, columns, cut):
    x = drawn(3, rows, columns, seed=3)
    parts = slices(x)
    assert len(parts) == cut
    squares = np.square(x.numpy())
    np.testing.assert_allclose(sum_of_squares(parts, stacked_axes=1)[:, 0, 0], squares.sum((1, 2)), rtol=1e-5)
    for found, axis in zip(mean_squares(parts), (-1, -2), strict=True):
        np.testing.assert_allclose(found, squares.mean(axis), rtol=1e-5)

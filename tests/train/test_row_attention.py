"""Attention row by row is attention: the same values and gradients, whatever is masked, biased or packed."""

import pytest

tf = pytest.importorskip("tensorflow", reason="needs the extra train")
np = pytest.importorskip("numpy")

from t5prep.train.model import attention  # noqa: E402
from t5prep.train.model.attention import Heads  # noqa: E402
from t5prep.train.model.layers import column_sums, row_sums, weight_sums  # noqa: E402

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


def run(kind: str, heads: Heads, *, biased: bool, drops: bool, dtype: tf.DType) -> list[np.ndarray]:
    """Return what is attended and all gradients, [batch, heads, d_kv, length] whatever is computed inside."""

    def ordered(x: tf.Tensor, *, last: bool) -> tf.Tensor:
        return x if last else tf.transpose(x, [0, 3, 1, 2])

    query, key, value = (
        tf.cast(drawn(BATCH, HEADS, WIDTH, n, seed=i), dtype) for i, n in enumerate((QUERIES, KEYS, KEYS), 5)
    )
    bias = [drawn(HEADS, QUERIES, KEYS, seed=1)] if biased else []
    upstream = [tf.cast(drawn(BATCH, HEADS, WIDTH, QUERIES, seed=2), dtype)]
    dropped = tf.cast(drawn(BATCH, HEADS, 1, KEYS, seed=3) > 0, dtype) * 2 if drops else None
    with tf.GradientTape() as tape:
        tape.watch([query, key, value, bias])
        attended, after = attention.attend(
            heads,
            ordered(query, last=heads.queries_last),
            ordered(key, last=heads.keys_last),
            ordered(value, last=heads.keys_last),
            bias=bias[0] if biased else None,
            mask=mask_of(kind),
            dropped=None if dropped is None else ordered(dropped, last=heads.keys_last),
        )
        attended = attended if heads.queries_last else tf.transpose(attended, [0, 2, 3, 1])
    found = [attended] if after is None else [attended, after]
    upstream += [drawn(HEADS, QUERIES, KEYS, seed=4)] * biased  # what later layers found of the bias
    gradients = tape.gradient(found, [query, key, value, *bias], upstream)
    return [attended.numpy(), *(one.numpy() for one in gradients)]


@pytest.mark.parametrize("kind", ["keys", "causal", "segments"])
@pytest.mark.parametrize(("biased", "drops"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("most", [1, 2 * QUERIES * KEYS * HEADS, 1 << 25])
@pytest.mark.parametrize(("dtype", "error"), [(tf.float32, 2e-6), (tf.bfloat16, 0.06)])
def test_row_by_row_finds_the_same_with_the_same_gradients(monkeypatch, kind, biased, drops, dtype, error, most):
    together = run(kind, Heads(HEADS), biased=biased, drops=drops, dtype=dtype)
    monkeypatch.setattr(attention, "MOST", most)
    one_by_one = run(kind, Heads(HEADS, by_rows=True), biased=biased, drops=drops, dtype=dtype)
    assert len(together) == 4 + biased
    for ours, other in zip(one_by_one, together, strict=True):
        assert ours.dtype == other.dtype
        np.testing.assert_allclose(ours.astype(np.float32), other.astype(np.float32), atol=error, rtol=error)


@pytest.mark.parametrize("without", ["", "sums"])
@pytest.mark.parametrize("stack", [(), (3,), (3, 2)])
def test_sums_are_sums(monkeypatch, stack, without):
    monkeypatch.setenv("T5PREP_WITHOUT", without)
    products = []
    einsum = tf.einsum
    monkeypatch.setattr(tf, "einsum", lambda *given: products.append(given) or einsum(*given))
    x = drawn(*stack, 60, 80, seed=3)
    np.testing.assert_allclose(
        weight_sums(tf.square(x), stacked_axes=len(stack)), np.square(x).sum((-1, -2)), rtol=1e-5
    )
    np.testing.assert_allclose(row_sums(tf.square(x)), np.square(x).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(column_sums(tf.square(x)), np.square(x).sum(-2), rtol=1e-5)
    assert bool(products) is not bool(without)
    vectors = drawn(*stack, 7, seed=4)
    np.testing.assert_allclose(weight_sums(vectors, stacked_axes=len(stack)), vectors.numpy().sum(-1), rtol=1e-4)


@pytest.mark.parametrize(("queries_last", "keys_last"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("dtype", "error"), [(tf.float32, 2e-6), (tf.bfloat16, 0.06)])
def test_the_order_of_axes_changes_nothing(queries_last, keys_last, dtype, error):
    heads = Heads(HEADS, queries_last=queries_last, keys_last=keys_last)
    found, expected = (run("keys", one, biased=True, drops=True, dtype=dtype) for one in (heads, Heads(HEADS)))
    for ours, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.astype(np.float32), other.astype(np.float32), atol=error, rtol=error)


def test_heads_are_split_and_joined_in_both_orders():
    x, matrix, bias, back = drawn(2, 5, 6, seed=1), drawn(6, 8, seed=2), drawn(8, seed=3), drawn(8, 6, seed=4)
    last, first = Heads(2, queries_last=True, keys_last=True), Heads(2)
    split = first.queries(x, matrix, bias)
    assert split.shape == (2, 5, 2, 4)
    for one in (last.queries, last.keys):
        np.testing.assert_allclose(one(x, matrix, bias), tf.transpose(split, [0, 2, 3, 1]), rtol=1e-5, atol=1e-6)
    joined = last.join(last.queries(x, matrix), back)
    np.testing.assert_allclose(joined, first.join(first.queries(x, matrix), back), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(joined, (x @ matrix) @ back, rtol=1e-4, atol=1e-5)


def test_long_texts_are_attended_by_rows_and_short_ones_have_positions_last():
    assert Heads.of(12, queries=512, keys=512) == Heads(12, by_rows=True)
    assert Heads.of(12, queries=64, keys=512) == Heads(12, queries_last=True)
    assert Heads.of(12, queries=64, keys=64) == Heads(12, queries_last=True, keys_last=True)

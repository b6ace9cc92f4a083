"""Slices of a stack are its slices, and their gradients come back in one array."""

import pytest

tf = pytest.importorskip("tensorflow", reason="needs the extra train")
np = pytest.importorskip("numpy")

from t5prep.train.model.layers import slices_of  # noqa: E402


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size", [1, 4])
def test_the_gradient_of_each_slice_is_in_its_place(size, compiled):
    rng = np.random.default_rng(0)
    stacked, factors = (tf.constant(rng.normal(size=(size, 3, 2)).astype(np.float32)) for _ in range(2))

    def run(stacked: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(stacked)
            slices = slices_of(stacked)
            total = tf.add_n([tf.reduce_sum(own * factors[number] * own) for number, own in enumerate(slices)])
        return tape.gradient(total, stacked)

    found = tf.function(run, jit_compile=True)(stacked) if compiled else run(stacked)
    np.testing.assert_allclose(found, 2 * stacked * factors, rtol=1e-6)


def test_the_gradient_of_slices_that_are_left_out_is_not_defined_and_the_others_are_in_their_place():
    stacked = tf.reshape(tf.range(12.0), [4, 3])
    with tf.GradientTape() as tape:
        tape.watch(stacked)
        slices = slices_of(stacked, 2)
        total = tf.add_n([tf.reduce_sum(tf.square(own)) for own in slices])
    assert len(slices) == 2
    np.testing.assert_array_equal(tape.gradient(total, stacked)[:2], 2 * stacked[:2])

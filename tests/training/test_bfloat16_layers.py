"""Layers whose gradients are written out for bfloat16: values and gradients are those of float32, rounded."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from t5prep.training.model.layers import gelu, layer_norm

LAYERS = {
    "norm": lambda x, scale, bias: layer_norm(x, scale, bias, epsilon=1e-12),
    "gelu": lambda x, scale, bias: gelu(x * tf.cast(scale, x.dtype) + tf.cast(bias, x.dtype)),
}


def computed(layer: Callable, dtype: tf.DType) -> list[np.ndarray]:
    """Return the layer's result, and the gradients of x, scale and bias, for values that bfloat16 holds exactly."""
    rng = np.random.default_rng(0)
    x, upstream = (
        tf.cast(tf.cast(rng.normal(0.5, 2.0, (3, 16, 24)).astype(np.float32), tf.bfloat16), dtype) for _ in range(2)
    )
    scale, bias = (tf.constant(rng.normal(1.0, 0.3, 24).astype(np.float32)) for _ in range(2))

    @tf.function(jit_compile=True, autograph=False)
    def run(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, scale, bias])
            y = layer(x, scale, bias)
        assert y.dtype == dtype
        gradients = tape.gradient(y, [x, scale, bias], output_gradients=upstream)
        return [tf.cast(value, tf.float32) for value in (y, *gradients)]

    return [value.numpy() for value in run(x, scale, bias)]


@pytest.mark.parametrize("layer", LAYERS)
def test_bfloat16_gives_what_float32_gives(layer: str) -> None:
    for values, expected in zip(computed(LAYERS[layer], tf.bfloat16), computed(LAYERS[layer], tf.float32), strict=True):
        np.testing.assert_allclose(values, expected, rtol=0.02, atol=0.02 * np.abs(expected).max())


def test_the_variance_of_vectors_far_from_zero_is_not_negative() -> None:
    x = tf.cast(100.0 + tf.zeros([1, 2, 8]), tf.bfloat16)
    assert np.isfinite(layer_norm(x, tf.ones(8), tf.zeros(8), epsilon=1e-12).numpy().astype(np.float32)).all()

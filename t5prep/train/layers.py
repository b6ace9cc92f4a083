"""The parts of a T5 layer besides attention: normalisation, dropout, feed-forward, and recomputing a layer."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla


def rms_norm(x: tf.Tensor, scale: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """Divide each vector by its root mean square, in float32, and scale it; no mean is taken away, no bias added."""
    wide = tf.cast(x, tf.float32)
    wide *= tf.math.rsqrt(tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True) + epsilon)
    return tf.cast(wide * tf.cast(scale, tf.float32), x.dtype)


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Dropout with masks that depend on a seed and on where they are used, so that a layer recomputed draws the same.

    As T5X has it, one mask serves the whole length axis: a position costs no random bits. `seed` is int32[2], another
    one each step and replica; None switches dropout off.
    """

    rate: float
    seed: tf.Tensor | None

    def mask(self, shape: Sequence[int], dtype: tf.DType, *, site: int) -> tf.Tensor | None:
        """What to multiply with: 0, or 1 / (1 - rate); None where nothing is dropped. Each `site` draws its own."""
        if self.seed is None or self.rate == 0.0:
            return None
        # An odd constant spreads the sites over the first word (2**32 / the golden ratio, Knuth's multiplier).
        spread = np.array([(site * 0x9E3779B1 + 2**31) % 2**32 - 2**31, 0], np.int32)
        drawn = tf.random.stateless_uniform(shape, self.seed + spread, alg="auto_select")
        return tf.cast(drawn >= self.rate, dtype) * tf.cast(1.0 / (1.0 - self.rate), dtype)

    def __call__(self, x: tf.Tensor, *, site: int) -> tf.Tensor:
        """Drop features of x, [batch, length, features...], alike at every position of a row."""
        mask = self.mask([x.shape[0], 1, *x.shape[2:]], x.dtype, site=site)
        return x if mask is None else x * mask


def feed_forward(x: tf.Tensor, wi: Sequence[tf.Tensor], wo: tf.Tensor, *, dropout: Dropout, site: int) -> tf.Tensor:
    """relu(x wi) wo, or with two matrices gelu(x wi_0) * (x wi_1) wo, GELU by its tanh (Shazeer 2020).

    x: [batch, length, d_model]; wi: one or two of [d_model, d_ff]; wo: [d_ff, d_model].
    """
    if len(wi) == 2:
        hidden = tf.nn.gelu(tf.matmul(x, wi[0]), approximate=True) * tf.matmul(x, wi[1])
    else:
        hidden = tf.nn.relu(tf.matmul(x, wi[0]))
    return tf.matmul(dropout(hidden, site=site), wo)


def recomputed(layer: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """The same layer, keeping only its arguments for the backward pass, which runs it again.

    Its arguments are tensors, all of them; what it closes over gets no gradient. The barrier keeps XLA from seeing that
    both runs are one computation; it exists under XLA only, so this works in a jit-compiled step.
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def forward(*inputs: tf.Tensor) -> tf.Tensor:
        outputs = layer(*inputs)

        def gradient(upstream: tf.Tensor) -> Sequence[tf.Tensor | None]:
            held = xla.optimization_barrier(upstream, *inputs)
            with tf.GradientTape() as tape:
                tape.watch(held[1:])
                again = layer(*held[1:])
            return tape.gradient(again, held[1:], output_gradients=held[0])

        return outputs, gradient

    return forward

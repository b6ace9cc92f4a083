"""Compute the parts of a layer besides attention: normalisation, dropout, feed-forward."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from t5prep.train.model.sums import ONES

_AUTO_SELECT = 3  # tf.random.Algorithm.AUTO_SELECT: the generator that is fastest on the device


def rms_norm(x: tf.Tensor, scale: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """Divide each vector by its root mean square, in float32, and scale it; subtract no mean and add no bias."""
    wide = tf.cast(x, tf.float32)
    wide *= tf.math.rsqrt(tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True) + epsilon)
    return tf.cast(wide * tf.cast(scale, tf.float32), x.dtype)


def layer_norm(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """Subtract each vector's mean, divide it by its standard deviation, in float32; scale it and add a bias.

    x: [batch, length, width]. In bfloat16 the variance is the mean square without the squared mean, so that one pass of
    the product which makes x adds up both, and the sums of the gradient are products with ones or with the scale.
    """
    if x.dtype == tf.float32:
        centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        normed = centered * tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + epsilon)
        return normed * tf.cast(scale, tf.float32) + tf.cast(bias, tf.float32)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Any]:
        wide = tf.cast(x, tf.float32)
        mean = tf.reduce_mean(wide, axis=-1, keepdims=True)
        square = tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True)
        inverse = tf.math.rsqrt(tf.maximum(square - tf.square(mean), 0.0) + epsilon)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            normed = (tf.cast(x, tf.float32) - mean) * inverse
            of_y = tf.cast(upstream, tf.float32)
            both = of_y * normed
            scales = tf.repeat(scale[:, None], ONES, axis=1) / scale.shape[0]
            one, other = (tf.einsum("blw,wn->bln", part, scales)[..., :1] for part in (of_y, both))
            ones = tf.ones([*x.shape[:2], ONES], tf.float32)
            of_bias, of_scale = (tf.einsum("bln,blw->nw", ones, part)[0] for part in (of_y, both))
            return tf.cast((of_y * scale - one - normed * other) * inverse, x.dtype), of_scale, of_bias

        return tf.cast((wide - mean) * inverse * scale + bias, x.dtype), gradient

    return run(x, tf.cast(scale, tf.float32), tf.cast(bias, tf.float32))


def cast_weight(weight: Any, dtype: tf.DType) -> tf.Tensor:
    """Return a weight in `dtype`. Its gradient stays in `dtype` too, which halves the bytes to stack and to read.

    The code that adds up gradients casts them.
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def cast(whole: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tf.cast(whole, dtype), lambda upstream: upstream

    return cast(tf.convert_to_tensor(weight))


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Apply dropout with masks that depend only on a seed and a site, so that a recomputed layer draws the same masks.

    As in T5X, one mask serves the whole length axis, which saves random bits. `seed` is int32[2], different for each
    step and replica; None switches dropout off.
    """

    rate: float
    seed: tf.Tensor | None

    def mask(self, shape: Sequence[int], dtype: tf.DType, *, site: int | tf.Tensor) -> tf.Tensor | None:
        """Return a mask of 0 and 1 / (1 - rate); None where nothing is dropped. Each `site` has its own mask."""
        if self.seed is None or self.rate == 0.0:
            return None
        # One key for each step; each site counts from its own multiple of 2**32, in the counter's first word, which is
        # the one that a TPU's own generator uses (tensorflow/compiler/tf2xla/kernels/stateless_random_ops_v2.cc).
        bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=shape,
            key=tf.reshape(tf.bitcast(self.seed, tf.uint64), [1]),
            counter=tf.bitcast(tf.reshape(tf.stack([0, site, 0, 0]), [2, 2]), tf.uint64),
            alg=_AUTO_SELECT,
            dtype=tf.int32,
        )
        keep = bits >= round(self.rate * 2**32) - 2**31
        return tf.where(keep, tf.constant(1.0 / (1.0 - self.rate), dtype), tf.constant(0.0, dtype))

    def masks(
        self, rows: int, widths: Sequence[int], dtype: tf.DType, *, site: int | tf.Tensor
    ) -> list[tf.Tensor | None]:
        """Return a mask [rows, 1, width] for each width, all drawn at once: a draw costs more than its bits."""
        whole = self.mask([rows, 1, sum(widths)], dtype, site=site)
        return [None] * len(widths) if whole is None else tf.split(whole, widths, axis=2)

    def __call__(self, x: tf.Tensor, *, site: int | tf.Tensor) -> tf.Tensor:
        """Drop features of x, [batch, length, features...], the same ones at every position of a row."""
        return masked(x, self.mask([x.shape[0], 1, *x.shape[2:]], x.dtype, site=site))


def feed_forward(x: tf.Tensor, wi: Sequence[Any], wo: Any, *, mask: tf.Tensor | None = None) -> tf.Tensor:
    """Return relu(x wi) wo, or with two matrices gelu(x wi_0) * (x wi_1) wo, GELU by its tanh form (Shazeer 2020).

    x: [batch, length, d_model]; wi: one or two of [d_model, d_ff]; wo: [d_ff, d_model]; mask: of dropout, by which the
    hidden values are multiplied.
    """
    first = tf.matmul(x, wi[0])
    hidden = tf.nn.gelu(first, approximate=True) * tf.matmul(x, wi[1]) if len(wi) == 2 else tf.nn.relu(first)
    return tf.matmul(masked(hidden, mask), wo)


def masked(x: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Return x times a mask of dropout, or x where nothing is dropped."""
    return x if mask is None else x * mask

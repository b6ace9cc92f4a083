"""Compute the parts of a layer besides attention, and run layers as a loop."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf


def product(equation: str, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Return tf.einsum(equation, left, right) in float32, with sums in float32.

    On an accelerator the casts cost nothing for bfloat16 operands: it multiplies them as bfloat16
    (`lowering.multiply_rounded`; docs/decisions/010-round-both-sides-of-float32-products.md).
    """
    return tf.einsum(equation, tf.cast(left, tf.float32), tf.cast(right, tf.float32))


def project(x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """Return x, [batch, length, width], times a matrix, [width, out]: [batch, length, out].

    The gradient of the matrix is one product over all vectors. With `tf.matmul` it would be one product for each row of the
    batch, and their sum.
    """
    # A custom gradient by tf.matmul takes 1.2 s instead of 1.7 s of a CPU's step, but 89.7 M instead of 78.0 M cycles on a TPU
    # (docs/decisions/006-keep-einsum-gradient.md).
    return tf.einsum("bli,io->blo", x, matrix)


# The error function is x P(x^2) / Q(x^2) for |x| up to REACH, to 1e-7. The coefficients are Eigen's (SpecialFunctionsImpl.h),
# highest power first. tf.math.erf is not used, because it becomes an operation that StableHLO does not have.
P = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)
REACH = 4.0


# The second result of a function under tf.custom_gradient: upstream gradient → gradients of the arguments.
Gradient = Callable[..., tf.Tensor]


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Return the exact GELU of x: x times the standard normal distribution function at x.

    For bfloat16, `erf` computes it in float32. The backward pass computes the slope from x again, so only x is stored.
    """
    if x.dtype == tf.float32:
        return tf.nn.gelu(x, approximate=False)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        wide = tf.cast(x, tf.float32)
        below = 0.5 * (1.0 + erf(wide * math.sqrt(0.5)))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            slope = below + wide * tf.exp(-0.5 * tf.square(wide)) / math.sqrt(2.0 * math.pi)
            return tf.cast(tf.cast(upstream, tf.float32) * slope, x.dtype)

        return tf.cast(wide * below, x.dtype), gradient

    return run(x)


def erf(x: tf.Tensor) -> tf.Tensor:
    """Return the error function of float32 values.

    >>> [round(float(erf(tf.constant(x))), 4) for x in (-9.0, -0.5, 0.0, 1.0)]
    [-1.0, -0.5205, 0.0, 0.8427]
    """
    x = tf.clip_by_value(x, -REACH, REACH)
    return x * _polynomial(tf.square(x), P) / _polynomial(tf.square(x), Q)


def _polynomial(x: tf.Tensor, coefficients: Sequence[float]) -> tf.Tensor:
    return functools.reduce(
        lambda total, coefficient: total * x + coefficient, coefficients[1:], tf.fill(x.shape, coefficients[0])
    )


_AUTO_SELECT = 3  # tf.random.Algorithm.AUTO_SELECT: the generator that is fastest on the device


def rms_norm(x: tf.Tensor, scale: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """Return x with each vector divided by its root mean square, in float32, and multiplied by `scale`, in the dtype of x."""
    wide = tf.cast(x, tf.float32)
    wide *= tf.math.rsqrt(tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True) + epsilon)
    return tf.cast(wide * tf.cast(scale, tf.float32), x.dtype)


def layer_norm(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor | None, *, epsilon: float) -> tf.Tensor:
    """Return x with each vector normalized to mean 0 and variance 1, in float32, times `scale`, plus `bias` if not None."""
    wide = tf.cast(x, tf.float32)
    centered = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
    normed = centered * tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + epsilon)
    normed *= tf.cast(scale, tf.float32)
    return tf.cast(normed if bias is None else normed + tf.cast(bias, tf.float32), x.dtype)


def cast_weight(weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return a weight in `dtype`, whose gradient also has `dtype`.

    Gradients in bfloat16 have half the bytes to stack and to read. The code that adds up gradients casts them to float32.
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def cast(tensor: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        return tf.cast(tensor, dtype), lambda upstream: upstream

    return cast(tf.convert_to_tensor(weight))


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Apply dropout with masks that depend only on a seed and a site, so that a recomputed layer draws the same masks.

    A *site* is the number of one use of dropout in the model. As in T5X, one mask serves all positions of a row, which saves
    random bits. `seed` is int32[2], different for each step and replica; None switches dropout off.
    """

    rate: float
    seed: tf.Tensor | None

    def mask(self, shape: Sequence[int], dtype: tf.DType, *, site: int | tf.Tensor) -> tf.Tensor | None:
        """Return the mask of a `site`, with values 0 and 1 / (1 - rate); None if nothing is dropped."""
        if self.seed is None or self.rate == 0.0:
            return None
        # The key is the step's seed. Each site counts from its own multiple of 2**32 in the counter's first 64-bit word, because
        # a TPU's own generator reads only that word (tensorflow/compiler/tf2xla/kernels/stateless_random_ops_v2.cc).
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
        """Return a mask, [rows, 1, width], for each width.

        All are drawn at once, because a draw costs more than its bits: -0.1 M cycles of a T5-base step
        (docs/decisions/004-compute-attention-plainly.md).
        """
        mask = self.mask([rows, 1, sum(widths)], dtype, site=site)
        return [None] * len(widths) if mask is None else tf.split(mask, widths, axis=2)

    def __call__(self, x: tf.Tensor, *, site: int | tf.Tensor) -> tf.Tensor:
        """Return x, [batch, length, features...], with the same features dropped at every position of a row."""
        return masked(x, self.mask([x.shape[0], 1, *x.shape[2:]], x.dtype, site=site))


class ComputeOptions(NamedTuple):
    """Options of a model's computation: the dtype of matrices and activations, dropout, and rematerialization.

    remat: layers run in a loop, and once more in the backward pass, instead of storing their activations.
    """

    dtype: tf.DType = tf.float32
    dropout: Dropout = Dropout(0.0, None)
    remat: bool = False


# Activation functions by their names in a config.json.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": gelu,
    "gelu_new": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "tanh": tf.tanh,
}


def feed_forward(
    x: tf.Tensor, wi: Sequence[tf.Tensor], wo: tf.Tensor, *, activation: str, mask: tf.Tensor | None = None
) -> tf.Tensor:
    """Return a(x wi_0) wo, or with two matrices in `wi` the gated (a(x wi_0) * (x wi_1)) wo (Shazeer 2020).

    x: [batch, length, d_model]; wi: one or two matrices, [d_model, d_ff]; wo: [d_ff, d_model]; activation: the name of a in
    ACTIVATIONS; mask: a dropout mask, by which the hidden values are multiplied.
    """
    hidden = ACTIVATIONS[activation](project(x, wi[0]))
    if len(wi) == 2:
        hidden *= project(x, wi[1])
    return project(masked(hidden, mask), wo)


def masked(x: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Return x times a dropout mask; x if the mask is None."""
    return x if mask is None else x * mask


def mean_of_tokens(x: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """Return the mean of x, [batch, length, width], over each text: float32[batch, width].

    tokens: int32[batch, length], 0 for padding, which is left out of the mean.
    """
    token_mask = tf.cast(tokens > 0, tf.float32)[..., None]
    return tf.reduce_sum(tf.cast(x, tf.float32) * token_mask, axis=1) / tf.maximum(
        tf.reduce_sum(token_mask, axis=1), 1.0
    )


def last_matrix(weights: Mapping[str, tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """Return the logits of the classes, float32[..., classes], from vectors x, [..., width], by a head's last matrix."""
    matrix, bias = (tf.convert_to_tensor(weights[f"head.{name}"]) for name in ("classifier", "classifier_bias"))
    return tf.matmul(x, matrix) + bias


def scores_by_table(x: tf.Tensor, table: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
    """Return the products of vectors x, [..., width], with each row of a table, plus any bias: float32[..., rows].

    If x is bfloat16, the table and the gradients of the scores are rounded to bfloat16; sums are float32. x is reshaped to one
    matrix. Otherwise the gradient of the table would be computed for each row of the batch and then added up, which takes 140
    ms instead of 108 ms for a step of the tiny recipe (docs/decisions/006-keep-einsum-gradient.md).
    """
    dtype, flat = x.dtype, tf.reshape(x, [-1, x.shape[-1]])

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(flat: tf.Tensor, table: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        rounded = tf.cast(table, dtype)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            upstream = tf.cast(upstream, dtype)
            return (
                tf.cast(product("nv,vw->nw", upstream, rounded), dtype),
                tf.cast(product("nv,nw->vw", upstream, flat), table.dtype),
            )

        return product("nw,vw->nv", flat, rounded), gradient

    scores = run(flat, table)
    scores = scores if bias is None else scores + bias
    return tf.reshape(scores, [*x.shape[:-1], scores.shape[-1]])


# A layer: (x, inputs shared by all layers, the layer's weights, its number: an int, or a tensor in a loop) → x.
Layer = Callable[[tf.Tensor, Sequence[tf.Tensor], Mapping[str, tf.Tensor], tf.Tensor], tf.Tensor]


def run_layers(
    layer: Layer,
    x: tf.Tensor,
    shared: Sequence[tf.Tensor],
    weights: Mapping[str, tf.Tensor | Sequence[tf.Tensor]],
    *,
    remat: bool,
    first: int = 0,
) -> tf.Tensor:
    """Apply the layers one after the other to x and return the result.

    Layers are unrolled in the program, because a loop takes 57 % more cycles (docs/decisions/002-unroll-layers.md). With
    `remat`, `loop_over_layers` runs them as a loop, which needs less memory.

    weights: by name, one tensor with a leading axis of layers, or a list with a tensor for each layer. shared: see
    `loop_over_layers`. first: apply only the first `first` layers; 0: all. A loop always applies all.
    """
    if remat:
        stacked = {
            name: tf.stack(tensors) if isinstance(tensors, list) else tensors for name, tensors in weights.items()
        }
        return loop_over_layers(layer, x, shared, stacked)
    for number, w in enumerate(unstack_layers(weights)[: first or None]):
        x = layer(x, shared, w, number)
    return x


def unstack_layers(weights: Mapping[str, tf.Tensor | Sequence[tf.Tensor]]) -> list[dict[str, tf.Tensor]]:
    """Return for each layer its weights by name, from the `weights` of `run_layers`."""
    by_layer = zip(
        *(tensors if isinstance(tensors, list) else tf.unstack(tensors) for tensors in weights.values()), strict=True
    )
    return [dict(zip(weights, tensors, strict=True)) for tensors in by_layer]


def loop_over_layers(
    layer: Layer, x: tf.Tensor, shared: Sequence[tf.Tensor], stacked: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Apply the layers one after the other to x, in a loop over their stacked weights, and return the result.

    Only each layer's input is stored; the backward pass is a second loop that computes each layer again. All layers share one
    program, so XLA compiles in the time of one layer. In the backward pass a layer's gradients overwrite its weights, which
    saves the memory of a second stack.

    stacked: weights with a leading axis of layers; shared: other inputs with gradients, which are added up over the layers.
    Tensors in the closure of `layer` get no gradient.
    """
    names = list(stacked)
    layers = int(stacked[names[0]].shape[0])

    def name_values(values: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        return dict(zip(names, values, strict=True))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, shared: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Gradient]:
        def forward(number: tf.Tensor, x: tf.Tensor, inputs: tf.TensorArray) -> tuple[tf.Tensor, ...]:
            y = layer(x, shared, name_values([value[number] for value in values]), number)
            return number + 1, y, inputs.write(number, x)

        inputs = tf.TensorArray(x.dtype, size=layers, element_shape=x.shape)
        _, y, inputs = tf.while_loop(lambda n, *_: n < layers, forward, (0, x, inputs), maximum_iterations=layers)
        layer_inputs = inputs.stack()

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def backward(
                step: tf.Tensor, upstream: tf.Tensor, shared_sums: list[tf.Tensor], arrays: list[tf.TensorArray]
            ) -> tuple[tf.Tensor, ...]:
                """Compute the gradients of one layer, from the last layer to the first. `upstream` is that of its output."""
                number = layers - 1 - step
                inputs = (layer_inputs[number], list(shared), name_values([array.read(number) for array in arrays]))
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(inputs)
                    y = layer(*inputs, number)
                zero = tf.UnconnectedGradients.ZERO
                x_gradient, shared_gradients, weight_gradients = tape.gradient(
                    y, inputs, output_gradients=upstream, unconnected_gradients=zero
                )
                shared_sums = [total + part for total, part in zip(shared_sums, shared_gradients, strict=True)]
                # These weights are not read again: write their gradients in their place.
                arrays = [
                    array.write(number, weight_gradients[name]) for array, name in zip(arrays, names, strict=True)
                ]
                return step + 1, x_gradient, shared_sums, arrays

            arrays = [array_of(value) for value in values]
            begin = (0, upstream, [tf.zeros_like(tensor) for tensor in shared], arrays)
            _, x_gradient, shared_sums, arrays = tf.while_loop(
                lambda step, *_: step < layers, backward, begin, maximum_iterations=layers
            )
            return x_gradient, shared_sums, [array.stack() for array in arrays]

        return y, gradient

    return run(x, list(shared), [stacked[name] for name in names])


def array_of(value: tf.Tensor) -> tf.TensorArray:
    """Return a TensorArray of the slices of a tensor along its first axis, whose entries may be overwritten after reading."""
    array = tf.TensorArray(value.dtype, size=value.shape[0], element_shape=value.shape[1:], clear_after_read=False)
    return array.unstack(value)

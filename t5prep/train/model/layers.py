"""Compute the parts of a layer besides attention, and run layers one after the other or as a loop.

Some of it is shaped by what the TPU compiler makes of it; `switches` turns each such trick off by itself, and
docs/notes.md has what it gains.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from t5prep.train.model.switches import is_on

# No weight or activation is this number; `runtime.lowering.leave_unfilled` looks for it.
FILLER = -(2.0**-100)


def unfilled(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
    """Return a tensor all of whose values must be overwritten before they are read.

    An array that a loop fills begins with zeros, and writing them takes a TPU as long as a third of attention's forward
    pass. On a TPU this tensor becomes memory that nothing is written into (`runtime.lowering.leave_unfilled`); anywhere else
    it is filled with FILLER.
    """
    return tf.fill(shape, tf.constant(FILLER, dtype))


def gradients_in_turn(layer: Callable[[tf.Tensor, Any], tf.Tensor], x: tf.Tensor, weights: Any) -> tf.Tensor:
    """Return layer(x, weights). In bfloat16 its backward pass makes all gradients of matrices before it gives on that of x.

    A TPU updates a matrix in the product that makes its gradient. Without an order the compiler puts these products at the end
    of the step: there they wait for memory, and all that they read is kept until then. In turn, a matrix and its slots are
    fetched while the layers above compute. The order comes from the sums of squares, which those products add up in any case.

    weights: tensors in any nesting.
    """
    if x.dtype == tf.float32 or not is_on("barriers"):
        return layer(x, weights)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, *flat: tf.Tensor) -> tuple[tf.Tensor, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([x, *flat])
            y = layer(x, tf.nest.pack_sequence_as(weights, flat))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            of_x, *of_weights = tape.gradient(y, [x, *flat], output_gradients=upstream)
            matrices = [tf.cast(one, tf.float32) for one in of_weights if one.shape.rank == 2]
            of_x, *_ = xla.optimization_barrier(of_x, *(tf.reduce_sum(tf.square(one)) for one in matrices))
            return of_x, *of_weights

        return y, gradient

    y: tf.Tensor = run(x, *tf.nest.flatten(weights))
    return y


ONES = 8  # columns of ones: XLA would turn a product with a single column into a sum again


# Large arrays are added up as products with ones, which a TPU computes in a third of a sum's time: XLA passes one register at
# a time through a reduction, and a product reads its input as fast as it can. It multiplies in bfloat16: each number is
# rounded to 8 bits, but the sum is not. For weights and gradients this error is smaller than the rounding of a gradient in
# bfloat16 before. (By libtpu 0.0.51's estimates for v5e: with sums instead, a step of T5-small is 2.3 M cycles longer.)


def row_sums(x: tf.Tensor) -> tf.Tensor:
    """Return the sum over each row of the matrices in a stack.

    >>> row_sums(tf.constant([[3.0, 4.0], [1.0, 0.0]])).numpy().tolist()
    [7.0, 1.0]
    """
    if not is_on("sums"):
        return tf.reduce_sum(x, axis=-1)
    return tf.einsum("...ij,jk->...ik", x, tf.ones([x.shape[-1], ONES], x.dtype))[..., 0]


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """Return the sum over each column of the matrices in a stack.

    >>> column_sums(tf.constant([[3.0, 4.0], [1.0, 0.0]])).numpy().tolist()
    [4.0, 4.0]
    """
    if not is_on("sums"):
        return tf.reduce_sum(x, axis=-2)
    return tf.einsum("...ij,ik->...kj", x, tf.ones([x.shape[-2], ONES], x.dtype))[..., 0, :]


def weight_sums(x: tf.Tensor, *, stacked_axes: int = 0) -> tf.Tensor:
    """Return one sum for each weight in a stack: a number for each matrix or vector.

    >>> weight_sums(tf.ones([3, 4, 5]), stacked_axes=1).numpy().tolist()
    [20.0, 20.0, 20.0]
    """
    if x.shape.rank - stacked_axes > 1:
        x = row_sums(x)
    return tf.reduce_sum(x, axis=list(range(stacked_axes, x.shape.rank)))


def slices_of(stacked: tf.Tensor, first: int = 0) -> list[tf.Tensor]:
    """Return the slices of the first axis: the `first` ones, or all of them with 0.

    The gradient of `tf.unstack` is a concatenation, for which a TPU copies the gradients of all layers. Here each is
    written to its place in one array, which is passed from the last slice to the first; a product writes it there
    itself. The gradient of a slice that is left out has no defined value.
    """
    slices, size = [], first or int(stacked.shape[0])
    for number in range(size):
        one, stacked = _cut(stacked, number, last=number == size - 1)
        slices.append(one)
    return slices


def _cut(stacked: tf.Tensor, number: int, *, last: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Return one slice, and all slices unchanged, from which the following ones are cut."""
    size = int(stacked.shape[0])

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def cut(whole: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Any]:
        def gradient(of_slice: tf.Tensor, of_whole: tf.Tensor) -> tf.Tensor:
            if last:  # nothing was cut from the rest
                of_whole = unfilled(whole.shape, of_slice.dtype)
            array = tf.TensorArray(of_slice.dtype, size=size, element_shape=of_slice.shape, clear_after_read=False)
            return array.unstack(of_whole).write(number, of_slice).stack()

        return (whole[number], tf.identity(whole)), gradient

    one, rest = cut(stacked)
    return one, rest


# The error function as x P(x^2) / Q(x^2), of |x| up to REACH, to 1e-7: the coefficients of Eigen (SpecialFunctionsImpl.h),
# highest power first. TensorFlow's own becomes an operation that StableHLO does not have.
P = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)
REACH = 4.0


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Return x times the share of a standard normal distribution that is below x.

    In bfloat16 it is for programs of XLA alone: value and slope are computed together and kept. Otherwise XLA keeps x and
    computes the error function again in each product that reads one of them, three times a layer.
    """
    if x.dtype == tf.float32:
        return tf.nn.gelu(x, approximate=False)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        wide = tf.cast(x, tf.float32)
        below = 0.5 * (1.0 + erf(wide * math.sqrt(0.5)))
        slope = below + wide * tf.exp(-0.5 * tf.square(wide)) / math.sqrt(2.0 * math.pi)
        value, kept = tf.cast(wide * below, x.dtype), tf.cast(slope, x.dtype)
        if is_on("barriers"):
            (value,), (kept,) = xla.optimization_barrier(value), xla.optimization_barrier(kept)
        return value, lambda upstream: upstream * kept

    return run(x)


def erf(x: tf.Tensor) -> tf.Tensor:
    """Return the error function of float32 values.

    >>> [round(float(erf(tf.constant(x))), 4) for x in (-9.0, -0.5, 0.0, 1.0)]
    [-1.0, -0.5205, 0.0, 0.8427]
    """
    x = tf.clip_by_value(x, -REACH, REACH)
    return x * _polynomial(tf.square(x), P) / _polynomial(tf.square(x), Q)


def _polynomial(x: tf.Tensor, coefficients: Sequence[float]) -> tf.Tensor:
    return functools.reduce(lambda total, one: total * x + one, coefficients[1:], tf.fill(x.shape, coefficients[0]))


_AUTO_SELECT = 3  # tf.random.Algorithm.AUTO_SELECT: the generator that is fastest on the device


def rms_norm(x: tf.Tensor, scale: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """Divide each vector by its root mean square, in float32, and scale it; subtract no mean and add no bias."""
    wide = tf.cast(x, tf.float32)
    wide *= tf.math.rsqrt(tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True) + epsilon)
    return tf.cast(wide * tf.cast(scale, tf.float32), x.dtype)


def layer_norm(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor | None, *, epsilon: float) -> tf.Tensor:
    """Subtract each vector's mean, divide it by its standard deviation, in float32; scale it and add a bias, if there is one.

    x: [batch, length, width]. In bfloat16 the variance is the mean square without the squared mean, so that one pass of
    the product which makes x adds up both, and the sums of the gradient are products with ones or with the scale.
    """
    if bias is None:
        bias = tf.zeros(scale.shape)
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
        """Return a mask of 0 and 1 / (1 - rate); None if nothing is dropped. Each `site` has its own mask."""
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


class How(NamedTuple):
    """Say how a model is computed: the dtype of matrices and activations, what is dropped, and whether layers run as a loop.

    remat: the layers run as a loop, and again in the backward pass instead of keeping their activations.
    """

    dtype: tf.DType = tf.float32
    dropout: Dropout = Dropout(0.0, None)
    remat: bool = False


# By their names in a config.json.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": gelu,
    "gelu_new": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "tanh": tf.tanh,
}


def feed_forward(
    x: tf.Tensor, wi: Sequence[Any], wo: Any, *, activation: str, mask: tf.Tensor | None = None
) -> tf.Tensor:
    """Return relu(x wi) wo, or with two matrices a(x wi_0) * (x wi_1) wo for GELU or SiLU as a (Shazeer 2020).

    x: [batch, length, d_model]; wi: one or two of [d_model, d_ff]; wo: [d_ff, d_model]; activation: one of
    ACTIVATIONS; mask: of dropout, by which the hidden values are multiplied.
    """
    hidden = ACTIVATIONS[activation](tf.matmul(x, wi[0]))
    if len(wi) == 2:
        hidden *= tf.matmul(x, wi[1])
    return tf.matmul(masked(hidden, mask), wo)


def masked(x: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Return x times a mask of dropout, or x if nothing is dropped."""
    return x if mask is None else x * mask


def mean_of_tokens(x: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """Return the mean of x over the tokens of each text, float32[batch, width]; `tokens` is 0 for padding, [batch, length]."""
    counted = tf.cast(tokens > 0, tf.float32)[..., None]
    return tf.reduce_sum(tf.cast(x, tf.float32) * counted, axis=1) / tf.maximum(tf.reduce_sum(counted, axis=1), 1.0)


def last_matrix(weights: Mapping[str, Any], x: tf.Tensor) -> tf.Tensor:
    """Return the logits of the classes, float32[..., classes], from vectors of tokens or texts."""
    matrix, bias = (tf.convert_to_tensor(weights[f"head.{name}"]) for name in ("classifier", "classifier_bias"))
    return tf.matmul(x, matrix) + bias


def scores_by_table(x: tf.Tensor, table: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
    """Return the products of vectors, float32[..., width], with each row of a table, and any bias: float32[..., rows].

    As one matrix: the gradient of the table would else be computed for each row of the batch, and then added up.
    """
    scores = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), table, transpose_b=True)
    scores = scores if bias is None else scores + bias
    return tf.reshape(scores, [*x.shape[:-1], scores.shape[-1]])


# A layer: (x, inputs that all layers share, this layer's weights, its number) → x.
Layer = Callable[[tf.Tensor, Sequence[tf.Tensor], Mapping[str, tf.Tensor], tf.Tensor], tf.Tensor]


def loop_over_layers(
    layer: Layer, x: tf.Tensor, shared: Sequence[tf.Tensor], stacked: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Apply the layers one after the other to x, as one loop over their stacked weights, and return the result.

    Only each layer's input is kept for the backward pass, a loop which runs each layer again. All layers share one program, so
    XLA compiles in the time of one layer; and a layer's gradients overwrite its weights' slots after they were read.

    stacked: weights with a leading axis of layers; shared: other inputs with gradients, which are added up over the
    layers. Tensors in the closure of `layer` get no gradient.
    """
    names = list(stacked)
    layers = int(stacked[names[0]].shape[0])

    def own(values: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        return dict(zip(names, values, strict=True))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, shared: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Any]:
        def forward(number: tf.Tensor, x: tf.Tensor, inputs: tf.TensorArray) -> tuple[Any, ...]:
            y = layer(x, shared, own([value[number] for value in values]), number)
            return number + 1, y, inputs.write(number, x)

        inputs = tf.TensorArray(x.dtype, size=layers, element_shape=x.shape)
        _, y, inputs = tf.while_loop(lambda n, *_: n < layers, forward, (0, x, inputs), maximum_iterations=layers)
        layer_inputs = inputs.stack()

        def gradient(upstream: tf.Tensor) -> tuple[Any, ...]:
            def backward(
                done: tf.Tensor, of_x: tf.Tensor, of_shared: list[tf.Tensor], arrays: list[tf.TensorArray]
            ) -> tuple[Any, ...]:
                number = layers - 1 - done
                inputs = (layer_inputs[number], list(shared), own([array.read(number) for array in arrays]))
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(inputs)
                    y = layer(*inputs, number)
                zero = tf.UnconnectedGradients.ZERO
                of_x, more, of_own = tape.gradient(y, inputs, output_gradients=of_x, unconnected_gradients=zero)
                of_shared = [total + part for total, part in zip(of_shared, more, strict=True)]
                # These weights are not read again: write their gradients in their place.
                arrays = [array.write(number, of_own[name]) for array, name in zip(arrays, names, strict=True)]
                return done + 1, of_x, of_shared, arrays

            arrays = [array_of(value) for value in values]
            begin = (0, upstream, [tf.zeros_like(one) for one in shared], arrays)
            _, of_x, of_shared, arrays = tf.while_loop(
                lambda done, *_: done < layers, backward, begin, maximum_iterations=layers
            )
            return of_x, of_shared, [array.stack() for array in arrays]

        return y, gradient

    return run(x, list(shared), [stacked[name] for name in names])


def array_of(value: tf.Tensor) -> tf.TensorArray:
    """Return a tensor as the array of slices of its first axis; each slice may be overwritten after it was read."""
    array = tf.TensorArray(value.dtype, size=value.shape[0], element_shape=value.shape[1:], clear_after_read=False)
    return array.unstack(value)

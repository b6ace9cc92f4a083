"""Say to the TPU compiler what no operation of TensorFlow says: that memory needs no first value, and what comes first.

`switches` turns each of it off by itself; docs/notes.md has what it gains.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from t5prep.train.model.switches import is_on

# No weight or activation is this number; `runtime.embedding.for_tpu` looks for it.
FILLER = -(2.0**-100)


def unfilled(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
    """Return a tensor all of whose values must be overwritten before they are read.

    An array that a loop fills begins with zeros, and writing them takes a TPU as long as a third of attention's forward
    pass. On a TPU this tensor becomes memory that nothing is written into (`runtime.embedding.for_tpu`); anywhere else
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

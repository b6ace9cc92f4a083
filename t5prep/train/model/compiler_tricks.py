"""Say to the TPU compiler what no operation of TensorFlow says: what comes first, and what needs no first value.

docs/speed.md has what each of them gains.
"""

from collections.abc import Sequence

import tensorflow as tf

# No weight or activation is this number; `runtime.embedding.for_tpu` looks for it.
FILLER = -(2.0**-100)


def after(x: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """Return the row unchanged, but computed after x: no compiler knows that nothing is larger than infinity.

    A loop that writes over its own input needs this order: if the input might be read later, XLA copies all of it.
    XLA's optimization barriers are gone when it decides on copies.
    """
    first = x[(0,) * x.shape.rank]
    return row + tf.cast(tf.cast(first, tf.float32) > float("inf"), tf.int32)


def unfilled(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
    """Return a tensor all of whose values must be overwritten before they are read.

    An array that a loop fills begins with zeros, and writing them takes a TPU as long as a third of attention's forward
    pass. On a TPU this tensor becomes memory that nothing is written into (`runtime.embedding.for_tpu`); anywhere else
    it is filled with FILLER.
    """
    return tf.fill(shape, tf.constant(FILLER, dtype))

"""Say to the TPU compiler what no operation of TensorFlow says: that memory needs no first value.

docs/speed.md has what it gains.
"""

from collections.abc import Sequence

import tensorflow as tf

# No weight or activation is this number; `runtime.embedding.for_tpu` looks for it.
FILLER = -(2.0**-100)


def unfilled(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
    """Return a tensor all of whose values must be overwritten before they are read.

    An array that a loop fills begins with zeros, and writing them takes a TPU as long as a third of attention's forward
    pass. On a TPU this tensor becomes memory that nothing is written into (`runtime.embedding.for_tpu`); anywhere else
    it is filled with FILLER.
    """
    return tf.fill(shape, tf.constant(FILLER, dtype))

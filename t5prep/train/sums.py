"""Sums of squares over large weights, written as a TPU adds them up fastest.

XLA takes one register at a time through a reduction, but adds whole slices as fast as it reads them: with eight slices of
the rows added first, its estimate of a pass over a gradient is halved (libtpu 0.0.51, v5e). What is summed is cut before
it is multiplied, or XLA would write the whole product down first.
"""

import tensorflow as tf

SLICES = 8
# Rows of a slice come in whole tiles: 8 of float32.
TILE = 8


def slices(x: tf.Tensor) -> list[tf.Tensor]:
    """x in slices of its matrices' rows, where these can be cut into whole tiles; else [x].

    A stack of tall matrices stays whole: to cut it, XLA would turn the weights around, and back.
    """
    if x.shape.rank < 2 or x.shape[-2] % (SLICES * TILE) or (x.shape.rank > 2 and x.shape[-2] > x.shape[-1]):
        return [x]
    return tf.split(x, SLICES, axis=-2)


def scaled_slices(gradient: tf.Tensor, scale: tf.Tensor | float) -> list[tf.Tensor]:
    """The slices of a gradient of any precision, in float32 and scaled."""
    return [tf.cast(part, tf.float32) * scale for part in slices(gradient)]


def sum_of_squares(parts: list[tf.Tensor], *, stacked_axes: int = 0) -> tf.Tensor:
    """Over all `slices` of a stack: one sum for each weight in it, the weight's axes kept as 1.

    >>> sum_of_squares(slices(tf.constant([[3.0, 4.0], [1.0, 0.0]])), stacked_axes=1).numpy().tolist()
    [[25.0], [1.0]]
    """
    total = tf.add_n([tf.square(part) for part in parts])
    return tf.reduce_sum(total, axis=list(range(stacked_axes, total.shape.rank)), keepdims=True)


def mean_squares(parts: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """The mean square of each row of the matrices in all slices together, and of each column."""
    squares = [tf.square(part) for part in parts]
    rows = tf.concat([tf.reduce_sum(part, axis=-1) for part in squares], axis=-1)
    columns = tf.reduce_sum(tf.add_n(squares), axis=-2)
    return rows / columns.shape[-1], columns / rows.shape[-1]

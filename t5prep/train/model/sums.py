"""Sums over large weights and gradients, written as a TPU adds them up fastest (libtpu 0.0.51's estimates, v5e).

XLA takes one register at a time through a reduction. A matrix product with ones does the same sums in the time that
reading takes, a third of it, and multiplies in bfloat16 on the way: each square is rounded to 8 bits, their sum is not,
which is less than what a gradient in bfloat16 was rounded by before.
"""

import tensorflow as tf

ONES = 8  # columns: one would be turned into a sum again
SLICES = 8
# Rows of a slice come in whole tiles: 8 of float32.
TILE = 8


def row_and_column_sums(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Over each row of the matrices in a stack, and over each column.

    >>> [sums.numpy().tolist() for sums in row_and_column_sums(tf.constant([[3.0, 4.0], [1.0, 0.0]]))]
    [[7.0, 1.0], [4.0, 4.0]]
    """
    rows, columns = x.shape[-2:]
    of_rows = tf.einsum("...ij,jk->...ik", x, tf.ones([columns, ONES], x.dtype))[..., 0]
    of_columns = tf.einsum("...ij,ik->...kj", x, tf.ones([rows, ONES], x.dtype))[..., 0, :]
    return of_rows, of_columns


def weighted_sum(x: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Of each matrix x in a stack, the sum of x[i, j] rows[i] columns[j].

    >>> float(weighted_sum(tf.constant([[3.0, 4.0], [1.0, 0.0]]), tf.constant([1.0, 10.0]), tf.constant([1.0, 2.0])))
    21.0
    """
    columns = tf.repeat(columns[..., None, :], ONES, axis=-2)
    return tf.reduce_sum(tf.einsum("...ij,...kj->...ik", x, columns)[..., 0] * rows, axis=-1)


def sum_of_squares(x: tf.Tensor, *, stacked_axes: int = 0) -> tf.Tensor:
    """One sum for each weight in a stack.

    A single matrix is added up in slices of its rows, which XLA does as fast as it reads them. A stack stays whole: XLA
    would turn tall matrices around to cut them; and it is read as a whole to be cast for its layers, in the same pass.
    """
    if not stacked_axes and x.shape.rank == 2 and x.shape[0] % (SLICES * TILE) == 0:
        x = tf.add_n([tf.square(part) for part in tf.split(x, SLICES)])
    else:
        x = tf.square(x)
    return tf.reduce_sum(x, axis=list(range(stacked_axes, x.shape.rank)))

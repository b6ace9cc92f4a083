"""Compute attention over long texts for a few rows of the batch at a time, so that only their scores exist at once.

The backward pass computes the scores again (Dao et al. 2022, section 3.1), so nothing of their size is kept for it. And
the float32 scores of a few rows fit into the fast memory of a TPU's cores; those of all rows must be packed and moved
to HBM and back.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from t5prep.train.model.layer_loop import array_of
from t5prep.train.model.sums import ONES
from t5prep.train.model.tpu_only import unfilled

MASKED = -1e9  # far below any score, and finite: a row with nothing to attend to has no NaN
# The forward pass takes as many rows at once as have this many scores: half of a TPU v5e's fast memory (128 MiB).
MOST = 1 << 24
# The backward pass takes this many rows a turn, one after the other, which share the small reads of a turn.
TURN = 2


def attend_by_rows(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor, mask: tf.Tensor, dropped: tf.Tensor | None
) -> list[tf.Tensor]:
    """Compute the same as `attention.attend_together`, a few rows at a time, with [batch, length, heads, d_kv]."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        if dropped is not None:
            value *= dropped
        attended, highest, sums = _forward(query, key, value, biases, mask)

        def gradient(upstream: tf.Tensor, *of_biases: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # As in `attend_together`, divide the upstream gradient and not the exponentials of the scores.
            wide = tf.cast(upstream, tf.float32) * _inverse(sums)
            common = tf.transpose(tf.reduce_sum(wide * tf.cast(attended, tf.float32), axis=-1), [0, 2, 1])
            drops = None if dropped is None else dropped[..., 0]
            loop = _Backward(biases, mask, tf.cast(wide, query.dtype), highest, common, drops)
            sums_of_biases, (of_query, of_key, of_value) = loop.run(query, key, value, of_biases)
            return of_query, of_key, of_value, *sums_of_biases

        return [attended, *(tf.identity(bias) for bias in biases)], gradient

    return list(run(query, key, value, *biases))


def _forward(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, biases: Sequence[tf.Tensor], mask: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return what `_attend` returns for all rows, computed for `MOST` scores at a time."""
    rows, scores_of_row = query.shape[0], query.shape[1] * key.shape[1] * query.shape[2]
    together = max(n for n in range(1, rows + 1) if rows % n == 0 and (n == 1 or n * scores_of_row <= MOST))
    if together == rows:
        return _attend(query, key, value, biases, mask)
    queries, keys, values = (_blocks(x, together) for x in (query, key, value))
    masks = _blocks(mask, together) if mask.shape[0] > 1 else mask[None]

    def turn(n: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        own = _attend(queries[n], keys[n], values[n], biases, masks[n] if mask.shape[0] > 1 else mask)
        return n + 1, *(array.write(n, x) for array, x in zip(arrays, own, strict=True))

    shape = [together, query.shape[2], query.shape[1]]
    small = [array_of(unfilled([rows // together, *shape], tf.float32)) for _ in range(2)]
    begin = (0, array_of(unfilled(queries.shape, queries.dtype)), *small)
    _, *arrays = tf.while_loop(lambda n, *_: n < rows // together, turn, begin, maximum_iterations=rows // together)
    attended, highest, sums = (array.stack() for array in arrays)
    return tf.reshape(attended, query.shape), *(tf.reshape(x, [rows, *shape[1:]]) for x in (highest, sums))


def _attend(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, biases: Sequence[tf.Tensor], mask: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the attended values, and of each query's scores the highest and the sum of the exponentials."""
    own = _scores(query, key, biases, mask)
    highest = tf.reduce_max(own, axis=-1)
    raised = tf.exp(own - highest[..., None])
    sums = product("...hqk,kn->...hqn", raised, tf.ones([key.shape[-3], ONES], tf.float32))[..., 0]
    attended = product("...hqk,...khd->...qhd", raised, value) * _inverse(sums)
    return tf.cast(attended, query.dtype), highest, sums


def _scores(query: tf.Tensor, key: tf.Tensor, biases: Sequence[tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
    """Return the scores, float32[..., heads, queries, keys]."""
    products = product("...qhd,...khd->...hqk", query, key)
    return tf.where(mask, products + biases[0] if biases else products, MASKED)


def _blocks(x: tf.Tensor, size: int) -> tf.Tensor:
    """Return x with its rows in blocks: [blocks, size, ...]."""
    return tf.reshape(x, [x.shape[0] // size, size, *x.shape[1:]])


def _inverse(sums: tf.Tensor) -> tf.Tensor:
    """Return 1 / sums, from [..., heads, queries] to [..., queries, heads, 1]."""
    return 1.0 / tf.linalg.matrix_transpose(sums)[..., None]


@dataclasses.dataclass(frozen=True)
class _Backward:
    """Compute the gradients of attention, `TURN` rows a turn.

    upstream: the gradient of the attended values, divided by the sums; highest, common: float32[rows, heads, queries],
    the highest score of each query, and what the softmax's gradient subtracts; dropped: [rows, keys, heads], or None.
    """

    biases: Sequence[tf.Tensor]
    mask: tf.Tensor
    upstream: tf.Tensor
    highest: tf.Tensor
    common: tf.Tensor
    dropped: tf.Tensor | None

    def run(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, of_biases: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return the gradients of the bias, added to `of_biases`, and of query, key and value. Values are dropped out."""
        rows = query.shape[0]
        size = TURN if rows % TURN == 0 and TURN * query.shape[1] * key.shape[1] * query.shape[2] <= MOST // 2 else 1
        alike = self.mask.shape[0] == 1  # one mask for all rows
        inputs = [self.highest, self.common, *([] if alike else [self.mask])]
        inputs = [_blocks(x, size) for x in (*inputs, *([] if self.dropped is None else [self.dropped]))]

        def turn(n: tf.Tensor, of_bias: list[tf.Tensor], arrays: list[tf.TensorArray]) -> tuple[Any, ...]:
            own = [x[n] for x in inputs]
            for i in range(size):
                highest, common, *more = (x[i] for x in own)
                mask = self.mask[0] if alike else more[0]
                row = n * size + i
                q, k, v, upstream = (x[row] for x in (query, key, value, self.upstream))
                of_scores, *own_gradients = self._row(q, k, v, upstream, highest, common, mask, *more[1 - alike :])
                arrays = [array.write(row, x) for array, x in zip(arrays, own_gradients, strict=True)]
                of_bias = [total + of_scores for total in of_bias]
            return n + 1, of_bias, arrays

        begin = (0, list(of_biases), [array_of(unfilled(x.shape, x.dtype)) for x in (query, key, value)])
        _, of_bias, arrays = tf.while_loop(lambda n, *_: n < rows // size, turn, begin, maximum_iterations=rows // size)
        return of_bias, [array.stack() for array in arrays]

    def _row(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        upstream: tf.Tensor,
        highest: tf.Tensor,
        common: tf.Tensor,
        mask: tf.Tensor,
        dropped: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, ...]:
        """Return the gradients of one row's scores, query, key and value; the arguments are of that row."""
        raised = tf.exp(_scores(query, key, self.biases, mask) - highest[..., None])
        of_scores = raised * (product("qhd,khd->hqk", upstream, value) - common[..., None])
        of_key = tf.cast(product("hqk,qhd->khd", of_scores, query), query.dtype)
        of_query = tf.cast(product("hqk,khd->qhd", of_scores, key), query.dtype)
        of_value = tf.cast(product("hqk,qhd->khd", raised, upstream), query.dtype)
        if dropped is not None:
            of_value *= dropped[..., None]
        return of_scores, of_query, of_key, of_value


def product(equation: str, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Return the einsum of two operands cast to float32.

    A TPU multiplies bfloat16 values and adds in float32 in any case, but for bfloat16 operands TensorFlow makes it
    round the result, and then store it.
    """
    return tf.einsum(equation, tf.cast(left, tf.float32), tf.cast(right, tf.float32))

"""Compute attention over long texts for a few rows of the batch at a time, so that only their scores exist at once.

The backward pass computes the scores again (Dao et al. 2022, section 3.1), so nothing of their size is kept for it. And
the float32 scores of a few rows fit into the fast memory of a TPU's cores; those of all rows must be packed and moved
to HBM and back.
"""

from typing import Any

import tensorflow as tf

from t5prep.train.model.layer_loop import array_of
from t5prep.train.model.sums import ONES

MASKED = -1e9  # far below any score, and finite: a row with nothing to attend to has no NaN
# The loop is faster from this many scores of one row on.
MANY = 1 << 21
# The forward pass takes as many rows at once as have this many scores: half of a TPU v5e's fast memory (128 MiB).
MOST = 1 << 24


def attend_by_rows(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor, mask: tf.Tensor, dropped: tf.Tensor | None
) -> list[tf.Tensor]:
    """Compute the same as `attention.attend_together`, a few rows at a time."""
    rows, dtype = query.shape[0], query.dtype

    def scores(query: tf.Tensor, key: tf.Tensor, allowed: tf.Tensor, biases: tuple[tf.Tensor, ...]) -> tf.Tensor:
        products = product("...qhd,...khd->...hqk", query, key)
        return tf.where(allowed, products + biases[0] if biases else products, MASKED)

    def allowed(row: tf.Tensor) -> tf.Tensor:
        return mask[row] if mask.shape[0] > 1 else mask[0]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        if dropped is not None:
            value *= dropped
        ones = tf.ones([key.shape[1], ONES], tf.float32)

        def forward(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, allowed: tf.Tensor) -> tuple[tf.Tensor, ...]:
            own = scores(query, key, allowed, biases)
            highest = tf.reduce_max(own, axis=-1)
            raised = tf.exp(own - highest[..., None])
            sums = product("...hqk,kn->...hqn", raised, ones)[..., 0]
            scale = 1.0 / tf.linalg.matrix_transpose(sums)[..., None]
            return tf.cast(product("...hqk,...khd->...qhd", raised, value) * scale, dtype), highest, scale

        scores_of_row = query.shape[1] * key.shape[1] * query.shape[2]
        together = max(n for n in range(1, rows + 1) if rows % n == 0 and (n == 1 or n * scores_of_row <= MOST))
        if together == rows:
            attended, highest, scale = forward(query, key, value, mask)
        else:
            queries, keys, values = (tf.reshape(x, [-1, together, *x.shape[1:]]) for x in (query, key, value))
            masks = tf.reshape(mask, [-1, min(together, mask.shape[0]), *mask.shape[1:]])
            blocks = tf.map_fn(
                lambda n: forward(queries[n], keys[n], values[n], masks[n] if mask.shape[0] > 1 else mask),
                tf.range(rows // together),
                fn_output_signature=(dtype, tf.float32, tf.float32),
            )
            attended, highest, scale = (tf.reshape(x, [rows, *x.shape[2:]]) for x in blocks)

        def gradient(upstream: tf.Tensor, *of_biases: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # As in `attend_together`, divide the upstream gradient and not the exponentials of the scores.
            wide = tf.cast(upstream, tf.float32) * scale
            common = tf.transpose(tf.reduce_sum(wide * tf.cast(attended, tf.float32), axis=-1), [0, 2, 1])
            scaled = tf.cast(wide, dtype)

            def backward(row: tf.Tensor, of_bias: list[tf.Tensor], arrays: list[tf.TensorArray]) -> tuple[Any, ...]:
                q, k, v = (array.read(row) for array in arrays)
                raised = tf.exp(scores(q, k, allowed(row), biases) - highest[row][..., None])
                of_scores = raised * (product("qhd,khd->hqk", scaled[row], v) - common[row][..., None])
                of_key = tf.cast(product("hqk,qhd->khd", of_scores, q), dtype)
                of_query = tf.cast(product("hqk,khd->qhd", of_scores, k), dtype)
                of_value = tf.cast(product("hqk,qhd->khd", raised, scaled[row]), dtype)
                if dropped is not None:
                    of_value *= dropped[row]
                # Each gradient overwrites an input that was read for the last time before the gradient is known. If
                # that input might be read later, TensorFlow would copy everything. Values are last read for the
                # gradient of the scores, queries for that of the keys, keys for that of the queries.
                queries, keys, values = arrays
                values = values.write(row, of_key)
                queries = queries.write(_after(of_key, row), of_query)
                keys = keys.write(_after(of_query, row), of_value)
                return row + 1, [total + of_scores for total in of_bias], [queries, keys, values]

            begin = (0, list(of_biases), [array_of(x) for x in (query, key, value)])
            _, of_bias, arrays = tf.while_loop(lambda row, *_: row < rows, backward, begin, maximum_iterations=rows)
            of_query, of_value, of_key = (array.stack() for array in arrays)
            return of_query, of_key, of_value, *of_bias

        return [attended, *(tf.identity(bias) for bias in biases)], gradient

    return list(run(query, key, value, *biases))


def _after(x: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """Return the row unchanged, but computed after x: no compiler knows that nothing is larger than infinity."""
    return row + tf.cast(tf.cast(x[0, 0, 0], tf.float32) > float("inf"), tf.int32)


def product(equation: str, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Return the einsum of two operands cast to float32.

    A TPU multiplies bfloat16 values and adds in float32 in any case, but for bfloat16 operands TensorFlow makes it
    round the result, and then store it.
    """
    return tf.einsum(equation, tf.cast(left, tf.float32), tf.cast(right, tf.float32))

"""Attention over long texts, a few rows of the batch at a time: no more of the scores exists than theirs.

The backward pass makes the scores again (Dao et al. 2022, section 3.1), so nothing of their size is kept for it; and a
few rows' fit the memory beside a TPU's cores in float32, where all rows' have to be packed, and sent out and in.
"""

from typing import Any

import tensorflow as tf

from t5prep.train.model.layer_loop import array_of
from t5prep.train.model.sums import ONES

MASKED = -1e9  # far below any score, and finite: a row with nothing to attend to stays a number
# From this many scores of one row on the loop is worth its turns.
MANY = 1 << 21
# Forward, as many rows at once as have this many: half of a TPU v5e's fast memory (128 MiB).
MOST = 1 << 24


def attend_by_rows(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor, mask: tf.Tensor, dropped: tf.Tensor | None
) -> list[tf.Tensor]:
    """As `attention.attend_together`."""
    rows, dtype = query.shape[0], query.dtype

    def scores(query: tf.Tensor, key: tf.Tensor, allowed: tf.Tensor, biases: tuple[tf.Tensor, ...]) -> tf.Tensor:
        found = product("...qhd,...khd->...hqk", query, key)
        return tf.where(allowed, found + biases[0] if biases else found, MASKED)

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
            found, highest, scale = forward(query, key, value, mask)
        else:
            queries, keys, values = (tf.reshape(x, [-1, together, *x.shape[1:]]) for x in (query, key, value))
            masks = tf.reshape(mask, [-1, min(together, mask.shape[0]), *mask.shape[1:]])
            blocks = tf.map_fn(
                lambda n: forward(queries[n], keys[n], values[n], masks[n] if mask.shape[0] > 1 else mask),
                tf.range(rows // together),
                fn_output_signature=(dtype, tf.float32, tf.float32),
            )
            found, highest, scale = (tf.reshape(x, [rows, *x.shape[2:]]) for x in blocks)

        def gradient(upstream: tf.Tensor, *of_biases: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # As in `attend_together`, what is divided is what came from above and not the raised scores.
            wide = tf.cast(upstream, tf.float32) * scale
            common = tf.transpose(tf.reduce_sum(wide * tf.cast(found, tf.float32), axis=-1), [0, 2, 1])
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
                # Each gradient takes the place of what is read for the last time before it is known, and of nothing
                # that might be read later, or all would be copied: values are read for the scores' gradient, queries
                # for that of the keys, keys for that of the queries.
                queries, keys, values = arrays
                values = values.write(row, of_key)
                queries = queries.write(_after(of_key, row), of_query)
                keys = keys.write(_after(of_query, row), of_value)
                return row + 1, [total + of_scores for total in of_bias], [queries, keys, values]

            begin = (0, list(of_biases), [array_of(x) for x in (query, key, value)])
            _, of_bias, arrays = tf.while_loop(lambda row, *_: row < rows, backward, begin, maximum_iterations=rows)
            of_query, of_value, of_key = (array.stack() for array in arrays)
            return of_query, of_key, of_value, *of_bias

        return [found, *(tf.identity(bias) for bias in biases)], gradient

    return list(run(query, key, value, *biases))


def _after(x: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """The row, of which no compiler knows that it does not depend on x: nothing is larger than infinity."""
    return row + tf.cast(tf.cast(x[0, 0, 0], tf.float32) > float("inf"), tf.int32)


def product(equation: str, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """In float32 whatever the operands are: a TPU multiplies their bfloat16 values and adds in float32 either way, but of
    bfloat16 operands TensorFlow makes it round the result, and then store it."""
    return tf.einsum(equation, tf.cast(left, tf.float32), tf.cast(right, tf.float32))

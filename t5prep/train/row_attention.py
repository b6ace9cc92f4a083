"""Attention over long texts, one row of the batch after the other: no more of the scores exists than one row's.

The backward pass makes the scores again (Dao et al. 2022, section 3.1), so nothing of their size is kept for it; and one
row's fit the memory beside a TPU's cores in float32, where all rows' have to be packed, and sent out and in.
"""

from typing import Any

import tensorflow as tf

from t5prep.train.layer_loop import array_of

MASKED = -1e9  # far below any score, and finite: a row with nothing to attend to stays a number
# From this many scores of one row on the loop is worth its turns.
MANY = 1 << 21
ONES = 8  # columns: one would be turned into a sum again


def attend_by_rows(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, bias: tf.Tensor | None, mask: tf.Tensor
) -> tf.Tensor:
    """As `attention.attend`: [batch, queries, heads, d_kv]."""
    rows, dtype = query.shape[0], query.dtype

    def scores(row: tf.Tensor, query: tf.Tensor, key: tf.Tensor, biases: tuple[tf.Tensor, ...]) -> tf.Tensor:
        found = product("qhd,khd->hqk", query, key)
        allowed = mask[row] if mask.shape[0] > 1 else mask[0]
        return tf.where(allowed, found + biases[0] if biases else found, MASKED)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor) -> tuple[tf.Tensor, Any]:
        # A product with ones adds up faster than a sum does.
        ones = tf.ones([key.shape[1], ONES], tf.float32)

        def forward(row: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            own = scores(row, query[row], key[row], biases)
            highest = tf.reduce_max(own, axis=-1)
            raised = tf.exp(own - highest[..., None])
            scale = tf.transpose(1.0 / product("hqk,kn->hqn", raised, ones)[..., :1], [1, 0, 2])
            found = product("hqk,khd->qhd", raised, value[row]) * scale
            return tf.cast(found, dtype), highest, scale

        found, highest, scale = tf.map_fn(forward, tf.range(rows), fn_output_signature=(dtype, tf.float32, tf.float32))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # As in `attend`, what is divided is what came from above and not the raised scores.
            wide = tf.cast(upstream, tf.float32) * scale
            common = tf.transpose(tf.reduce_sum(wide * tf.cast(found, tf.float32), axis=-1), [0, 2, 1])
            scaled = tf.cast(wide, dtype)

            def backward(row: tf.Tensor, of_bias: list[tf.Tensor], arrays: list[tf.TensorArray]) -> tuple[Any, ...]:
                q, k, v = (array.read(row) for array in arrays)
                raised = tf.exp(scores(row, q, k, biases) - highest[row][..., None])
                of_scores = raised * (product("qhd,khd->hqk", scaled[row], v) - common[row][..., None])
                of_query = product("hqk,khd->qhd", of_scores, k)
                of_key = product("hqk,qhd->khd", of_scores, q)
                of_value = product("hqk,qhd->khd", raised, scaled[row])
                parts = (of_key, of_query, of_value) if swapped else (of_query, of_key, of_value)
                arrays = [array.write(row, tf.cast(part, dtype)) for array, part in zip(arrays, parts, strict=True)]
                return row + 1, [total + of_scores for total in of_bias], arrays

            # Gradients take the place of what was read. A key's gradient takes its query's, which is read for it and for
            # scores that are needed before it; of the other way round a compiler cannot tell, and copies everything.
            swapped = query.shape == key.shape
            arrays = [array_of(x) for x in (query, key, value)]
            begin = (0, [tf.zeros_like(one) for one in biases], arrays)
            _, of_bias, arrays = tf.while_loop(lambda row, *_: row < rows, backward, begin, maximum_iterations=rows)
            first, second, third = (array.stack() for array in arrays)
            return *((second, first) if swapped else (first, second)), third, *of_bias

        return found, gradient

    return run(query, key, value, *([] if bias is None else [bias]))


def product(equation: str, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """In float32 whatever the operands are: a TPU multiplies their bfloat16 values and adds in float32 either way, but of
    bfloat16 operands TensorFlow makes it round the result, and then store it."""
    return tf.einsum(equation, tf.cast(left, tf.float32), tf.cast(right, tf.float32))

"""Compute the large parts of a decoding step: with TensorFlow's operations, or on a CPU with our own custom calls."""

from typing import Any

import tensorflow as tf

from t5prep.train.model import custom_calls
from t5prep.train.model.row_attention import MASKED, product


class StepOperations:
    """Compute them with TensorFlow's operations, on any device."""

    def prepared(self, matrix: tf.Tensor) -> Any:
        """Return a matrix, [inner, columns], as `times` takes it. Call this before the loop over the steps."""
        return matrix

    def times(self, x: tf.Tensor, matrix: Any) -> tf.Tensor:
        """Return x, [rows, 1, inner], times a prepared matrix: [rows, 1, columns]."""
        return tf.matmul(x, matrix)

    def scores(self, table: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Return a table, [entries, inner], times the rows of x, [rows, inner]: [entries, rows]."""
        return tf.matmul(table, x, transpose_b=True)

    def write(self, whole: tf.Tensor, one: tf.Tensor, position: tf.Tensor | int) -> tf.Tensor:
        """Return keys or values, [rows, heads, length, d_kv], with those of one position written, [rows, 1, heads, d_kv]."""
        here = (tf.range(whole.shape[2]) == position)[None, None, :, None]
        return tf.where(here, tf.transpose(one, [0, 2, 1, 3]), whole)

    def attend_to_targets(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, bias: tf.Tensor, position: tf.Tensor | int
    ) -> tf.Tensor:
        """Return attention to the positions up to `position`, [rows, 1, heads * d_kv].

        query: [rows, 1, heads, d_kv]; key, value: [rows, heads, length, d_kv]; bias: float32[heads, 1, length].
        """
        seen = (tf.range(key.shape[2]) <= position)[None, None, None, :]
        return _attend(query, key, value, bias=bias, mask=seen)

    def attend_to_inputs(self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, mask: tf.Tensor) -> tf.Tensor:
        """Return attention to the keys that the mask allows, bool[rows, 1, 1, length]; see `attend_to_targets`."""
        return _attend(query, key, value, bias=None, mask=mask)


class OwnOperations(StepOperations):
    """Compute the same in float32 by custom calls of XLA."""

    def prepared(self, matrix: tf.Tensor) -> Any:
        """Return a matrix in panels."""
        return custom_calls.panels_of(matrix)

    def times(self, x: tf.Tensor, matrix: Any) -> tf.Tensor:
        """Return x times a matrix in panels."""
        return custom_calls.times_panels(x[:, 0], matrix)[:, None]

    def scores(self, table: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Return the table times the rows of x."""
        return custom_calls.table_times_rows(table, x)

    def write(self, whole: tf.Tensor, one: tf.Tensor, position: tf.Tensor | int) -> tf.Tensor:
        """Return the same memory with one position written; `tf.where` would copy all of it."""
        return custom_calls.written(whole, tf.transpose(one, [0, 2, 1, 3]), tf.convert_to_tensor(position))

    def attend_to_targets(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, bias: tf.Tensor, position: tf.Tensor | int
    ) -> tf.Tensor:
        """Return attention to the positions up to `position`; later ones are not read."""
        if key.shape[3] % custom_calls.SIZES:
            return super().attend_to_targets(query, key, value, bias=bias, position=position)
        return _own_attention(query, key, value, biases=bias[None, :, 0], count=tf.convert_to_tensor(position) + 1)

    def attend_to_inputs(self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, mask: tf.Tensor) -> tf.Tensor:
        """Return attention to the keys that the mask allows."""
        if key.shape[3] % custom_calls.SIZES:
            return super().attend_to_inputs(query, key, value, mask=mask)
        biases = tf.where(mask[:, 0], 0.0, MASKED)
        return _own_attention(query, key, value, biases=biases, count=tf.constant(key.shape[2]))


def _attend(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, bias: tf.Tensor | None, mask: tf.Tensor
) -> tf.Tensor:
    """Compute the same as `attention.attend` for one query of each row and keys with the heads first."""
    scores = product("bqhd,bhkd->bhqk", query, key)
    scores = tf.where(mask, scores if bias is None else scores + bias, MASKED)
    raised = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
    shares = tf.cast(raised / tf.reduce_sum(raised, axis=-1, keepdims=True), query.dtype)
    attended = tf.cast(product("bhqk,bhkd->bqhd", shares, value), query.dtype)
    return tf.reshape(attended, [query.shape[0], 1, query.shape[2] * query.shape[3]])


def _own_attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, biases: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    flat = tf.reshape(query, [query.shape[0], query.shape[2] * query.shape[3]])
    return custom_calls.attend(flat, key, value, biases, count)[:, None]

"""Compute the parts of a decoding step with the custom calls in native/step.c, which a program for one CPU can contain.

XLA's own product copies a matrix in another order each time it is used; for few rows that takes longer than the product.
These calls read each matrix and each cache once and in order. docs/speed.md has what they gain.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

try:
    from t5prep.train import _native
except ImportError:  # installed without a compiler
    _native = None  # type: ignore[assignment]

PANEL = 32  # columns, as in native/step.h
SIZES = 16  # `attend` takes heads whose size is a multiple of this


class Panels(NamedTuple):
    """Hold a matrix of so many columns, cut into panels: float32[panels, inner, PANEL], zeros behind the last column."""

    values: tf.Tensor
    columns: int


def usable() -> bool:
    """Return whether the extension is installed and this processor has the instructions for it."""
    return _native is not None and bool(_native.custom_calls())


def panels_of(matrix: tf.Tensor) -> Panels:
    """Return a matrix, float32[inner, columns], in panels."""
    inner, columns = matrix.shape
    whole = tf.pad(matrix, [[0, 0], [0, -columns % PANEL]])
    return Panels(tf.transpose(tf.reshape(whole, [inner, whole.shape[1] // PANEL, PANEL]), [1, 0, 2]), columns)


def times_panels(x: tf.Tensor, matrix: Panels) -> tf.Tensor:
    """Return x, float32[rows, inner], times a matrix in panels: float32[rows, columns]."""
    rows, inner = x.shape
    assert matrix.values.shape[1:] == (inner, PANEL), (x.shape, matrix.values.shape)  # a custom call checks nothing
    return _call("t5prep_rows_by_panels", x, matrix.values, shape=[rows, matrix.columns])


def table_times_rows(table: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Return a table, float32[entries, inner], times the rows of x, float32[rows, inner]: float32[entries, rows]."""
    assert table.shape[1] == x.shape[1], (table.shape, x.shape)
    return _call("t5prep_table_by_rows", table, x, shape=[table.shape[0], x.shape[0]])


def attend(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, biases: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return softmax(query keys + biases) values over the first `count` keys: float32[rows, heads * size].

    query: float32[rows, heads * size]; keys, values: float32[rows, heads, length, size]; biases: float32[rows or 1, heads
    or 1, length]; count: int32.
    """
    rows, heads, length, size = keys.shape
    wide = tf.broadcast_static_shape(biases.shape, tf.TensorShape([rows, heads, length]))
    fits = [query.shape == (rows, heads * size), values.shape == keys.shape, wide == keys.shape[:3], size % SIZES == 0]
    assert all(fits), (query.shape, keys.shape, values.shape, biases.shape)
    return _call("t5prep_attend", query, keys, values, biases, count, shape=query.shape)


def written(whole: tf.Tensor, one: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Return a cache, [rows, heads, length, size], with one position written, [rows, heads, 1, size], where it is."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops  # XLA's operations have no public names

    zero = tf.zeros_like(position)
    result = gen_xla_ops.xla_dynamic_update_slice(whole, one, tf.stack([zero, zero, position, zero]))
    return tf.ensure_shape(result, whole.shape)


def _call(name: str, *operands: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Return the result of a custom call, float32; `runtime.typed_calls` tells XLA its function."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    (result,) = gen_xla_ops.xla_custom_call_v2(
        operands=operands,
        call_target_name=name,
        backend_config="",
        has_side_effect=False,
        result_dtypes=[tf.float32],
        result_shapes=[shape],
    )
    return tf.ensure_shape(result, shape)

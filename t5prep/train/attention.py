"""Attention as T5 has it: unscaled products, one relative position bias for all layers of a stack, softmax in float32.

Written for what XLA makes of it on a TPU: the bias is a one-hot matmul (a gather's gradient is a scatter), what is as
large as the scores is touched as seldom as can be, and dropout of probabilities is moved onto the values.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.train.row_attention import MANY, MASKED, attend_by_rows, product


def relative_buckets(distances: np.ndarray, *, bidirectional: bool, buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance `key - query`: exact for short distances, logarithmic up to `max_distance`.

    In float32 as Mesh TensorFlow computes it (transformer_layers.py), so that borders fall where training had them.

    >>> relative_buckets(np.array([-300, -2, 0, 1, 300]), bidirectional=True, buckets=32, max_distance=128).tolist()
    [15, 2, 0, 17, 31]
    """
    offset = np.zeros_like(distances)
    if bidirectional:
        buckets //= 2
        offset = np.where(distances > 0, buckets, 0)
        distances = np.abs(distances)
    else:
        distances = np.maximum(-distances, 0)
    exact = buckets // 2
    ratio = np.maximum(distances, 1).astype(np.float32) / np.float32(exact)
    steps = np.log(ratio) / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    far = np.minimum(exact + steps.astype(np.int64), buckets - 1)
    return offset + np.where(distances < exact, distances, far)


def relative_bias(
    table: tf.Tensor,
    *,
    queries: int,
    keys: int,
    first_query: tf.Tensor | int = 0,
    bidirectional: bool,
    max_distance: int,
) -> tf.Tensor:
    """What T5 adds to every score for its distance: float32[heads, queries, keys].

    table: float32[buckets, heads]; queries stand at positions first_query, first_query + 1 and so on, keys at 0, 1 and so
    on. Packed rows need no positions of their own: a segment lies in one piece, so inside it distances are those of the
    row, and outside it all is masked.
    """
    buckets, heads = table.shape
    # Each bucket holds one interval of distances, so membership is two comparisons.
    reach = np.arange(-2 * max_distance, 2 * max_distance + 1)
    bucket = relative_buckets(reach, bidirectional=bidirectional, buckets=buckets, max_distance=max_distance)
    held = [reach[bucket == number] for number in range(buckets)]
    limit = np.iinfo(np.int32).max
    low = np.array([here[0] if len(here) else limit for here in held], np.int32)
    high = np.array([here[-1] if len(here) else -limit for here in held], np.int32)
    low[low == reach[0]], high[high == reach[-1]] = -limit, limit
    # A zero that no compiler knows: without it TensorFlow folds the one-hot matrix into the program, megabytes of it.
    zero = tf.cast(tf.math.is_nan(table[0, 0]), tf.int32)
    distances = tf.range(keys)[None, :] - (tf.range(queries) + first_query + zero)[:, None]
    distances = tf.reshape(distances, [1, -1])
    one_hot = tf.cast((distances >= low[:, None]) & (distances <= high[:, None]), table.dtype)
    return tf.reshape(tf.matmul(table, one_hot, transpose_a=True), [heads, queries, keys])


def split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """[batch, length, heads * d_kv] as [batch, length, heads, d_kv]."""
    return tf.reshape(x, [x.shape[0], x.shape[1], heads, x.shape[2] // heads])


def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, bias: tf.Tensor | None, mask: tf.Tensor) -> tf.Tensor:
    """What each query finds: softmax(query key + bias) value over the keys the mask allows, [batch, queries, heads * d_kv].

    query: [batch, queries, heads, d_kv]; key, value: [batch, keys, heads, d_kv]; bias: float32[heads, queries, keys], or
    None; mask: bool, broadcastable to [batch, heads, queries, keys]. Float32 inside, the queries' dtype outside.

    Nothing as large as the scores is ever divided or summed up: a column of ones beside the values makes the sums in the
    same matrix product, the division is done on what is found, and so is the sum in the softmax's gradient (Dao et al.
    2022, appendix B.2). Only the raised scores live on to the backward pass; of long texts not even they do.
    """
    if query.shape[1] * key.shape[1] * key.shape[2] >= MANY:
        found = attend_by_rows(query, key, value, bias=bias, mask=mask)
        return tf.reshape(found, [query.shape[0], query.shape[1], query.shape[2] * query.shape[3]])

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor) -> tuple[tf.Tensor, Any]:
        dtype = query.dtype
        scores = product("bqhd,bkhd->bhqk", query, key)
        scores = tf.where(mask, scores + biases[0] if biases else scores, MASKED)
        raised = tf.cast(tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True)), dtype)
        with_ones = tf.concat([value, tf.ones_like(value[..., :1])], axis=-1)
        summed = product("bhqk,bkhd->bqhd", raised, with_ones)
        scale = 1.0 / summed[..., -1:]
        found = tf.cast(summed[..., :-1] * scale, dtype)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            scaled = tf.cast(upstream, tf.float32) * scale
            common = tf.transpose(tf.reduce_sum(scaled * tf.cast(found, tf.float32), axis=-1), [0, 2, 1])[..., None]
            scaled = tf.cast(scaled, dtype)
            of_raised = product("bqhd,bkhd->bhqk", scaled, value)
            of_scores = tf.cast(tf.cast(raised, tf.float32) * (of_raised - common), dtype)
            return (
                tf.einsum("bhqk,bkhd->bqhd", of_scores, key),
                tf.einsum("bhqk,bqhd->bkhd", of_scores, query),
                tf.einsum("bhqk,bqhd->bkhd", raised, scaled),
                # Row by row of the batch: a TPU takes three times as long for a sum over the first axis.
                *(tf.add_n([tf.cast(row, tf.float32) for row in tf.unstack(of_scores)]) for _ in biases),
            )

        return found, gradient

    found = run(query, key, value, *([] if bias is None else [bias]))
    return tf.reshape(found, [query.shape[0], query.shape[1], query.shape[2] * query.shape[3]])

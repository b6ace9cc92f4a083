"""Compute T5's attention: unscaled products, one relative position bias for all layers of a stack, softmax in float32.

The code is written for XLA on a TPU: the bias is a one-hot matmul (the gradient of a gather would be a slow scatter),
tensors as large as the scores are read and written as little as possible, and dropout acts on the values instead of the
probabilities.
"""

import functools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.train.model.heads import Heads
from t5prep.train.model.row_attention import MASKED, attend_by_rows, product
from t5prep.train.model.sums import ONES


def relative_buckets(distances: np.ndarray, *, bidirectional: bool, buckets: int, max_distance: int) -> np.ndarray:
    """Return the bucket of each distance `key - query`: exact for short distances, logarithmic up to `max_distance`.

    It is computed in float32, as in Mesh TensorFlow (transformer_layers.py), so that borders are the same as in the
    published models' training.

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
    """Return the bias that T5 adds to each score by its distance: float32[heads, queries, keys].

    table: float32[buckets, heads]; queries are at positions first_query, first_query + 1 and so on, keys at 0, 1 and so
    on. Packed rows need no positions of their own: a segment is contiguous, so distances inside it are those in the
    row, and everything outside it is masked.
    """
    buckets = table.shape[0]
    # Each bucket holds one interval of distances, so two comparisons decide whether a distance is in it.
    reach = np.arange(-2 * max_distance, 2 * max_distance + 1)
    bucket = relative_buckets(reach, bidirectional=bidirectional, buckets=buckets, max_distance=max_distance)
    held = [reach[bucket == number] for number in range(buckets)]
    limit = np.iinfo(np.int32).max
    low = np.array([here[0] if len(here) else limit for here in held], np.int32)
    high = np.array([here[-1] if len(here) else -limit for here in held], np.int32)
    low[low == reach[0]], high[high == reach[-1]] = -limit, limit
    # A zero that TensorFlow does not compute while it lowers: it would store the one-hot matrix, megabytes, in the program.
    zero = tf.cast(tf.raw_ops.ZerosLike(x=table[0, 0]), tf.int32)
    distances = tf.range(keys)[None, :] - (tf.range(queries) + first_query + zero)[:, None]
    one_hot = tf.cast((distances >= low[:, None, None]) & (distances <= high[:, None, None]), table.dtype)
    # With queries and keys as one axis, a TPU would move the result, and its gradient, to another layout.
    return tf.einsum("bh,bqk->hqk", table, one_hot)


def split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """Reshape [batch, length, heads * d_kv] to [batch, length, heads, d_kv]."""
    return tf.reshape(x, [x.shape[0], x.shape[1], heads, x.shape[2] // heads])


def attend(
    heads: Heads,
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    *,
    bias: tf.Tensor | None,
    mask: tf.Tensor,
    dropped: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return softmax(query key + bias) value over the keys that the mask allows, in the order of axes of `heads`.

    query, key, value: of `heads.queries` and `heads.keys`; bias: float32[heads, queries, keys], or None; mask: bool, broadcastable to
    [batch, heads, queries, keys]; dropped: the dropout mask by which values are multiplied, in the shape of
    `heads.shape_of_keys`, or None. Float32 inside; the result has the queries' dtype.

    Return the bias too, as the next layer's input: then the gradients of all layers' biases are added up in one place.

    No tensor as large as the scores is divided or reduced by a sum: a product with ones adds faster than a sum, and the
    division, like the sum in the softmax's gradient, is done on the result (Dao et al. 2022, appendix B.2). Only the
    exponentials of the scores are kept for the backward pass, and for long texts not even these.
    """
    biases = [] if bias is None else [bias]
    run = attend_by_rows if heads.by_rows else functools.partial(attend_together, heads)
    attended, *biases = run(query, key, value, *biases, mask=mask, dropped=dropped)
    return attended, biases[0] if biases else None


def attend_together(
    heads: Heads,
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    *biases: tf.Tensor,
    mask: tf.Tensor,
    dropped: tf.Tensor | None,
) -> list[tf.Tensor]:
    """Compute attention for all rows of the batch at once; return its result, in the queries' order, and any bias."""
    q, k = ("bhdq" if heads.queries_last else "bqhd"), ("bhdk" if heads.keys_last else "bkhd")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        dtype = query.dtype
        if dropped is not None:
            value *= dropped
        scores = product(f"{q},{k}->bhqk", query, key)
        scores = tf.where(mask, scores + biases[0] if biases else scores, MASKED)
        raised = tf.cast(tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True)), dtype)
        sums = product("bhqk,kn->bhqn", raised, tf.ones([scores.shape[-1], ONES], dtype))[..., 0]
        scale = heads.beside_queries(1.0 / sums)
        attended = tf.cast(product(f"bhqk,{k}->{q}", raised, value) * scale, dtype)

        def gradient(upstream: tf.Tensor, *of_biases: tf.Tensor) -> tuple[tf.Tensor, ...]:
            scaled = tf.cast(upstream, tf.float32) * scale
            common = heads.sum_of_queries(scaled * tf.cast(attended, tf.float32))[..., None]
            scaled = tf.cast(scaled, dtype)
            of_raised = product(f"{q},{k}->bhqk", scaled, value)
            of_scores = tf.cast(tf.cast(raised, tf.float32) * (of_raised - common), dtype)
            of_value = tf.einsum(f"bhqk,{q}->{k}", raised, scaled)
            return (
                tf.einsum(f"bhqk,{k}->{q}", of_scores, key),
                tf.einsum(f"bhqk,{q}->{k}", of_scores, query),
                of_value if dropped is None else of_value * dropped,
                # Add the rows of the batch one by one: a TPU takes three times as long for a sum over the first axis.
                *(
                    tf.add_n([total, *(tf.cast(row, tf.float32) for row in tf.unstack(of_scores))])
                    for total in of_biases
                ),
            )

        return [attended, *(tf.identity(bias) for bias in biases)], gradient

    return list(run(query, key, value, *biases))

"""Compute everything that depends on the positions of queries and keys: windows, rotations, and T5's biases."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

Angles = tuple[tf.Tensor, tf.Tensor]  # cosines and sines of `rotary_angles`


class AttentionSpan(NamedTuple):
    """Hold what each token of a kind of layer attends to: a mask, bool[batch or 1, 1, queries or 1, keys], and angles of rotation.

    The angles are None for a model without rotary positions.
    """

    mask: tf.Tensor
    query_angles: Angles | None = None
    key_angles: Angles | None = None


def either(is_first: bool | tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Return `first` or `second`, two structures of tensors with equal shapes.

    In a loop over layers `is_first` is a tensor; each tensor is then selected by tf.where.
    """
    if isinstance(is_first, bool):
        return first if is_first else second
    return tf.nest.map_structure(
        lambda first_tensor, second_tensor: tf.where(is_first, first_tensor, second_tensor), first, second
    )


def rotate(x: tf.Tensor, cosines: tf.Tensor, sines: tf.Tensor, *, axis: int) -> tf.Tensor:
    """Return x with its vectors along `axis` rotated: element i of the first half and of the second half are a point."""
    first, second = tf.split(tf.cast(x, tf.float32), 2, axis=axis)
    return tf.cast(tf.concat([first * cosines - second * sines, second * cosines + first * sines], axis), x.dtype)


def rotary_angles(length: int, width: int, *, theta: float, factor: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the cosines and sines of rotary positions, float32[length, width / 2] each (Su et al. 2021).

    width: of the vectors to rotate. theta: the base of the angles. factor: the divisor of positions (Chen et al. 2023, position
    interpolation). Angles are rounded as in `transformers`: up to position 8,191 cosines differ by up to 4e-4 from exact ones.

    >>> [round(float(one[1, 1]), 3) for one in rotary_angles(2, 4, theta=10_000.0)]
    [1.0, 0.01]
    """
    steps = np.float32(1.0) / np.float32(theta) ** (np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
    angles = np.arange(length, dtype=np.float32)[:, None] * (steps / np.float32(factor))
    return tf.constant(np.cos(angles)), tf.constant(np.sin(angles))


def near(tokens: tf.Tensor, lookback: int, lookahead: int) -> tf.Tensor:
    """Return a mask, bool[1, 1, length, length], of the keys at most `lookback` before and `lookahead` after each query.

    tokens: any int32[batch, length] of the batch; only its shape matters. All scores are computed and masked, because windows in
    blocks would need another attention (docs/decisions/009-mask-attention-windows.md).
    """
    # Adding a zero that depends on the input stops TensorFlow from computing the mask while it lowers the function. It would
    # then store the whole matrix as a constant in the program.
    places = tf.range(tokens.shape[1]) + tf.raw_ops.ZerosLike(x=tokens[0, 0])
    distances = places[None, :] - places[:, None]
    return ((distances >= -lookback) & (distances <= lookahead))[None, None]


def relative_buckets(distances: np.ndarray, *, bidirectional: bool, buckets: int, max_distance: int) -> np.ndarray:
    """Return the bucket of each distance `key - query`: exact for short distances, logarithmic up to `max_distance`.

    bidirectional: half of the `buckets` are for keys after the query; otherwise these keys share bucket 0. Float32 is used as in
    Mesh TensorFlow (transformer_layers.py), so that the borders of buckets are those of the published models' training.

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
    """Return T5's bias of each score by the distance of query and key: float32[heads, queries, keys].

    table: float32[buckets, heads]. Queries are at the positions first_query, first_query + 1, …, keys at 0, 1, …. Packed rows
    need no other positions: a segment is contiguous, so its distances are those in the row, and the mask hides all others.
    """
    buckets = table.shape[0]
    distances = np.arange(-2 * max_distance, 2 * max_distance + 1)
    bucket = relative_buckets(distances, bidirectional=bidirectional, buckets=buckets, max_distance=max_distance)
    one_hot = in_buckets(
        table[0, 0], distances, bucket, buckets=buckets, queries=queries, keys=keys, first_query=first_query
    )
    # If queries and keys were one axis, a TPU would copy the result and its gradient to another layout: +0.3 M cycles of a
    # T5-base step (docs/decisions/004-compute-attention-plainly.md).
    return tf.einsum("bh,bqk->hqk", table, one_hot)


def in_buckets(
    any_number: tf.Tensor,
    distances: np.ndarray,
    bucket: np.ndarray,
    *,
    buckets: int,
    queries: int,
    keys: int,
    first_query: tf.Tensor | int = 0,
) -> tf.Tensor:
    """Return 1 where the distance of a key from a query is in a bucket, else 0: [buckets, queries, keys].

    any_number: a scalar tensor that depends on the program's input; the result has its dtype. distances: consecutive distances
    `key - query`; bucket: the bucket of each. Larger distances are in the bucket of the first or last of `distances`. first_query:
    the position of the first query.
    """
    # Each bucket holds one interval of distances, so two comparisons decide whether a distance is in it.
    intervals = [distances[bucket == number] for number in range(buckets)]
    limit = np.iinfo(np.int32).max
    low = np.array([interval[0] if len(interval) else limit for interval in intervals], np.int32)
    high = np.array([interval[-1] if len(interval) else -limit for interval in intervals], np.int32)
    low[low == distances[0]], high[high == distances[-1]] = -limit, limit
    # Adding a zero that depends on the input stops TensorFlow from computing the result while it lowers the function, and from
    # storing it as a constant. With a plain 0 the gradients of T5-base at 512 + 64 tokens (one layer of each stack) are a module
    # of 10.1 MB instead of 0.7 MB.
    zero = tf.cast(tf.raw_ops.ZerosLike(x=any_number), tf.int32)
    distances = tf.range(keys)[None, :] - (tf.range(queries) + first_query + zero)[:, None]
    return tf.cast((distances >= low[:, None, None]) & (distances <= high[:, None, None]), any_number.dtype)

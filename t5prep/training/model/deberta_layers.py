"""Compute a DeBERTa-v3 with a head, from weights and tokens to logits, in plain TensorFlow.

DeBERTa is a BERT whose scores have two more terms (He et al. 2021, section 3.1): each query times the key of the distance to
each key, and each key times the query of that distance. Distances fall into buckets, so both terms are products with a small
table. For each query and key, one bucket of these products is then selected.

A TPU reads single numbers of an array one by one, which would take over a hundred times as long as a whole step of BERT.
Therefore a product with zeros and ones selects them. It covers only the rows of the table that the text's length needs
(docs/decisions/008-select-distances-by-a-product.md).
"""

import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from t5prep.training.model import encoder
from t5prep.training.model.deberta import DebertaConfig
from t5prep.training.model.layers import ComputeOptions, layer_norm, product
from t5prep.training.model.positions import in_buckets
from t5prep.training.model.t5 import LayerWeights, Weights, key_mask

DISTANCE_SITE = encoder.HEAD_SITE + 8  # the dropout site of the table of distances


head = encoder.head


def encode(
    weights: Weights, config: DebertaConfig, batch: Mapping[str, tf.Tensor], options: ComputeOptions
) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, length, d_model]. Arguments as in `encoder.encode`, but of any length."""
    texts = batch["attention_mask"]
    x = encoder.embed(weights, config, batch["input_ids"], texts, options)
    length = int(x.shape[1])
    distances = np.arange(-length, length + 1)
    rows = rows_of(distances, buckets=config.buckets, farthest=config.max_positions)
    first, last = int(rows[1:-1].min()), int(rows[1:-1].max())
    table = layer_norm(
        tf.convert_to_tensor(weights["distances"]),
        weights["distances.norm"],
        weights["distances.norm_bias"],
        epsilon=config.layer_norm_epsilon,
    )
    table = options.dropout(tf.cast(table[first : last + 1], options.dtype), site=DISTANCE_SITE)
    bias = functools.partial(bias_of, length=length, distances=distances, rows=rows - first, scale=config.score_scale)
    return encoder.run_encoder_layers(weights, config, x, table, mask=key_mask(texts), options=options, bias_of=bias)


def rows_of(distances: np.ndarray, *, buckets: int, farthest: int) -> np.ndarray:
    """Return the row of the table for each distance `key - query`, int64 of the shape of `distances`.

    `buckets` is the number of rows for either side, and `farthest` the distance from which on the last row is used. Float32 is
    used as in transformers, so that the borders of buckets are the same.

    >>> rows_of(np.array([-300, -2, 0, 1, 300]), buckets=256, farthest=512).tolist()
    [463, 258, 256, 255, 49]
    """
    half = buckets // 2
    far = np.maximum(np.abs(distances), half).astype(np.float32) / np.float32(half)
    steps = np.log(far) / np.log(np.float32((farthest - 1) / half)) * np.float32(half - 1)
    bucket = np.where(np.abs(distances) <= half, np.abs(distances), np.ceil(steps).astype(np.int64) + half)
    return np.clip(buckets - np.sign(distances) * bucket, 0, 2 * buckets - 1)


def bias_of(
    query: tf.Tensor,
    key: tf.Tensor,
    w: LayerWeights,
    table: tf.Tensor,
    *,
    length: int,
    distances: np.ndarray,
    rows: np.ndarray,
    scale: float,
) -> tf.Tensor:
    """Return the two terms of the scores that depend on distances, as their sum: [batch, heads, queries, keys].

    query, key: of `attention.split_heads`, the queries already scaled. w: the layer's weights. table: the embeddings of distances,
    [rows, d_model]. length: of the text. distances: all distances `key - query`, in order; rows: the row of the table of each. scale:
    the factor of scores.
    """
    of_query, of_key = (
        tf.reshape(tf.matmul(table, w[name]) + bias, [table.shape[0], query.shape[2], -1])
        for name, bias in zip(("query", "key"), w["qkv_bias"], strict=False)
    )
    # `chosen` holds zeros and ones: a product with it selects one row for each query and key (see the module's docstring).
    chosen = in_buckets(table[0, 0], distances, rows, buckets=int(table.shape[0]), queries=length, keys=length)
    to_position = tf.cast(product("bqhd,rhd->bhqr", query, of_key), table.dtype)
    from_position = tf.cast(product("bkhd,rhd->bhkr", key, of_query * tf.constant(scale, table.dtype)), table.dtype)
    return tf.einsum("bhqr,rqk->bhqk", to_position, chosen) + tf.einsum("bhkr,rqk->bhqk", from_position, chosen)

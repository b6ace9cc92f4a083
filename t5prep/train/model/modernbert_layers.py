"""Compute a ModernBERT with a head, from weights and tokens to logits, and the layers of its likes, in plain TensorFlow.

Norms stand before attention and before the gated feed-forward part, and nothing but the last matrix has a bias. Dtypes are
as in `encoder`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from t5prep.train.model.attention import Heads, attend, near, rotary_angles
from t5prep.train.model.encoder import EMBEDDING_SITE, HEAD_SITE, SITES_PER_LAYER, check_length, vocabulary_scores
from t5prep.train.model.layers import (
    ACTIVATIONS,
    Dropout,
    cast_weight,
    feed_forward,
    gradients_in_turn,
    layer_norm,
    loop_over_layers,
    mean_of_tokens,
    rms_norm,
    slices_of,
)
from t5prep.train.model.modernbert import ModernBertConfig
from t5prep.train.model.t5 import LayerWeights, Weights, key_mask

_MATRICES = ("query", "key", "value", "attended", "wide", "gate", "narrow")


class Reach(NamedTuple):
    """Say what a kind of layer attends to, bool[batch or 1, 1, queries or 1, keys], and how it rotates queries and keys."""

    mask: tf.Tensor
    cosines: tf.Tensor
    sines: tf.Tensor


def classify(
    weights: Weights,
    config: ModernBertConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout_seed: tf.Tensor | None = None,
    remat: bool = False,
) -> tf.Tensor:
    """Return the logits of the classes: float32[batch, 1 or length, classes]. All else is as in `encoder.classify`."""
    tokens, dropout = batch["attention_mask"], Dropout(config.dropout_rate, dropout_seed)
    x = encode(weights, config, batch, dtype=dtype, dropout=dropout, remat=remat)
    if config.target == "tags":
        x = tf.cast(x, tf.float32)
    else:
        x = mean_of_tokens(x, tokens)[:, None] if config.pooling == "mean" else tf.cast(x[:, :1], tf.float32)
    dense, last, last_bias = (
        tf.convert_to_tensor(weights[f"head.{name}"]) for name in ("dense", "classifier", "classifier_bias")
    )
    hidden = _norm(config)(ACTIVATIONS[config.head_activation](tf.matmul(x, dense)), weights["head.norm"])
    return tf.matmul(dropout(hidden, site=HEAD_SITE), last) + last_bias


def encode(
    weights: Weights,
    config: ModernBertConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout: Dropout = Dropout(0.0, None),  # noqa: B008 - frozen
    remat: bool = False,
) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, length, d_model]. Arguments and errors as in `classify`."""
    ids = batch["input_ids"]
    check_length(config, ids.shape[1])
    norm = _norm(config)
    x = norm(tf.gather(tf.convert_to_tensor(weights["embeddings.word"]), ids), weights["embeddings.norm"])
    x = dropout(tf.cast(x, dtype), site=EMBEDDING_SITE)
    x = run_layers(weights, config, x, tokens=batch["attention_mask"], dropout=dropout, remat=remat)
    return norm(x, weights["final_norm"])


def fill(
    weights: Weights,
    config: ModernBertConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout_seed: tf.Tensor | None = None,
    remat: bool = False,
) -> tf.Tensor:
    """Return the scores of the vocabulary at each position: float32[batch, length, vocab_size]. Arguments as in `classify`."""
    x = encode(weights, config, batch, dtype=dtype, dropout=Dropout(config.dropout_rate, dropout_seed), remat=remat)
    dense = tf.convert_to_tensor(weights["masked.dense"])
    hidden = ACTIVATIONS[config.head_activation](tf.matmul(tf.cast(x, tf.float32), dense))
    return vocabulary_scores(weights, _norm(config)(hidden, weights["masked.norm"]))


def _norm(config: ModernBertConfig) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    if config.norm == "rms":
        return functools.partial(rms_norm, epsilon=config.layer_norm_epsilon)
    return functools.partial(layer_norm, bias=None, epsilon=config.layer_norm_epsilon)


def run_layers(
    weights: Weights, config: ModernBertConfig, x: tf.Tensor, *, tokens: tf.Tensor, dropout: Dropout, remat: bool
) -> tf.Tensor:
    """Apply all layers to x, [batch, length, d_model]; `tokens` is the batch's attention mask."""
    length, width, layers = x.shape[1], config.d_model // config.num_heads, range(config.num_layers)
    mask = key_mask(tokens)
    full = Reach(mask, *rotary_angles(length, width, theta=config.global_theta))
    sliding = Reach(
        mask & near(tokens, config.window // 2, config.window // 2),
        *rotary_angles(length, width, theta=config.local_theta),
    )
    run = functools.partial(run_layer, config=config, dropout=dropout)
    own = [{name: cast_weight(weights[f"layers.{number}.{name}"], x.dtype) for name in _MATRICES} for number in layers]
    for name in ("feed_forward_norm", "attention_norm"):
        if f"layers.{name}s" in weights:
            scales = slices_of(tf.convert_to_tensor(weights[f"layers.{name}s"]))
            first = len(own) - len(scales)  # in a ModernBERT, the first layer's attention has none
            own[first:] = [{**w, name: scale} for w, scale in zip(own[first:], scales, strict=True)]
    in_turn = own[:1] if remat else own
    for number, w in enumerate(in_turn):
        reach = sliding if number % config.global_every else full
        x = gradients_in_turn(functools.partial(run, reach=reach, number=number), x, w)
    if len(in_turn) == len(own):
        return x
    stacked = {name: tf.stack([w[name] for w in own[1:]]) for name in own[1]}

    def run_any(x: tf.Tensor, _: Sequence[tf.Tensor], w: Mapping[str, tf.Tensor], place: tf.Tensor) -> tf.Tensor:
        number = place + 1
        is_full = number % config.global_every == 0
        reach = Reach(*(tf.where(is_full, one, other) for one, other in zip(full, sliding, strict=True)))
        return run(x, dict(w), reach=reach, number=number)

    return loop_over_layers(run_any, x, [], stacked)


def run_layer(
    x: tf.Tensor, w: LayerWeights, *, config: ModernBertConfig, reach: Reach, dropout: Dropout, number: int | tf.Tensor
) -> tf.Tensor:
    """Apply one layer to x, [batch, length, d_model]; the first layer has no `attention_norm`."""
    site = (number + 1) * SITES_PER_LAYER
    norm = _norm(config)
    normed = norm(x, w["attention_norm"]) if "attention_norm" in w else x
    heads = Heads.of(config.num_heads, queries=x.shape[1], keys=x.shape[1])
    query = heads.rotated(heads.queries(normed, w["query"]), reach.cosines, reach.sines)
    own = dataclasses.replace(heads, number=config.heads_of_keys)
    key = own.rotated(own.keys(normed, w["key"]), reach.cosines, reach.sines)
    value = own.keys(normed, w["value"])
    if own != heads:
        served, axis = config.num_heads // own.number, 1 if heads.keys_last else 2
        key, value = (tf.repeat(some, served, axis=axis) for some in (key, value))
    query *= tf.constant((config.d_model // config.num_heads) ** -0.5, x.dtype)
    dropped = dropout.mask(heads.shape_of_keys(x.shape[0], x.shape[1]), x.dtype, site=site)
    attended, _ = attend(heads, query, key, value, bias=None, mask=reach.mask, dropped=dropped)
    x += dropout(heads.join(attended, w["attended"]), site=site + 1)
    mask = dropout.mask([x.shape[0], 1, config.d_ff], x.dtype, site=site + 2)
    normed = norm(x, w["feed_forward_norm"])
    return x + feed_forward(normed, (w["wide"], w["gate"]), w["narrow"], activation=config.activation, mask=mask)

"""Compute a ModernBERT or a EuroBERT with a head, from weights and tokens to logits, in plain TensorFlow.

A norm precedes attention and the gated feed-forward part, and no layer has a bias. Dtypes are as in `encoder`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from t5prep.training.model.attention import multi_head_attention
from t5prep.training.model.encoder import (
    EMBEDDING_SITE,
    HEAD_SITE,
    SITES_PER_LAYER,
    check_length,
    vocabulary_scores,
)
from t5prep.training.model.layers import (
    ACTIVATIONS,
    ComputeOptions,
    Dropout,
    cast_weight,
    feed_forward,
    last_matrix,
    layer_norm,
    mean_of_tokens,
    rms_norm,
    run_layers,
)
from t5prep.training.model.modernbert import MATRICES, ModernBertConfig
from t5prep.training.model.positions import AttentionSpan, either, near, rotary_angles
from t5prep.training.model.t5 import LayerWeights, Weights, key_mask


def encode(
    weights: Weights, config: ModernBertConfig, batch: Mapping[str, tf.Tensor], options: ComputeOptions
) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, length, d_model]. Arguments and errors as in `encoder.encode`."""
    ids = batch["input_ids"]
    check_length(config, ids.shape[1])
    norm = _norm(config)
    x = tf.gather(tf.convert_to_tensor(weights["embeddings.word"]), ids)
    if "embeddings.norm" in weights:
        x = norm(x, weights["embeddings.norm"])
    x = options.dropout(tf.cast(x, options.dtype), site=EMBEDDING_SITE)
    return norm(
        run_pre_norm_layers(weights, config, x, tokens=batch["attention_mask"], options=options), weights["final_norm"]
    )


def head(weights: Weights, config: ModernBertConfig, x: tf.Tensor, tokens: tf.Tensor, *, dropout: Dropout) -> tf.Tensor:
    """Return the logits of the classes, float32[batch, 1, classes]; for tags float32[batch, length, classes].

    x: the output of `encode`; tokens: the batch's attention mask, int32[batch, length].
    """
    pooling = "none" if config.objective.target.is_aligned else config.pooling
    if pooling == "mean":
        x = mean_of_tokens(x, tokens)[:, None]
    elif pooling in ("cls", "bos"):
        x = x[:, :1]
    x = tf.cast(x, tf.float32)
    if "head.dense" in weights:
        x = tf.matmul(x, tf.convert_to_tensor(weights["head.dense"]))
        x = x + tf.convert_to_tensor(weights["head.dense_bias"]) if "head.dense_bias" in weights else x
        x = ACTIVATIONS[config.head_activation](x)
    if "head.norm" in weights:
        x = _norm(config)(x, weights["head.norm"])
    if pooling == "late":  # the last matrix is linear, so the mean before it gives the mean of all tokens' logits
        x = mean_of_tokens(x, tokens)[:, None]
    return last_matrix(weights, dropout(x, site=HEAD_SITE))


def fill(weights: Weights, config: ModernBertConfig, x: tf.Tensor) -> tf.Tensor:
    """Return the scores of the vocabulary at each position: float32[batch, length, vocab_size]."""
    dense = tf.convert_to_tensor(weights["masked.dense"])
    hidden = ACTIVATIONS[config.head_activation](tf.matmul(tf.cast(x, tf.float32), dense))
    hidden = _norm(config)(hidden, weights["masked.norm"])
    return vocabulary_scores(weights, tf.cast(hidden, x.dtype))


def _norm(config: ModernBertConfig) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    if config.norm == "rms":
        return functools.partial(rms_norm, epsilon=config.layer_norm_epsilon)
    return functools.partial(layer_norm, bias=None, epsilon=config.layer_norm_epsilon)


def run_pre_norm_layers(
    weights: Weights, config: ModernBertConfig, x: tf.Tensor, *, tokens: tf.Tensor, options: ComputeOptions
) -> tf.Tensor:
    """Return x, [batch, length, d_model], after all layers. tokens: the batch's attention mask, int32[batch, length]."""
    length, width, layers = x.shape[1], config.d_model // config.num_heads, range(config.num_layers)
    mask = key_mask(tokens)
    angles = [rotary_angles(length, width, theta=theta) for theta in (config.global_theta, config.local_theta)]
    masks = (mask, mask & near(tokens, config.window // 2, config.window // 2))
    spans = [
        AttentionSpan(layer_mask, layer_angles, layer_angles)
        for layer_mask, layer_angles in zip(masks, angles, strict=True)
    ]  # of layers that attend to all tokens, and of layers with a window (docs/decisions/009-mask-attention-windows.md)

    def run(x: tf.Tensor, _: Sequence[tf.Tensor], w: LayerWeights, number: int | tf.Tensor) -> tf.Tensor:
        span = either(number % config.global_every == 0, *spans)
        return run_layer(x, w, config=config, span=span, dropout=options.dropout, number=number)

    layer_weights = [
        {name: cast_weight(weights[f"layers.{number}.{name}"], x.dtype) for name in MATRICES} for number in layers
    ]
    for name in ("feed_forward_norm", "attention_norm"):
        if f"layers.{name}s" in weights:
            scales = tf.unstack(tf.convert_to_tensor(weights[f"layers.{name}s"]))
            first = len(layer_weights) - len(scales)  # 1 for a ModernBERT, whose first attention has no norm
            layer_weights[first:] = [{**w, name: scale} for w, scale in zip(layer_weights[first:], scales, strict=True)]
    # The first layer runs apart from the others: a loop over layers needs the same weights in each.
    x = run(x, [], layer_weights[0], 0)
    if len(layer_weights) == 1:
        return x
    later_weights = {name: [w[name] for w in layer_weights[1:]] for name in layer_weights[1]}
    return run_layers(
        lambda x, shared, w, index: run(x, shared, w, index + 1), x, [], later_weights, remat=options.remat
    )


def run_layer(
    x: tf.Tensor,
    w: LayerWeights,
    *,
    config: ModernBertConfig,
    span: AttentionSpan,
    dropout: Dropout,
    number: int | tf.Tensor,
) -> tf.Tensor:
    """Return x, [batch, length, d_model], after layer `number`. w: its weights; a missing `attention_norm` is skipped."""
    site = (number + 1) * SITES_PER_LAYER
    norm = _norm(config)
    normed = norm(x, w["attention_norm"]) if "attention_norm" in w else x
    attended = multi_head_attention(
        normed,
        normed,
        [w[name] for name in ("query", "key", "value", "attended")],
        heads=config.num_heads,
        span=span,
        scale=config.score_scale,
        dropout=dropout,
        dropout_site=site,
    )
    x += dropout(attended, site=site + 1)
    mask = dropout.mask([x.shape[0], 1, config.d_ff], x.dtype, site=site + 2)
    normed = norm(x, w["feed_forward_norm"])
    return x + feed_forward(normed, (w["wide"], w["gate"]), w["narrow"], activation=config.activation, mask=mask)

"""Compute the logits of a model of any architecture, and the mask of tokens that they need."""

import importlib
from collections.abc import Mapping
from types import ModuleType

import tensorflow as tf

from t5prep.training.model import encoder, t5
from t5prep.training.model.architecture import FAMILIES, Config, EncoderConfig, ModelConfig, family_module
from t5prep.training.model.layers import ComputeOptions, Dropout
from t5prep.training.settings.padding import Padding


def token_mask(batch: Mapping[str, tf.Tensor], padding: Padding) -> tf.Tensor:
    """Return the `attention_mask` of a batch, int32[rows, input_length]: 0 for padding, 1 for tokens.

    If `padding` names a separator, tokens of a pair's second text, after the first separator, have 2. In packed rows padding is
    segment 0, in other rows it has the pad id.
    """
    ids = batch["input_ids"]
    packed = "input_segment_ids" in batch
    mask = tf.cast(batch["input_segment_ids"] > 0 if packed else ids != padding.pad_id, tf.int32)
    if padding.separator is None:
        return mask
    length = tf.shape(ids)[1]
    places = tf.range(length)
    first = tf.reduce_min(tf.where(ids == padding.separator, places, length), axis=1, keepdims=True)
    return mask * (1 + tf.cast(places > first, tf.int32))


def with_mask(batch: Mapping[str, tf.Tensor], padding: Padding) -> dict[str, tf.Tensor]:
    """Return the batch with an `attention_mask`: its own, or that of `token_mask`."""
    return dict(batch) if "attention_mask" in batch else {**batch, "attention_mask": token_mask(batch, padding)}


def forward(
    weights: t5.Weights,
    config: Config,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout_seed: tf.Tensor | None = None,
    remat: bool = False,
) -> tf.Tensor:
    """Return the logits of each target position, float32[batch, positions, values].

    | model | logits |
    |---|---|
    | writes texts, with teacher forcing | [batch, target_length, vocab_size] |
    | head for one class, labels or a number | [batch, 1, classes] |
    | head for tags | [batch, input_length, classes] |
    | fills masks | [batch, input_length, vocab_size] |

    batch: `input_ids`, `attention_mask` and `labels`, int32[batch, length]; packed rows add `input_segment_ids` and
    `label_segment_ids` (0 = padding). dtype: of matrix products and activations. dropout_seed: int32[2], or None for no
    dropout. remat: see `layers.ComputeOptions`. Raises UsageError if the input is longer than the model's positions.
    """
    options = ComputeOptions(dtype, Dropout(config.dropout_rate, dropout_seed), remat)
    if not config.classes and isinstance(config, ModelConfig):
        return t5.forward(weights, config, batch, options)
    layers = _encoder_of(config)
    x: tf.Tensor = layers.encode(weights, config, batch, options)
    if isinstance(config, EncoderConfig) and config.masked:
        scores: tf.Tensor = layers.fill(weights, config, x)
        return scores
    logits: tf.Tensor = layers.head(weights, config, x, batch["attention_mask"], dropout=options.dropout)
    return logits


def encode(weights: t5.Weights, config: Config, batch: Mapping[str, tf.Tensor], *, dtype: tf.DType) -> tf.Tensor:
    """Return the encoder's output for each token, without head and decoder: dtype[batch, length, d_model].

    batch: `input_ids` and `attention_mask`. weights: those in `weight_layout.of_encoder`; others are not read.
    """
    x: tf.Tensor = _encoder_of(config).encode(weights, config, batch, ComputeOptions(dtype))
    return x


def _encoder_of(config: Config) -> ModuleType:
    """Return the module of an encoder's functions: `encode`, `head`, and `fill`, the head that fills masks."""
    if not isinstance(config, EncoderConfig):
        return t5
    return (
        importlib.import_module(family_module(config.model_type).LAYERS) if config.model_type in FAMILIES else encoder
    )

"""Compute a model's logits, whichever architecture it is of, and the mask of tokens that they need."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from t5prep.train.model import deberta_layers, decoding, encoder, eurobert_layers, modernbert_layers, t5, t5gemma_layers
from t5prep.train.model.architecture import Config, EncoderConfig, ModelConfig
from t5prep.train.model.decoding import Writer
from t5prep.train.settings.padding import Padding

# What computes an encoder whose layers are in a file of their own.
_OWN = {"deberta-v2": deberta_layers, "eurobert": eurobert_layers, "modernbert": modernbert_layers}
CLASSIFIERS: dict[str, Callable[..., tf.Tensor]] = {name: layers.classify for name, layers in _OWN.items()}
ENCODERS: dict[str, Callable[..., tf.Tensor]] = {name: layers.encode for name, layers in _OWN.items()}
FILLERS: dict[str, Callable[..., tf.Tensor]] = {"modernbert": modernbert_layers.fill}
# What computes a model that writes texts and is no T5.
WRITERS: dict[str, Writer] = dict.fromkeys(("t5gemma", "t5gemma2"), t5gemma_layers.WRITER)


def token_mask(batch: Mapping[str, tf.Tensor], padding: Padding) -> tf.Tensor:
    """Return the `attention_mask` of a batch, int32[rows, input_length]: 0 for padding, 1 for tokens.

    Tokens of a pair's second text have 2, where `padding` names a separator: they come after the first one. In packed
    rows padding is segment 0, in other rows it has the pad id.
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
    """Return a batch with its `attention_mask`: the one that it has already, or the one of `token_mask`."""
    return dict(batch) if "attention_mask" in batch else {**batch, "attention_mask": token_mask(batch, padding)}


def forward(weights: t5.Weights, config: Config, batch: Mapping[str, tf.Tensor], **options: Any) -> tf.Tensor:
    """Return the logits of each target position: float32[batch, target_length, vocab_size], [batch, 1, classes], or of tags
    [batch, input_length, classes].

    batch and options: as for `t5.forward` and `encoder.classify`.
    """
    if isinstance(config, EncoderConfig) and config.masked:
        fill: Callable[..., tf.Tensor] = FILLERS.get(config.family, encoder.fill)
        return fill(weights, config, batch, **options)
    if isinstance(config, EncoderConfig):
        classify: Callable[..., tf.Tensor] = CLASSIFIERS.get(config.family, encoder.classify)
        return classify(weights, config, batch, **options)
    if config.classes:
        return t5.classify(weights, config, batch, **options)
    return writer_of(config).forward(weights, config, batch, **options)


def encode(weights: t5.Weights, config: Config, batch: Mapping[str, tf.Tensor], *, dtype: tf.DType) -> tf.Tensor:
    """Return what the encoder makes of each token, without head and decoder: dtype[batch, length, d_model].

    batch: `input_ids` and `attention_mask`. Of the weights only those of `weight_layout.of_encoder` are read.
    """
    if isinstance(config, EncoderConfig):
        run: Callable[..., tf.Tensor] = ENCODERS.get(config.family, encoder.encode)
        return run(weights, config, batch, dtype=dtype)
    return writer_of(config).encode(weights, config, batch["input_ids"], batch["attention_mask"], dtype=dtype)


def writer_of(config: ModelConfig) -> Writer:
    """Return what computes a model that writes texts."""
    return WRITERS.get(config.model_type, decoding.T5)

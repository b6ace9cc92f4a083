"""Compute which positions of a batch hold tokens, from its ids: the batch need not be sent with a mask."""

from collections.abc import Mapping

import tensorflow as tf

from t5prep.train.settings.padding import Padding


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

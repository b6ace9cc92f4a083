"""Compute a model's logits, whichever architecture it is of."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from t5prep.train.model import encoder, t5, t5_classifier
from t5prep.train.model.architecture import Config
from t5prep.train.model.encoder_config import EncoderConfig


def forward(weights: t5.Weights, config: Config, batch: Mapping[str, tf.Tensor], **options: Any) -> tf.Tensor:
    """Return the logits of each target position: float32[batch, target_length, vocab_size], or [batch, 1, classes].

    batch and options: as for `t5.forward` and `encoder.classify`.
    """
    if isinstance(config, EncoderConfig):
        return encoder.classify(weights, config, batch, **options)
    if config.classes:
        return t5_classifier.classify(weights, config, batch, **options)
    return t5.forward(weights, config, batch, **options)

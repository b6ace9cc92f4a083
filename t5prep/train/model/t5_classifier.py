"""Compute T5's encoder with a classification head: one matrix after the mean of the outputs of a text's tokens.

`transformers`' T5ForTokenClassification has the same weights and gives logits for each token, whose mean over the tokens
of a text are the logits here.
"""

from collections.abc import Mapping

import tensorflow as tf

from t5prep.train.model import t5
from t5prep.train.model.layers import Dropout
from t5prep.train.model.t5_config import ModelConfig


def classify(
    weights: t5.Weights,
    config: ModelConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout_seed: tf.Tensor | None = None,
    remat: bool = False,
) -> tf.Tensor:
    """Return the logits of the classes: float32[batch, 1, classes], as of one target position.

    batch: `input_ids` and `attention_mask`, int32[batch, length]; the mask is 0 for padding. The other arguments are as
    in `t5.forward`.
    """
    dropout, mask = Dropout(config.dropout_rate, dropout_seed), batch["attention_mask"]
    x = t5.encode(weights, config, batch["input_ids"], mask, dtype=dtype, dropout=dropout, remat=remat)
    tokens = tf.cast(mask > 0, tf.float32)[..., None]
    mean = tf.reduce_sum(tf.cast(x, tf.float32) * tokens, axis=1) / tf.maximum(tf.reduce_sum(tokens, axis=1), 1.0)
    matrix, bias = (tf.convert_to_tensor(weights[f"head.{name}"]) for name in ("classifier", "classifier_bias"))
    return (tf.matmul(mean, matrix) + bias)[:, None, :]

"""Compute a EuroBERT with a head, from weights and tokens to logits, in plain TensorFlow; its layers are `modernbert_layers`."""

from collections.abc import Mapping

import tensorflow as tf

from t5prep.train.model.encoder import EMBEDDING_SITE, HEAD_SITE, check_length, last_matrix
from t5prep.train.model.eurobert import EuroBertConfig
from t5prep.train.model.layers import Dropout, gelu, mean_of_tokens, rms_norm
from t5prep.train.model.modernbert_layers import run_layers
from t5prep.train.model.t5 import Weights


def classify(
    weights: Weights,
    config: EuroBertConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout_seed: tf.Tensor | None = None,
    remat: bool = False,
) -> tf.Tensor:
    """Return the logits of the classes: float32[batch, 1 or length, classes]. All else is as in `encoder.classify`.

    The mean of all tokens' logits is the last matrix times the mean of what it is multiplied by, so it is applied once.
    """
    tokens, dropout = batch["attention_mask"], Dropout(config.dropout_rate, dropout_seed)
    x = tf.cast(encode(weights, config, batch, dtype=dtype, dropout=dropout, remat=remat), tf.float32)
    if config.target == "tags":
        return last_matrix(weights, dropout(x, site=HEAD_SITE))
    if config.pooling != "late":
        x = mean_of_tokens(x, tokens)[:, None] if config.pooling == "mean" else x[:, :1]
    dense, bias = (tf.convert_to_tensor(weights[f"head.{name}"]) for name in ("dense", "dense_bias"))
    hidden = gelu(tf.matmul(x, dense) + bias)
    if config.pooling == "late":
        hidden = mean_of_tokens(hidden, tokens)[:, None]
    return last_matrix(weights, dropout(hidden, site=HEAD_SITE))


def encode(
    weights: Weights,
    config: EuroBertConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout: Dropout = Dropout(0.0, None),  # noqa: B008 - frozen
    remat: bool = False,
) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, length, d_model]. Arguments and errors as in `classify`."""
    ids = batch["input_ids"]
    check_length(config, ids.shape[1])
    x = tf.cast(tf.gather(tf.convert_to_tensor(weights["embeddings.word"]), ids), dtype)
    x = dropout(x, site=EMBEDDING_SITE)
    x = run_layers(weights, config, x, tokens=batch["attention_mask"], dropout=dropout, remat=remat)
    return rms_norm(x, weights["final_norm"], epsilon=config.layer_norm_epsilon)

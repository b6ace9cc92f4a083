"""Compute an encoder with a classification head, from weights and tokens to logits, in plain TensorFlow.

Weights are a dict by the names in `weight_layout`. With `dtype=tf.bfloat16`, matrix products, activations and the residual
stream are bfloat16. Norms, softmax, the head, the loss and the weights themselves are float32. A TPU rounds both sides of the
head's products too, unless the dtype is float32 (`lowering.lower`).
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from t5prep.errors import UsageError
from t5prep.training.model.architecture import EncoderConfig
from t5prep.training.model.attention import multi_head_attention
from t5prep.training.model.layers import (
    ACTIVATIONS,
    ComputeOptions,
    Dropout,
    cast_weight,
    last_matrix,
    layer_norm,
    project,
    run_layers,
    scores_by_table,
)
from t5prep.training.model.positions import AttentionSpan
from t5prep.training.model.t5 import Weights, in_parts, key_mask
from t5prep.training.model.weight_layout import MATRICES

_BIASES, _NORMS = ("qkv_bias", "out_bias", "wide_bias", "narrow_bias"), ("norms", "norms_bias")
_PARTS = frozenset({"qkv_bias", "norms", "norms_bias"})  # variables that hold several weights of each layer
# The dropout sites of the embeddings and of the head. Layer n has the sites from (n + 1) * SITES_PER_LAYER on.
EMBEDDING_SITE, HEAD_SITE, SITES_PER_LAYER = 0, 1 << 16, 16

# The activation between the two matrices of the head, by family (else "gelu"), and the families whose head applies dropout
# before its first matrix too.
_OF_HEAD = {
    "bert": "tanh",
    "albert": "tanh",
    "roberta": "tanh",
    "distilbert": "relu",
}
_DROPS_BEFORE_HEAD = ("roberta", "electra")


def encode(
    weights: Weights, config: EncoderConfig, batch: Mapping[str, tf.Tensor], options: ComputeOptions
) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, length, d_model].

    batch: `input_ids` and `attention_mask`, int32[batch, length]. The mask is 0 for padding, 1 for the tokens of the
    first text and 2 for those of the second. Raises UsageError if the model has too few positions.
    """
    x = embed(weights, config, batch["input_ids"], batch["attention_mask"], options)
    return run_encoder_layers(weights, config, x, mask=key_mask(batch["attention_mask"]), options=options)


def check_length(config: EncoderConfig, length: int) -> None:
    """Raise UsageError if the model has too few positions for inputs of a length."""
    if length > config.longest_input:
        raise UsageError(
            f"The model has positions for {config.longest_input} tokens, but the inputs have {length}. "
            f"Prepare the data again with --input-length {config.longest_input}",
            code="model.short-positions",
        )


def embed(
    weights: Weights, config: EncoderConfig, ids: tf.Tensor, texts: tf.Tensor, options: ComputeOptions
) -> tf.Tensor:
    """Return the embeddings of `ids`, int32[batch, length], as dtype[batch, length, d_model].

    texts: int32[batch, length], the `attention_mask` of `encode`, which selects the embedding of the token type.
    """
    first, length = config.first_position, ids.shape[1]
    x = tf.gather(tf.convert_to_tensor(weights["embeddings.word"]), ids)
    if "embeddings.position" in weights:
        check_length(config, length)
        x += tf.convert_to_tensor(weights["embeddings.position"])[first : first + length]
    if config.segments:
        number = tf.clip_by_value(texts - 1, 0, config.segments - 1)
        table = tf.convert_to_tensor(weights["embeddings.token_type"])
        x += tf.einsum("bls,sw->blw", tf.one_hot(number, config.segments), table)
    x = layer_norm(x, weights["embeddings.norm"], weights["embeddings.norm_bias"], epsilon=config.layer_norm_epsilon)
    x = options.dropout(tf.cast(x, options.dtype), site=EMBEDDING_SITE)
    if config.projects:
        matrix, bias = (tf.cast(weights[f"embeddings.projection{end}"], options.dtype) for end in ("", "_bias"))
        x = project(x, matrix) + bias
    return x


# A function for the bias of a layer's scores: (query, key, the layer's weights, *shared) → [batch, heads, queries, keys], or
# [heads, queries, keys] for a bias that all rows share.
Bias = Callable[..., tf.Tensor]


def run_encoder_layers(
    weights: Weights,
    config: EncoderConfig,
    x: tf.Tensor,
    *shared: tf.Tensor,
    mask: tf.Tensor,
    options: ComputeOptions,
    bias_of: Bias | None = None,
) -> tf.Tensor:
    """Return x, [batch, length, d_model], after all layers.

    mask: bool, see `attention.attend`. bias_of: computes the bias of a layer's scores; `shared` holds the tensors that it takes
    in every layer, and which get gradients.
    """
    layer = functools.partial(run_layer, config=config, mask=mask, dropout=options.dropout, bias_of=bias_of)
    stacked = {name: cast_weight(weights[f"layers.{name}"], x.dtype) for name in _BIASES}
    stacked |= {name: tf.convert_to_tensor(weights[f"layers.{name}"]) for name in _NORMS}
    layers = {name: tf.unstack(value) for name, value in stacked.items()}
    for name in MATRICES:
        layers[name] = [cast_weight(weights[f"layers.{n}.{name}"], x.dtype) for n in range(config.own_layers)]
    repeats = config.num_layers // config.own_layers  # ALBERT applies one layer `num_layers` times
    repeated = {name: tensors * repeats for name, tensors in layers.items()}
    return run_layers(layer, x, list(shared), repeated, remat=options.remat)


def run_layer(
    x: tf.Tensor,
    shared: Sequence[tf.Tensor],
    stacked: Mapping[str, tf.Tensor],
    number: int | tf.Tensor,
    *,
    config: EncoderConfig,
    mask: tf.Tensor,
    dropout: Dropout,
    bias_of: Bias | None,
) -> tf.Tensor:
    """Return x, [batch, length, d_model], after layer `number`, with a norm after each of its two residual sums.

    stacked: the layer's weights by name. The other arguments are those of `run_encoder_layers`.
    """
    w = in_parts(stacked, parts=_PARTS)
    site = (number + 1) * SITES_PER_LAYER
    out = multi_head_attention(
        x,
        x,
        [w[name] for name in MATRICES[:4]],
        heads=config.num_heads,
        span=AttentionSpan(mask),
        scale=config.score_scale,
        dropout=dropout,
        dropout_site=site,
        biases=[*w["qkv_bias"], w["out_bias"]],
        bias=bias_of and (lambda query, key: bias_of(query, key, w, *shared)),
    )
    epsilon = config.layer_norm_epsilon
    x = layer_norm(x + dropout(out, site=site + 1), w["norms"][0], w["norms_bias"][0], epsilon=epsilon)
    hidden = ACTIVATIONS[config.activation](project(x, w["wide"]) + w["wide_bias"])
    out = project(hidden, w["narrow"]) + w["narrow_bias"]
    return layer_norm(x + dropout(out, site=site + 2), w["norms"][1], w["norms_bias"][1], epsilon=epsilon)


def head(weights: Weights, config: EncoderConfig, x: tf.Tensor, tokens: tf.Tensor, *, dropout: Dropout) -> tf.Tensor:
    """Return the logits of the classes, float32[batch, 1, classes], from the vector of the first token.

    For tags, return float32[batch, length, classes]. x: the output of `encode`. tokens: not used; other families pool by it.
    """
    if config.objective.target.is_aligned:
        return last_matrix(weights, dropout(tf.cast(x, tf.float32), site=HEAD_SITE))
    first = tf.cast(x[:, :1], tf.float32)
    if config.family in _DROPS_BEFORE_HEAD:
        first = dropout(first, site=HEAD_SITE)
    dense, bias = (tf.convert_to_tensor(weights[f"head.{name}"]) for name in ("dense", "dense_bias"))
    hidden = ACTIVATIONS[_OF_HEAD.get(config.family, "gelu")](tf.matmul(first, dense) + bias)
    return last_matrix(weights, dropout(hidden, site=HEAD_SITE + 1))


def fill(weights: Weights, config: EncoderConfig, x: tf.Tensor) -> tf.Tensor:
    """Return the scores of the vocabulary at each position: float32[batch, length, vocab_size]."""
    dense, bias, scale, norm_bias = (
        tf.convert_to_tensor(weights[f"masked.{name}"]) for name in ("dense", "dense_bias", "norm", "norm_bias")
    )
    activation = "gelu" if config.family in ("roberta", "electra") else config.activation
    hidden = ACTIVATIONS[activation](tf.matmul(tf.cast(x, tf.float32), dense) + bias)
    hidden = layer_norm(hidden, scale, norm_bias, epsilon=config.layer_norm_epsilon)
    return vocabulary_scores(weights, tf.cast(hidden, x.dtype))


def vocabulary_scores(weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
    """Return the scores of the vocabulary, float32[..., vocab_size]: products with the embeddings, plus a bias."""
    return scores_by_table(
        hidden, *(tf.convert_to_tensor(weights[name]) for name in ("embeddings.word", "masked.bias"))
    )

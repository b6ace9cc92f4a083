"""Compute T5's forward pass from weights and tokens to logits, in plain TensorFlow.

`head` makes T5's encoder one with a classification head: one matrix after the mean of the outputs of a text's tokens.
`transformers`' T5ForTokenClassification has the same weights and gives logits for each token, whose mean over the tokens
of a text are the logits here.

Weights are a dict, name → tensor or variable, with the shapes in `weight_layout.weight_layouts`. All shapes are static.
With `dtype=tf.bfloat16`, matmuls, activations and the residual stream are bf16; norms, softmax, logits and loss stay in
float32, and so do the weights themselves. A TPU rounds both sides of float32's products, too, unless the dtype
is float32 (`lowering.lower`).
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from t5prep.train.model.architecture import FEED_FORWARDS, ModelConfig
from t5prep.train.model.attention import Heads, attend
from t5prep.train.model.layers import (
    Dropout,
    How,
    cast_weight,
    feed_forward,
    loop_over_layers,
    masked,
    mean_of_tokens,
    rms_norm,
    slices_of,
)
from t5prep.train.model.positions import relative_bias
from t5prep.train.model.weight_layout import PARTS

Weights = Mapping[str, Any]  # name → tf.Tensor or tf.Variable
LayerWeights = Mapping[str, Any]  # name → tf.Tensor, or the list of those in PARTS
# A layer of a stack: x, what all layers share, the layer's weights, its number, its first dropout site → x, and what the next
# layer shares.
StackLayer = Callable[
    [tf.Tensor, Sequence[tf.Tensor], LayerWeights, int | tf.Tensor, int | tf.Tensor],
    tuple[tf.Tensor, Sequence[tf.Tensor]],
]

_NAMES = ("norms", "head_norms", "q", "kv", "out", "wi", "wo", "cross_q", "cross_kv")  # those of a layer that has them
_WIDE = frozenset(
    {"norms", "head_norms", "relative_bias"}
)  # variables that are in float32 for any dtype of the matrices

ENCODER_SITES, DECODER_SITES, SITES_PER_LAYER = 0, 1 << 16, 16  # the first dropout site of each stack


def forward(weights: Weights, config: ModelConfig, batch: Mapping[str, tf.Tensor], how: How) -> tf.Tensor:
    """Return the logits of every target position, as `forward.forward` does."""
    encoded = encode(weights, config, batch, how)
    segments, label_segments = batch.get("input_segment_ids"), batch.get("label_segment_ids")
    decoder_ids = shift_right(batch["labels"], config, segment_ids=label_segments)
    length = decoder_ids.shape[1]
    self_mask = (tf.range(length)[:, None] >= tf.range(length)[None, :])[None, None]
    if label_segments is not None:
        self_mask &= same_segment(label_segments, label_segments)
    cross_mask = token_mask(batch["attention_mask"], segments, queries=label_segments)
    x = embed(weights, decoder_ids, dtype=how.dtype)
    x = run_stack(weights, config, "decoder", x, mask=self_mask, encoded=encoded, cross_mask=cross_mask, how=how)
    return logits(weights, config, x)


def encode(weights: Weights, config: ModelConfig, batch: Mapping[str, tf.Tensor], how: How) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, input_length, d_model]. Arguments as in `forward`."""
    mask = token_mask(batch["attention_mask"], batch.get("input_segment_ids"))
    embedded = embed(weights, batch["input_ids"], dtype=how.dtype)
    return run_stack(weights, config, "encoder", embedded, mask=mask, how=how)


def run_stack(
    weights: Weights,
    config: ModelConfig,
    stack: str,
    x: tf.Tensor,
    *,
    mask: tf.Tensor,
    encoded: tf.Tensor | None = None,
    cross_mask: tf.Tensor | None = None,
    how: How,
) -> tf.Tensor:
    """Apply all layers of the "encoder" or "decoder" (with `encoded`) to x; return dtype[batch, length, d_model]."""
    bias_of = functools.partial(
        relative_bias,
        queries=x.shape[1],
        keys=x.shape[1],
        bidirectional=stack == "encoder",
        max_distance=config.relative_attention_max_distance,
    )

    def run_layer(
        x: tf.Tensor, shared: Sequence[tf.Tensor], w: LayerWeights, number: int | tf.Tensor, site: int | tf.Tensor
    ) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        bias = bias_of(w["relative_bias"]) if config.bias_in_every_layer else shared[-1]
        widths = [config.d_model] * (1 if cross_mask is None else 2) + [config.d_ff, config.d_model]
        *outs, inner, last = how.dropout.masks(x.shape[0], widths, x.dtype, site=site + 8)
        attend_to = functools.partial(attention_layer, w, config, dropout=how.dropout)
        x, bias = attend_to(x, None, bias=bias, mask=mask, site=site, out_mask=outs[0])
        if cross_mask is not None:
            x, _ = attend_to(x, shared[0], bias=None, mask=cross_mask, site=site + 4, out_mask=outs[1])
        normed = rms_norm(x, w["norms"][-1], epsilon=config.layer_norm_epsilon)
        hidden = feed_forward(normed, w["wi"], w["wo"], activation=FEED_FORWARDS[config.feed_forward_proj], mask=inner)
        # Each layer takes the bias from the previous one, so that the backward pass adds up its gradient.
        return x + masked(hidden, last), [*shared[: len(shared) - len(biases)], *([bias] if biases else [])]

    shared = [] if encoded is None else [encoded]
    biases = [] if config.bias_in_every_layer else [bias_of(tf.convert_to_tensor(weights[f"{stack}.relative_bias"]))]
    norm = functools.partial(rms_norm, epsilon=config.layer_norm_epsilon)
    shared += biases
    return run_layers(weights, config, stack, run_layer, x, shared, norm=norm, how=how)


def run_layers(
    weights: Weights,
    config: ModelConfig,
    stack: str,
    layer: StackLayer,
    x: tf.Tensor,
    shared: Sequence[tf.Tensor],
    *,
    norm: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    how: How,
) -> tf.Tensor:
    """Apply a layer with the weights of each one of the "encoder" or "decoder" to x, and the norm behind them."""
    stacked = stacked_weights(weights, config, stack, dtype=x.dtype)
    x = how.dropout(x, site=site_of(stack, -1))
    if how.remat:
        run = lambda x, shared, w, number: layer(x, shared, in_parts(w), number, site_of(stack, number))[0]  # noqa: E731
        x = loop_over_layers(run, x, shared, stacked)
    else:
        for number, w in enumerate(unstack_layers(stacked, first=config.computed(stack))):
            x, shared = layer(x, shared, w, number, site_of(stack, number))
    return how.dropout(norm(x, weights[f"{stack}.final_norm"]), site=site_of(stack, -1) + 1)


def site_of(stack: str, number: int | tf.Tensor) -> int | tf.Tensor:
    """Return the first dropout site of a layer, or of a stack's own two, with -1."""
    return (ENCODER_SITES if stack == "encoder" else DECODER_SITES) + (number + 1) * SITES_PER_LAYER


def attention_layer(
    w: LayerWeights,
    config: ModelConfig,
    x: tf.Tensor,
    encoded: tf.Tensor | None,
    *,
    bias: tf.Tensor | None,
    mask: tf.Tensor,
    dropout: Dropout,
    site: int | tf.Tensor,
    out_mask: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return x plus its attention over itself or over `encoded`, and the next layer's bias.

    w: the layer's weights; site: of the dropout of values; out_mask: that of what is added to x.
    """
    prefix, which = ("", 0) if encoded is None else ("cross_", 1)
    normed = rms_norm(x, w["norms"][which], epsilon=config.layer_norm_epsilon)
    source = normed if encoded is None else encoded
    heads = Heads.of(config.num_heads, queries=x.shape[1], keys=source.shape[1])
    query = heads.queries(normed, w[f"{prefix}q"])
    key, value = (heads.keys(source, part) for part in w[f"{prefix}kv"])
    # One mask for all queries drops the probabilities of a key. Dropping its value is the same, with a smaller mask.
    dropped = dropout.mask(heads.shape_of_keys(x.shape[0], source.shape[1]), x.dtype, site=site)
    attended, bias = attend(heads, query, key, value, bias=bias, mask=mask, dropped=dropped)
    return x + masked(heads.join(attended, w["out"][which]), out_mask), bias


def embed(weights: Weights, ids: tf.Tensor, *, dtype: tf.DType) -> tf.Tensor:
    """Return the embeddings of ids, int32[batch, length], as dtype[batch, length, d_model]."""
    return tf.cast(tf.gather(tf.convert_to_tensor(weights["shared"]), ids), dtype)


def logits(weights: Weights, config: ModelConfig, decoded: tf.Tensor) -> tf.Tensor:
    """Return scores of the whole vocabulary, float32[..., vocab_size], for decoder outputs [..., d_model]."""
    # As one matrix: the gradient of the table would else be computed for each row of the batch, and then added up.
    flat = tf.reshape(before_logits(config, decoded), [-1, decoded.shape[-1]])
    scores = tf.matmul(flat, output_table(weights, config), transpose_b=True)
    return tf.reshape(scores, [*decoded.shape[:-1], scores.shape[-1]])


def before_logits(config: ModelConfig, decoded: tf.Tensor) -> tf.Tensor:
    """Return decoder outputs as they are multiplied by the output table: float32[..., d_model]."""
    decoded = tf.cast(decoded, tf.float32)
    return decoded * config.d_model**-0.5 if config.scale_decoder_outputs else decoded


def output_table(weights: Weights, config: ModelConfig) -> tf.Tensor:
    """Return the table whose rows are multiplied with decoder outputs: float32[vocab_size, d_model]."""
    return tf.convert_to_tensor(weights[config.output_table])


def stacked_weights(weights: Weights, config: ModelConfig, stack: str, *, dtype: tf.DType) -> dict[str, tf.Tensor]:
    """Return all layers' weights by their names in a layer, matrices in `dtype`, norms and biases in float32."""
    names = [*_NAMES, *(["relative_bias"] if config.bias_in_every_layer else [])]
    whole = {name: weights[f"{stack}.{name}"] for name in names if f"{stack}.{name}" in weights}
    return {
        name: tf.convert_to_tensor(weight) if name in _WIDE else cast_weight(weight, dtype)
        for name, weight in whole.items()
    }


def unstack_layers(
    stacked: Mapping[str, tf.Tensor], *, parts: Collection[str] = PARTS, first: int = 0
) -> list[LayerWeights]:
    """Return each layer's own slices of `stacked_weights`, like `in_parts`; `parts` hold several weights of a layer.

    first: how many layers, counted from the first; 0: all.

    Each variable is cut once, so its gradient is one array. Slices of slices would be stacked twice, and slicing layer
    by layer would add up padded gradients.
    """
    layers = []
    for name, whole in stacked.items():
        if name in parts:
            each = slices_of(
                tf.reshape(whole, [whole.shape[0] * whole.shape[1], *whole.shape[2:]]), first * whole.shape[1]
            )
            layers.append([each[i : i + whole.shape[1]] for i in range(0, len(each), whole.shape[1])])
        else:
            layers.append(slices_of(whole, first))
    return [dict(zip(stacked, values, strict=True)) for values in zip(*layers, strict=True)]


def in_parts(w: Mapping[str, tf.Tensor]) -> LayerWeights:
    """Return one layer's slices of `stacked_weights`, with a list for each variable that holds several weights."""
    return {name: tf.unstack(value) if name in PARTS else value for name, value in w.items()}


def shift_right(labels: tf.Tensor, config: ModelConfig, *, segment_ids: tf.Tensor | None = None) -> tf.Tensor:
    """Return decoder inputs for labels: the previous target, or a segment's start token; -100 becomes padding."""
    start = tf.fill([labels.shape[0], 1], tf.constant(config.decoder_start_token_id, labels.dtype))
    shifted = tf.concat([start, labels[:, :-1]], axis=1)
    if segment_ids is not None:
        begins = tf.concat([segment_ids[:, :1] > 0, segment_ids[:, 1:] != segment_ids[:, :-1]], axis=1)
        shifted = tf.where(begins, start, shifted)
    return tf.where(shifted < 0, tf.constant(config.pad_token_id, labels.dtype), shifted)


def token_mask(attention_mask: tf.Tensor, segments: tf.Tensor | None, *, queries: tf.Tensor | None = None) -> tf.Tensor:
    """Return which keys each query may attend to: those of its segment in packed rows, and otherwise all that are no padding.

    queries: the segments of the queries, if they are not those of the keys.
    """
    if segments is None:
        return key_mask(attention_mask)
    return same_segment(segments if queries is None else queries, segments)


def key_mask(attention_mask: tf.Tensor) -> tf.Tensor:
    """Return bool[batch, 1, 1, keys] from int32[batch, keys]: each query may attend to tokens that are not padding."""
    return (attention_mask > 0)[:, None, None, :]


def same_segment(queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Return bool[batch, 1, queries, keys]: a token attends only to its own packed example, padding to padding."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def head(weights: Weights, config: ModelConfig, x: tf.Tensor, tokens: tf.Tensor, *, dropout: Dropout) -> tf.Tensor:
    """Return the logits of the classes, float32[batch, 1, classes], from the encoder's output; of tags, at each token.

    tokens: int32[batch, length], 0 for padding. Nothing is dropped here.
    """
    matrix, bias = (tf.convert_to_tensor(weights[f"head.{name}"]) for name in ("classifier", "classifier_bias"))
    if config.target == "tags":
        return tf.matmul(tf.cast(x, tf.float32), matrix) + bias
    return (tf.matmul(mean_of_tokens(x, tokens), matrix) + bias)[:, None, :]

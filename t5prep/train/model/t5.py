"""Compute T5's forward pass from weights and tokens to logits, in plain TensorFlow.

`classify` is T5's encoder with a classification head: one matrix after the mean of the outputs of a text's tokens.
`transformers`' T5ForTokenClassification has the same weights and gives logits for each token, whose mean over the tokens
of a text are the logits here.

Weights are a dict, name → tensor or variable, with the shapes in `weight_layout.weight_layouts`. All shapes are static.
With `dtype=tf.bfloat16`, matmuls, activations and the residual stream are bf16; norms, softmax, logits and loss stay in
float32, and so do the weights themselves. A TPU rounds both sides of float32's products, too, unless the dtype
is float32 (`lowering.lower`).
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from t5prep.train.model.architecture import FEED_FORWARDS, ModelConfig
from t5prep.train.model.attention import Heads, attend, relative_bias
from t5prep.train.model.layers import (
    Dropout,
    cast_weight,
    feed_forward,
    loop_over_layers,
    masked,
    mean_of_tokens,
    rms_norm,
    slices_of,
)

Weights = Mapping[str, Any]  # name → tf.Tensor or tf.Variable
LayerWeights = Mapping[str, Any]  # name → tf.Tensor, or the list of those in _PARTS

_PARTS = frozenset({"norms", "kv", "cross_kv", "out", "wi"})  # variables that hold several weights of a layer
_WIDE = frozenset({"norms", "relative_bias"})  # variables that are in float32 for any dtype of the matrices

ENCODER_SITES, DECODER_SITES, SITES_PER_LAYER = 0, 1 << 16, 16  # the first dropout site of each stack


def forward(
    weights: Weights,
    config: ModelConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout_seed: tf.Tensor | None = None,
    remat: bool = False,
) -> tf.Tensor:
    """Return the logits of every target position with teacher forcing: float32[batch, target_length, vocab_size].

    batch: `input_ids`, `attention_mask`, `labels`, int32[batch, length]; packed rows add `input_segment_ids` and
    `label_segment_ids` (0 = padding). dropout_seed: int32[2], or None for no dropout. remat: run the layers as a loop,
    and again in the backward pass instead of keeping their activations.
    """
    dropout = Dropout(config.dropout_rate, dropout_seed)
    segments = batch.get("input_segment_ids")
    encoded = encode(
        weights,
        config,
        batch["input_ids"],
        batch["attention_mask"],
        segment_ids=segments,
        dtype=dtype,
        dropout=dropout,
        remat=remat,
    )
    label_segments = batch.get("label_segment_ids")
    decoder_ids = shift_right(batch["labels"], config, segment_ids=label_segments)
    length = decoder_ids.shape[1]
    causal = tf.range(length)[:, None] >= tf.range(length)[None, :]
    if segments is None or label_segments is None:
        self_mask, cross_mask = causal[None, None], key_mask(batch["attention_mask"])
    else:
        self_mask = causal & same_segment(label_segments, label_segments)
        cross_mask = same_segment(label_segments, segments)
    decoded = run_stack(
        weights,
        config,
        "decoder",
        embed(weights, decoder_ids, dtype=dtype),
        mask=self_mask,
        encoded=encoded,
        cross_mask=cross_mask,
        dropout=dropout,
        remat=remat,
    )
    return logits(weights, config, decoded)


def encode(
    weights: Weights,
    config: ModelConfig,
    input_ids: tf.Tensor,
    attention_mask: tf.Tensor,
    *,
    segment_ids: tf.Tensor | None = None,
    dtype: tf.DType = tf.float32,
    dropout: Dropout = Dropout(0.0, None),  # noqa: B008 - frozen
    remat: bool = False,
) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, input_length, d_model]. Arguments as in `forward`."""
    mask = key_mask(attention_mask) if segment_ids is None else same_segment(segment_ids, segment_ids)
    embedded = embed(weights, input_ids, dtype=dtype)
    return run_stack(weights, config, "encoder", embedded, mask=mask, dropout=dropout, remat=remat)


def run_stack(
    weights: Weights,
    config: ModelConfig,
    stack: str,
    x: tf.Tensor,
    *,
    mask: tf.Tensor,
    encoded: tf.Tensor | None = None,
    cross_mask: tf.Tensor | None = None,
    dropout: Dropout,
    remat: bool,
) -> tf.Tensor:
    """Apply all layers of the "encoder" or "decoder" (with `encoded`) to x; return dtype[batch, length, d_model]."""
    first_site = ENCODER_SITES if stack == "encoder" else DECODER_SITES
    bias_of = functools.partial(
        relative_bias,
        queries=x.shape[1],
        keys=x.shape[1],
        bidirectional=stack == "encoder",
        max_distance=config.relative_attention_max_distance,
    )

    def run_layer(
        x: tf.Tensor, shared: Sequence[tf.Tensor], w: LayerWeights, number: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        site = first_site + (number + 1) * SITES_PER_LAYER
        bias = bias_of(w["relative_bias"]) if config.bias_in_every_layer else shared[-1]
        widths = [config.d_model] * (1 if cross_mask is None else 2) + [config.d_ff, config.d_model]
        *outs, inner, last = dropout.masks(x.shape[0], widths, x.dtype, site=site + 8)
        attend_to = functools.partial(attention_layer, w, config, dropout=dropout)
        x, bias = attend_to(x, None, bias=bias, mask=mask, site=site, out_mask=outs[0])
        if cross_mask is not None:
            x, _ = attend_to(x, shared[0], bias=None, mask=cross_mask, site=site + 4, out_mask=outs[1])
        normed = rms_norm(x, w["norms"][-1], epsilon=config.layer_norm_epsilon)
        hidden = feed_forward(normed, w["wi"], w["wo"], activation=FEED_FORWARDS[config.feed_forward_proj], mask=inner)
        return x + masked(hidden, last), bias

    shared = [] if encoded is None else [encoded]
    biases = [] if config.bias_in_every_layer else [bias_of(tf.convert_to_tensor(weights[f"{stack}.relative_bias"]))]
    stacked = stacked_weights(weights, config, stack, dtype=x.dtype)
    x = dropout(x, site=first_site)
    if remat:
        run = lambda x, shared, w, number: run_layer(x, shared, in_parts(w), number)[0]  # noqa: E731
        x = loop_over_layers(run, x, [*shared, *biases], stacked)
    else:
        for number, w in enumerate(unstack_layers(stacked, first=config.computed(stack))):
            # Each layer takes the bias from the previous one, so that the backward pass adds up its gradient.
            x, bias = run_layer(x, [*shared, *biases], w, number)
            biases = biases and [bias]
    x = rms_norm(x, weights[f"{stack}.final_norm"], epsilon=config.layer_norm_epsilon)
    return dropout(x, site=first_site + 1)


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
    return tf.convert_to_tensor(weights["shared" if config.tie_word_embeddings else "lm_head"])


def stacked_weights(weights: Weights, config: ModelConfig, stack: str, *, dtype: tf.DType) -> dict[str, tf.Tensor]:
    """Return all layers' weights by their names in a layer, matrices in `dtype`, norms and biases in float32."""
    names = ["norms", "q", "kv", "out", "wi", "wo"]
    names += ["cross_q", "cross_kv"] if stack == "decoder" else []
    names += ["relative_bias"] if config.bias_in_every_layer else []
    whole = {name: weights[f"{stack}.{name}"] for name in names}
    return {
        name: tf.convert_to_tensor(weight) if name in _WIDE else cast_weight(weight, dtype)
        for name, weight in whole.items()
    }


def unstack_layers(
    stacked: Mapping[str, tf.Tensor], *, parts: Collection[str] = _PARTS, first: int = 0
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
    return {name: tf.unstack(value) if name in _PARTS else value for name, value in w.items()}


def shift_right(labels: tf.Tensor, config: ModelConfig, *, segment_ids: tf.Tensor | None = None) -> tf.Tensor:
    """Return decoder inputs for labels: the previous target, or a segment's start token; -100 becomes padding."""
    start = tf.fill([labels.shape[0], 1], tf.constant(config.decoder_start_token_id, labels.dtype))
    shifted = tf.concat([start, labels[:, :-1]], axis=1)
    if segment_ids is not None:
        begins = tf.concat([segment_ids[:, :1] > 0, segment_ids[:, 1:] != segment_ids[:, :-1]], axis=1)
        shifted = tf.where(begins, start, shifted)
    return tf.where(shifted < 0, tf.constant(config.pad_token_id, labels.dtype), shifted)


def key_mask(attention_mask: tf.Tensor) -> tf.Tensor:
    """Return bool[batch, 1, 1, keys] from int32[batch, keys]: each query may attend to tokens that are not padding."""
    return (attention_mask > 0)[:, None, None, :]


def same_segment(queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Return bool[batch, 1, queries, keys]: a token attends only to its own packed example, padding to padding."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def classify(
    weights: Weights,
    config: ModelConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout_seed: tf.Tensor | None = None,
    remat: bool = False,
) -> tf.Tensor:
    """Return the logits of the classes: float32[batch, 1, classes], as of one target position; of tags, at each token.

    batch: `input_ids` and `attention_mask`, int32[batch, length]; the mask is 0 for padding. The other arguments are as
    in `forward`.
    """
    dropout, mask = Dropout(config.dropout_rate, dropout_seed), batch["attention_mask"]
    x = encode(weights, config, batch["input_ids"], mask, dtype=dtype, dropout=dropout, remat=remat)
    matrix, bias = (tf.convert_to_tensor(weights[f"head.{name}"]) for name in ("classifier", "classifier_bias"))
    if config.target == "tags":
        return tf.matmul(tf.cast(x, tf.float32), matrix) + bias
    return (tf.matmul(mean_of_tokens(x, mask), matrix) + bias)[:, None, :]

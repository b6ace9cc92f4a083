"""Compute a T5's or a T5Gemma's forward pass from weights and tokens to logits, in plain TensorFlow.

The config's `traits` hold the differences between T5 and T5Gemma. T5Gemma rotates queries and keys instead of adding biases to
scores. Some of its layers attend to a window, and a norm precedes and follows each part of a layer (Gemma 2,
arXiv:2408.00118, section 2). In T5Gemma 2's decoder one attention covers the targets so far and the input; keys of the input
are not rotated.

`head` adds a classification head to T5's encoder: one matrix after the mean of the outputs of a text's tokens.
T5ForTokenClassification of `transformers` has the same weights and gives logits for each token. Their mean over the tokens of
a text equals the logits here.

Weights are a dict, name → tensor or variable, with the shapes in `weight_layout.weight_layouts`. All shapes are static.
With `dtype=tf.bfloat16`, both sides of every product, activations and the residual stream are bfloat16. Norms, softmax, logits,
loss and the weights themselves are float32. With float32 every product multiplies in float32 (`lowering.lower`).
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import tensorflow as tf

from t5prep.training.model.architecture import FEED_FORWARDS, ModelConfig
from t5prep.training.model.attention import multi_head_attention, soft_cap
from t5prep.training.model.layers import (
    ComputeOptions,
    Dropout,
    cast_weight,
    feed_forward,
    last_matrix,
    masked,
    mean_of_tokens,
    rms_norm,
    run_layers,
    scores_by_table,
)
from t5prep.training.model.positions import Angles, AttentionSpan, either, near, relative_bias, rotary_angles
from t5prep.training.model.weight_layout import PARTS

Weights = Mapping[str, tf.Tensor]
LayerWeights = Mapping[str, tf.Tensor]  # the variables in PARTS are lists of tensors

_NAMES = ("norms", "head_norms", "q", "kv", "out", "wi", "wo", "cross_q", "cross_kv")  # a layer lacks some of these
# Variables that stay in float32 whatever the dtype of the matrices.
_WIDE = frozenset({"norms", "head_norms", "relative_bias"})

# The first dropout site of each stack, and the sites of a layer: 4 for each attention, and 8 for its vectors.
ENCODER_SITES, DECODER_SITES, SITES_PER_LAYER = 0, 1 << 16, 16


def forward(
    weights: Weights, config: ModelConfig, batch: Mapping[str, tf.Tensor], options: ComputeOptions
) -> tf.Tensor:
    """Return the logits of every target position, float32[batch, target_length, vocab_size]; `batch`: see `forward.forward`."""
    encoded = encode(weights, config, batch, options)
    segments, label_segments = batch.get("input_segment_ids"), batch.get("label_segment_ids")
    ids = shift_right(batch["labels"], config, segment_ids=label_segments)
    length, positions = ids.shape[1], None
    self_mask = (tf.range(length)[:, None] >= tf.range(length)[None, :])[None, None]
    if config.traits.rotations:  # T5Gemma's targets may be long, and `near` stores no matrix of length × length
        self_mask = near(ids, length, 0)
    if label_segments is not None:
        self_mask &= same_segment(label_segments, label_segments)
    if config.traits.rotations and label_segments is not None:
        earlier = self_mask & near(ids, length, -1)
        # The position of each token in its packed example, from 0.
        positions = tf.reduce_sum(tf.cast(earlier[:, 0], tf.int32), axis=-1)
    cross = token_mask(batch["attention_mask"], segments, queries=label_segments)
    spans = _attention_spans(config, ids, self_mask, window=config.traits.decoder_window, positions=positions)
    if config.traits.merged:
        spans = [_with_input(span, cross, inputs=encoded.shape[1]) for span in spans]
    x = embed(weights, config, "decoder", ids, dtype=options.dtype)
    x = run_stack(weights, config, "decoder", x, spans=spans, encoded=encoded, cross=cross, options=options)
    return soft_cap(logits(weights, config, x), config.traits.logit_cap)


def encode(weights: Weights, config: ModelConfig, batch: Mapping[str, tf.Tensor], options: ComputeOptions) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, input_length, d_model]. Arguments as in `forward`."""
    ids = batch["input_ids"]
    mask = token_mask(batch["attention_mask"], batch.get("input_segment_ids"))
    spans = _attention_spans(config, ids, mask, window=config.traits.encoder_window)
    x = embed(weights, config, "encoder", ids, dtype=options.dtype)
    return run_stack(weights, config, "encoder", x, spans=spans, options=options)


def angles_of(config: ModelConfig, length: int) -> list[Angles]:
    """Return the angles of rotation for full layers and for layers with a window; an empty list for a model without rotation."""
    return [rotary_angles(length, config.d_kv, theta=theta, factor=factor) for theta, factor in config.traits.rotations]


def _attention_spans(
    config: ModelConfig,
    ids: tf.Tensor,
    mask: tf.Tensor,
    *,
    window: tuple[int, int],
    positions: tf.Tensor | None = None,
) -> list[AttentionSpan]:
    """Return the mask and the angles of full layers, and those of layers with a window.

    mask: the mask of full layers. window: the numbers of tokens before and after a query. positions: int32[batch, length],
    the position of each token in its packed example; None for positions in the row.
    """
    angles: list[tf.Tensor] = [*angles_of(config, ids.shape[1])] if config.traits.rotations else [None, None]
    if positions is not None:
        angles = [tuple(tf.gather(tensor, positions) for tensor in kind) for kind in angles]
    masks = (mask, mask if config.traits.full_every == 1 else mask & near(ids, *window))
    return [
        AttentionSpan(layer_mask, layer_angles, layer_angles)
        for layer_mask, layer_angles in zip(masks, angles, strict=True)
    ]


def _with_input(span: AttentionSpan, cross: tf.Tensor, *, inputs: int) -> AttentionSpan:
    """Return the span of a merged attention, whose keys are the decoder's own tokens followed by the input.

    cross: the mask over the input; inputs: the length of the input. Keys of the input get an angle of 0: cosine 1, sine 0.
    """
    rows, queries = max(span.mask.shape[0], cross.shape[0]), span.mask.shape[2]
    masks = (tf.broadcast_to(mask, [rows, 1, queries, mask.shape[3]]) for mask in (span.mask, cross))
    assert span.key_angles is not None
    cosines, sines = span.key_angles
    still = [*cosines.shape[:-2], inputs, cosines.shape[-1]]
    key_angles = (tf.concat([cosines, tf.ones(still)], axis=-2), tf.concat([sines, tf.zeros(still)], axis=-2))
    return AttentionSpan(tf.concat([*masks], axis=3), span.query_angles, key_angles)


def norm_of(config: ModelConfig) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return the model's norm as a function of x and a scale. Gemma stores scales minus one, so 1 is added there."""
    norm = functools.partial(rms_norm, epsilon=config.layer_norm_epsilon)
    if not config.traits.normed_after:
        return norm
    return lambda x, scale: norm(x, 1.0 + tf.convert_to_tensor(scale))


def split_norms(scales: Sequence[tf.Tensor], config: ModelConfig) -> tuple[Sequence[tf.Tensor], list[tf.Tensor]]:
    """Return the scales of the norms before a layer's parts, and for each part the function that norms its output.

    In a T5 no norm follows a part, so that function returns its argument.
    """
    if not config.traits.normed_after:
        return scales, [lambda x: x] * len(scales)
    norm = norm_of(config)
    return scales[::2], [functools.partial(lambda scale, x: norm(x, scale), scale) for scale in scales[1::2]]


def has_shared_bias(config: ModelConfig) -> bool:
    """Check whether all layers of a stack share one table of relative position biases."""
    return not (config.traits.rotations or config.bias_in_every_layer)


def run_stack(
    weights: Weights,
    config: ModelConfig,
    stack: str,
    x: tf.Tensor,
    *,
    spans: Sequence[AttentionSpan],
    encoded: tf.Tensor | None = None,
    cross: tf.Tensor | None = None,
    options: ComputeOptions,
) -> tf.Tensor:
    """Return x, [batch, length, width], after all layers of `stack` ("encoder" or "decoder") and its final norm.

    spans: the attention span of full layers, and of layers with a window. encoded, cross: for a decoder, the encoder's output and the
    mask over it.
    """
    traits, size, norm = config.traits, config.sizes(stack), norm_of(config)
    is_merged = traits.merged and encoded is not None
    bias_of = functools.partial(
        relative_bias,
        queries=x.shape[1],
        keys=x.shape[1],
        bidirectional=stack == "encoder",
        max_distance=config.relative_attention_max_distance,
    )
    biases = [bias_of(tf.convert_to_tensor(weights[f"{stack}.relative_bias"]))] if has_shared_bias(config) else []

    def attend_to(
        w: LayerWeights,
        x: tf.Tensor,
        source: tf.Tensor,
        *,
        span: AttentionSpan,
        bias: tf.Tensor | None,
        dropout_site: int | tf.Tensor,
        attention_index: int = 0,
    ) -> tf.Tensor:
        """Return the attention of x over `source`, with the weights `w` of a layer.

        attention_index: 0 for self-attention, 1 for cross-attention.
        """
        prefix = ("", "cross_")[attention_index]
        return multi_head_attention(
            x,
            source,
            (w[f"{prefix}q"], *w[f"{prefix}kv"], w["out"][attention_index]),
            heads=size.heads,
            span=span,
            scale=traits.score_scale,
            dropout=options.dropout,
            dropout_site=dropout_site,
            bias=bias,
            norms=[1.0 + scale for scale in w.get("head_norms", ())],
            epsilon=config.layer_norm_epsilon,
            cap=traits.score_cap,
        )

    def run_layer(
        x: tf.Tensor, shared: Sequence[tf.Tensor], stacked: Mapping[str, tf.Tensor], number: int | tf.Tensor
    ) -> tf.Tensor:
        """Return x after layer `number`. shared: the encoder's output (in a decoder), then the biases that all layers share."""
        w, site = in_parts(stacked), site_of(stack, number)
        bias = shared[-1] if biases else bias_of(w["relative_bias"]) if "relative_bias" in w else None
        pre_scales, post_norms = split_norms(w["norms"], config)
        *outs, inner, last = options.dropout.masks(
            x.shape[0], [size.width] * (len(pre_scales) - 1) + [size.hidden, size.width], x.dtype, site=site + 8
        )
        normed = norm(x, pre_scales[0])
        source = tf.concat([normed, shared[0]], axis=1) if is_merged else normed
        span = either(traits.is_full(number), *spans)
        x += masked(post_norms[0](attend_to(w, normed, source, span=span, bias=bias, dropout_site=site)), outs[0])
        if encoded is not None and not is_merged:
            across = attend_to(
                w,
                norm(x, pre_scales[1]),
                shared[0],
                span=AttentionSpan(cross),
                bias=None,
                dropout_site=site + 4,
                attention_index=1,
            )
            x += masked(post_norms[1](across), outs[1])
        activation = FEED_FORWARDS[config.feed_forward_proj]
        hidden = feed_forward(norm(x, pre_scales[-1]), w["wi"], w["wo"], activation=activation, mask=inner)
        return x + masked(post_norms[-1](hidden), last)

    shared = [*([] if encoded is None else [encoded]), *biases]
    stacked = stacked_weights(weights, config, stack, dtype=x.dtype)
    x = options.dropout(x, site=site_of(stack, -1))
    x = run_layers(run_layer, x, shared, stacked, remat=options.remat, first=config.computed(stack))
    return options.dropout(norm(x, weights[f"{stack}.final_norm"]), site=site_of(stack, -1) + 1)


def site_of(stack: str, number: int | tf.Tensor) -> int | tf.Tensor:
    """Return the first dropout site of layer `number`; for -1 that of the two sites before and after all layers."""
    return (ENCODER_SITES if stack == "encoder" else DECODER_SITES) + (number + 1) * SITES_PER_LAYER


def embed(weights: Weights, config: ModelConfig, stack: str, ids: tf.Tensor, *, dtype: tf.DType) -> tf.Tensor:
    """Return the embeddings of `ids`, int32[batch, length], by the table of `stack`: dtype[batch, length, width]."""
    table = tf.convert_to_tensor(weights[config.traits.table(stack)])
    x = tf.gather(table, ids)
    if config.traits.scales_embeddings:
        x *= float(table.shape[1]) ** 0.5
    if config.traits.eoi_token_id >= 0:
        x = tf.where((ids == config.traits.eoi_token_id)[..., None], tf.convert_to_tensor(weights["eoi_embedding"]), x)
    return tf.cast(x, dtype)


def logits(weights: Weights, config: ModelConfig, decoded: tf.Tensor) -> tf.Tensor:
    """Return scores of the whole vocabulary, float32[..., vocab_size], for decoder outputs dtype[..., d_model]."""
    return scores_by_table(before_logits(config, decoded), output_table(weights, config))


def before_logits(config: ModelConfig, decoded: tf.Tensor) -> tf.Tensor:
    """Return decoder outputs, dtype[..., d_model], scaled for the output table, if the model scales them (T5 1.0)."""
    if not config.scale_decoder_outputs:
        return decoded
    return tf.cast(tf.cast(decoded, tf.float32) * config.d_model**-0.5, decoded.dtype)


def output_table(weights: Weights, config: ModelConfig) -> tf.Tensor:
    """Return the output embeddings, float32[vocab_size, d_model]: logits are products of decoder outputs with their rows."""
    return tf.convert_to_tensor(weights[config.output_table])


def stacked_weights(weights: Weights, config: ModelConfig, stack: str, *, dtype: tf.DType) -> dict[str, tf.Tensor]:
    """Return the stacked weights of a stack by their names without the stack's; matrices in `dtype`, others in float32."""
    names = [*_NAMES, *(["relative_bias"] if config.bias_in_every_layer else [])]
    stack_weights = {name: weights[f"{stack}.{name}"] for name in names if f"{stack}.{name}" in weights}
    return {
        name: tf.convert_to_tensor(weight) if name in _WIDE else cast_weight(weight, dtype)
        for name, weight in stack_weights.items()
    }


def in_parts(w: Mapping[str, tf.Tensor], *, parts: Collection[str] = PARTS) -> LayerWeights:
    """Return one layer's weights `w` with each variable in `parts` unstacked to a list of its weights."""
    return {name: tf.unstack(value) if name in parts else value for name, value in w.items()}


def shift_right(labels: tf.Tensor, config: ModelConfig, *, segment_ids: tf.Tensor | None = None) -> tf.Tensor:
    """Return decoder inputs for labels, int32[batch, length]: the previous label, or the start token at each beginning.

    segment_ids: int32[batch, length] for packed rows, in which each example begins with the start token. A label of -100
    becomes padding.
    """
    start = tf.fill([labels.shape[0], 1], tf.constant(config.decoder_start_token_id, labels.dtype))
    shifted = tf.concat([start, labels[:, :-1]], axis=1)
    if segment_ids is not None:
        begins = tf.concat([segment_ids[:, :1] > 0, segment_ids[:, 1:] != segment_ids[:, :-1]], axis=1)
        shifted = tf.where(begins, start, shifted)
    return tf.where(shifted < 0, tf.constant(config.pad_token_id, labels.dtype), shifted)


def token_mask(attention_mask: tf.Tensor, segments: tf.Tensor | None, *, queries: tf.Tensor | None = None) -> tf.Tensor:
    """Return a mask, bool[batch, 1, queries or 1, keys], of the keys that each query may attend to.

    With `segments`, int32[batch, keys], these are the keys of the query's packed example, else all keys without padding.
    queries: the segments of the queries, if they differ from those of the keys, as in cross-attention.
    """
    if segments is None:
        return key_mask(attention_mask)
    return same_segment(segments if queries is None else queries, segments)


def key_mask(attention_mask: tf.Tensor) -> tf.Tensor:
    """Return a mask, bool[batch, 1, 1, keys], of the keys that are not padding. attention_mask: int32[batch, keys]."""
    return (attention_mask > 0)[:, None, None, :]


def same_segment(queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Return a mask, bool[batch, 1, queries, keys], of the pairs of tokens that have the same segment id.

    queries, keys: segment ids, int32[batch, length]. Padding, segment 0, attends to padding, so no row of scores is empty.
    """
    return queries[:, None, :, None] == keys[:, None, None, :]


def head(weights: Weights, config: ModelConfig, x: tf.Tensor, tokens: tf.Tensor, *, dropout: Dropout) -> tf.Tensor:
    """Return the logits of the classes, float32[batch, 1, classes]; for tags float32[batch, length, classes].

    x: the output of `encode`; tokens: int32[batch, length], 0 for padding. T5's head has no dropout, so `dropout` is not used.
    """
    if config.objective.target.is_aligned:
        return last_matrix(weights, tf.cast(x, tf.float32))
    return last_matrix(weights, mean_of_tokens(x, tokens))[:, None, :]

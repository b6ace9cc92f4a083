"""Compute a T5Gemma or the text half of a T5Gemma 2, from weights and tokens to logits, and its decoder step by step.

Each sublayer is normed before and after (Gemma 2, arXiv:2408.00118, section 2). Dtypes are as in `t5`. In T5Gemma 2's decoder
queries attend to the targets so far and to the input at once; keys of the input are not rotated.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from t5prep.train.model.architecture import FEED_FORWARDS
from t5prep.train.model.attention import MASKED, Heads, attend, capped, near, product, rotary_angles, rotate
from t5prep.train.model.decoding import Cache, Writer
from t5prep.train.model.layers import Dropout, cast_weight, feed_forward, loop_over_layers, masked, rms_norm
from t5prep.train.model.t5 import (
    DECODER_SITES,
    ENCODER_SITES,
    SITES_PER_LAYER,
    LayerWeights,
    Weights,
    key_mask,
    same_segment,
    shift_right,
    unstack_layers,
)
from t5prep.train.model.t5gemma import T5GemmaConfig

_NAMES = ("norms", "head_norms", "q", "kv", "cross_q", "cross_kv", "out", "wi", "wo")
_PARTS = frozenset({"norms", "head_norms", "kv", "cross_kv", "out", "wi"})  # those that hold several of a layer
_WIDE = ("norms", "head_norms")  # those in float32 for any dtype of the matrices

Angles = tuple[tf.Tensor, tf.Tensor]  # cosines and sines


class Reach(NamedTuple):
    """Say what a kind of layer attends to, bool[batch or 1, 1, queries, keys], and how it rotates queries and keys."""

    mask: tf.Tensor
    of_queries: Angles
    of_keys: Angles


def forward(
    weights: Weights,
    config: T5GemmaConfig,
    batch: Mapping[str, tf.Tensor],
    *,
    dtype: tf.DType = tf.float32,
    dropout_seed: tf.Tensor | None = None,
    remat: bool = False,
) -> tf.Tensor:
    """Return the logits of every target position with teacher forcing; arguments as for `t5.forward`."""
    dropout = Dropout(config.dropout_rate, dropout_seed)
    segments, label_segments = batch.get("input_segment_ids"), batch.get("label_segment_ids")
    tokens = batch["attention_mask"]
    encoded = encode(
        weights, config, batch["input_ids"], tokens, segment_ids=segments, dtype=dtype, dropout=dropout, remat=remat
    )
    ids = shift_right(batch["labels"], config, segment_ids=label_segments)
    length = ids.shape[1]
    own, positions = near(ids, length, 0), None
    cross = key_mask(tokens)
    if segments is not None and label_segments is not None:
        own &= same_segment(label_segments, label_segments)
        cross = same_segment(label_segments, segments)
        earlier = own & near(ids, length, -1)
        positions = tf.reduce_sum(tf.cast(earlier[:, 0], tf.int32), axis=-1)  # of each token in its own example
    reaches = []
    for mask, angles in zip((own, own & near(ids, config.window - 1, 0)), _angles(config, length), strict=True):
        angles = angles if positions is None else _gathered(angles, positions)
        reaches.append(Reach(mask, angles, angles))
    if config.merged:
        reaches = [_with_input(reach, cross, inputs=encoded.shape[1]) for reach in reaches]
    x = embed(weights, config, "decoder", ids, dtype=dtype)
    x = run_stack(
        weights, config, "decoder", x, reaches=reaches, encoded=encoded, cross=cross, dropout=dropout, remat=remat
    )
    flat = tf.matmul(
        tf.reshape(tf.cast(x, tf.float32), [-1, x.shape[2]]), _output_table(weights, config), transpose_b=True
    )
    return capped(tf.reshape(flat, [*x.shape[:2], flat.shape[1]]), config.logit_cap)


def encode(
    weights: Weights,
    config: T5GemmaConfig,
    input_ids: tf.Tensor,
    attention_mask: tf.Tensor,
    *,
    segment_ids: tf.Tensor | None = None,
    dtype: tf.DType = tf.float32,
    dropout: Dropout = Dropout(0.0, None),  # noqa: B008 - frozen
    remat: bool = False,
) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, input_length, d_model]. Arguments as in `t5.forward`."""
    mask = key_mask(attention_mask) if segment_ids is None else same_segment(segment_ids, segment_ids)
    # T5Gemma 2's window is split in two halves, T5Gemma's is as long on either side (transformers, modeling_t5gemma2.py
    # and masking_utils.py).
    sides = ((config.window + 1) // 2 - 1, config.window // 2) if config.merged else (config.window, config.window)
    reaches = [
        Reach(own, angles, angles)
        for own, angles in zip((mask, mask & near(input_ids, *sides)), _angles(config, input_ids.shape[1]), strict=True)
    ]
    x = embed(weights, config, "encoder", input_ids, dtype=dtype)
    return run_stack(weights, config, "encoder", x, reaches=reaches, dropout=dropout, remat=remat)


def embed(weights: Weights, config: T5GemmaConfig, stack: str, ids: tf.Tensor, *, dtype: tf.DType) -> tf.Tensor:
    """Return the embeddings of ids, int32[batch, length], times the root of their width: dtype[batch, length, width]."""
    table = tf.convert_to_tensor(weights["shared" if config.merged else f"{stack}.shared"])
    x = tf.gather(table, ids) * float(table.shape[1]) ** 0.5
    if config.merged:
        x = tf.where((ids == config.eoi_token_id)[..., None], tf.convert_to_tensor(weights["eoi_embedding"]), x)
    return tf.cast(x, dtype)


def run_stack(
    weights: Weights,
    config: T5GemmaConfig,
    stack: str,
    x: tf.Tensor,
    *,
    reaches: Sequence[Reach],
    encoded: tf.Tensor | None = None,
    cross: tf.Tensor | None = None,
    dropout: Dropout,
    remat: bool,
) -> tf.Tensor:
    """Apply all layers of the "encoder" or "decoder" (with `encoded`) to x; `reaches`: of full layers and of sliding ones."""
    first_site = ENCODER_SITES if stack == "encoder" else DECODER_SITES
    shared = [] if encoded is None else [encoded]
    run = functools.partial(run_layer, config=config, stack=stack, cross=cross, dropout=dropout)
    stacked = stacked_weights(weights, stack, dtype=x.dtype)
    x = dropout(x, site=first_site)
    if remat:

        def run_any(
            x: tf.Tensor, shared: Sequence[tf.Tensor], w: Mapping[str, tf.Tensor], number: tf.Tensor
        ) -> tf.Tensor:
            is_full = (number + 1) % config.full_every == 0
            reach = tf.nest.map_structure(lambda one, other: tf.where(is_full, one, other), *reaches)
            own = {name: tf.unstack(value) if name in _PARTS else value for name, value in w.items()}
            return run(x, own, shared, reach=reach, site=first_site + (number + 1) * SITES_PER_LAYER)

        x = loop_over_layers(run_any, x, shared, stacked)
    else:
        for number, w in enumerate(unstack_layers(stacked, parts=_PARTS, first=config.computed(stack))):
            reach = reaches[0 if (number + 1) % config.full_every == 0 else 1]
            x = run(x, w, shared, reach=reach, site=first_site + (number + 1) * SITES_PER_LAYER)
    return dropout(_norm(x, weights[f"{stack}.final_norm"], config), site=first_site + 1)


def run_layer(
    x: tf.Tensor,
    w: LayerWeights,
    shared: Sequence[tf.Tensor],
    *,
    config: T5GemmaConfig,
    stack: str,
    reach: Reach,
    cross: tf.Tensor | None,
    dropout: Dropout,
    site: int | tf.Tensor,
) -> tf.Tensor:
    """Apply one layer to x, [batch, length, width]; `shared` holds the encoder's output, for the decoder."""
    size = config.sizes(stack)
    crosses = bool(shared) and not config.merged
    widths = [size.width] * (2 if crosses else 1) + [size.hidden, size.width]
    *outs, inner, last = dropout.masks(x.shape[0], widths, x.dtype, site=site + 8)
    pre, post, *norms = w["norms"]
    normed = _norm(x, pre, config)
    source = tf.concat([normed, *shared], axis=1) if shared and config.merged else normed
    attention = functools.partial(_attention, w, config=config, stack=stack, dropout=dropout)
    attended = attention(normed, source, reach=reach, mask=reach.mask, site=site)
    x += masked(_norm(attended, post, config), outs[0])
    if crosses:
        pre, post, *norms = norms
        attended = attention(_norm(x, pre, config), shared[0], reach=None, mask=cross, site=site + 4)
        x += masked(_norm(attended, post, config), outs[1])
    pre, post = norms
    activation = FEED_FORWARDS[config.feed_forward_proj]
    hidden = feed_forward(_norm(x, pre, config), w["wi"], w["wo"], activation=activation, mask=inner)
    return x + masked(_norm(hidden, post, config), last)


def _attention(
    w: LayerWeights,
    x: tf.Tensor,
    source: tf.Tensor,
    *,
    config: T5GemmaConfig,
    stack: str,
    reach: Reach | None,
    mask: tf.Tensor,
    dropout: Dropout,
    site: int | tf.Tensor,
) -> tf.Tensor:
    """Return attention of x over the source, with rotated queries and keys where there is a `reach`, else across."""
    size = config.sizes(stack)
    prefix, which = ("cross_", 1) if reach is None else ("", 0)
    heads = Heads.of(size.heads, queries=x.shape[1], keys=source.shape[1])
    query = heads.queries(x, w[f"{prefix}q"])
    key, value = (heads.grouped_keys(source, part, number=size.kv_heads) for part in w[f"{prefix}kv"])
    if config.merged:
        of_queries, of_keys = (1.0 + scale for scale in w["head_norms"])
        query = heads.normed(query, of_queries, epsilon=config.layer_norm_epsilon, queries=True)
        key = heads.normed(key, of_keys, epsilon=config.layer_norm_epsilon)
    if reach is not None:
        query, key = heads.rotated(query, *reach.of_queries, queries=True), heads.rotated(key, *reach.of_keys)
    query *= tf.constant(config.query_scalar**-0.5, x.dtype)
    dropped = dropout.mask(heads.shape_of_keys(x.shape[0], source.shape[1]), x.dtype, site=site)
    key, value = heads.for_queries(key), heads.for_queries(value)
    attended, _ = attend(heads, query, key, value, bias=None, mask=mask, dropped=dropped, cap=config.score_cap)
    return heads.join(attended, w["out"][which])


def _norm(x: tf.Tensor, scale: Any, config: T5GemmaConfig) -> tf.Tensor:
    """Return Gemma's norm, whose scale is kept as what is added to one."""
    return rms_norm(x, 1.0 + tf.convert_to_tensor(scale), epsilon=config.layer_norm_epsilon)


def _angles(config: T5GemmaConfig, length: int) -> tuple[Angles, Angles]:
    """Return the angles of full layers and of sliding ones."""
    return (
        rotary_angles(length, config.d_kv, theta=config.full_theta, factor=config.full_factor),
        rotary_angles(length, config.d_kv, theta=config.sliding_theta),
    )


def _gathered(angles: Angles, positions: tf.Tensor) -> Angles:
    cosines, sines = (tf.gather(one, positions) for one in angles)
    return cosines, sines


def _with_input(reach: Reach, cross: tf.Tensor, *, inputs: int) -> Reach:
    """Return what the decoder's own tokens and the input together give: each query sees its input, whose keys stay unrotated."""
    rows, queries = max(reach.mask.shape[0], cross.shape[0]), reach.mask.shape[2]
    masks = (tf.broadcast_to(one, [rows, 1, queries, one.shape[3]]) for one in (reach.mask, cross))
    cosines, sines = reach.of_keys
    still = [*cosines.shape[:-2], inputs, cosines.shape[-1]]
    of_keys = (tf.concat([cosines, tf.ones(still)], axis=-2), tf.concat([sines, tf.zeros(still)], axis=-2))
    return Reach(tf.concat([*masks], axis=3), reach.of_queries, of_keys)


def _output_table(weights: Weights, config: T5GemmaConfig) -> tf.Tensor:
    return tf.convert_to_tensor(weights["shared" if config.merged else "decoder.shared"])


def stacked_weights(weights: Weights, stack: str, *, dtype: tf.DType) -> dict[str, tf.Tensor]:
    """Return all layers' weights by their names in a layer, matrices in `dtype`, norms in float32."""
    whole = {name: weights[f"{stack}.{name}"] for name in _NAMES if f"{stack}.{name}" in weights}
    return {
        name: tf.convert_to_tensor(weight) if name in _WIDE else cast_weight(weight, dtype)
        for name, weight in whole.items()
    }


# Generation: the decoder one token at a time.


def decoder_layers(weights: Weights, config: T5GemmaConfig, *, dtype: tf.DType) -> list[LayerWeights]:
    """Return each decoder layer's weights, as `decoding.decoder_layers` does."""
    return unstack_layers(stacked_weights(weights, "decoder", dtype=dtype), parts=_PARTS)


def init_cache(layers: Sequence[LayerWeights], config: T5GemmaConfig, encoded: tf.Tensor, *, length: int) -> Cache:
    """Return a cache with `length` empty target positions, and the keys and values of the input, computed once."""
    number = config.sizes("decoder").kv_heads
    empty = tf.zeros([encoded.shape[0], number, length, config.d_kv], encoded.dtype)
    crosses = []
    for w in layers:
        key, value = (
            tf.transpose(tf.reshape(tf.matmul(encoded, part), [*encoded.shape[:2], number, config.d_kv]), [0, 2, 1, 3])
            for part in w["kv" if config.merged else "cross_kv"]
        )
        crosses.append((_norm(key, w["head_norms"][1], config) if config.merged else key, value))
    cross_keys, cross_values = zip(*crosses, strict=True)
    none = (empty,) * len(layers)
    return Cache(none, none, cross_keys, cross_values)


def decode_step(
    weights: Weights,
    layers: Sequence[LayerWeights],
    config: T5GemmaConfig,
    tokens: tf.Tensor,
    cache: Cache,
    *,
    position: tf.Tensor | int,
    attention_mask: tf.Tensor,
) -> tuple[tf.Tensor, Cache]:
    """Return the logits of the next token, float32[vocab_size, batch], and the cache; arguments as for `decoding.decode_step`."""
    size, length, dtype = config.sizes("decoder"), cache.keys[0].shape[2], cache.keys[0].dtype
    rows, places = tokens.shape[0], tf.range(length)
    here = (places == position)[None, None, :, None]
    seen = places <= position
    masks = [mask[None, None, None] for mask in (seen, seen & (places > position - config.window))]
    angles = [[one[position][None] for one in kind] for kind in _angles(config, length)]
    offered = key_mask(attention_mask)
    in_heads = functools.partial(_in_heads, rows=rows, number=size.kv_heads, width=config.d_kv)
    attend_to = functools.partial(_attend, cap=config.score_cap)
    scale = tf.constant(config.query_scalar**-0.5, dtype)
    x = embed(weights, config, "decoder", tokens[:, None], dtype=dtype)
    all_keys, all_values = [], []
    for number, w in enumerate(layers):
        kind = 0 if (number + 1) % config.full_every == 0 else 1
        pre, post, *norms = w["norms"]
        normed = _norm(x, pre, config)
        query, key, value = (in_heads(tf.matmul(normed, matrix)) for matrix in (w["q"], *w["kv"]))
        if config.merged:
            query, key = (_norm(one, own, config) for one, own in zip((query, key), w["head_norms"], strict=True))
        query, key = (rotate(one, *angles[kind], axis=3) for one in (query, key))
        all_keys.append(tf.where(here, key, cache.keys[number]))
        all_values.append(tf.where(here, value, cache.values[number]))
        of_targets = (all_keys[-1], all_values[-1], masks[kind])
        of_input = (cache.cross_keys[number], cache.cross_values[number], offered)
        attended = attend_to(query * scale, [of_targets, of_input] if config.merged else [of_targets])
        x += _norm(tf.matmul(attended, w["out"][0]), post, config)
        if not config.merged:
            pre, post, *norms = norms
            query = in_heads(tf.matmul(_norm(x, pre, config), w["cross_q"]))
            x += _norm(tf.matmul(attend_to(query * scale, [of_input]), w["out"][1]), post, config)
        pre, post = norms
        activation = FEED_FORWARDS[config.feed_forward_proj]
        hidden = feed_forward(_norm(x, pre, config), w["wi"], w["wo"], activation=activation)
        x += _norm(hidden, post, config)
    x = tf.cast(_norm(x, weights["decoder.final_norm"], config)[:, 0], tf.float32)
    written = cache._replace(keys=tuple(all_keys), values=tuple(all_values))
    logits = tf.matmul(_output_table(weights, config), x, transpose_b=True)
    return capped(logits, config.logit_cap), written


def _in_heads(x: tf.Tensor, *, rows: int, number: int, width: int) -> tf.Tensor:
    """Return [batch, 1, heads * d_kv] as [batch, heads of keys, heads of queries that share one, d_kv]."""
    return tf.reshape(x, [rows, number, x.shape[2] // (number * width), width])


def _attend(query: tf.Tensor, sources: Sequence[tuple[tf.Tensor, tf.Tensor, tf.Tensor]], *, cap: float) -> tf.Tensor:
    """Return attention of one query of each row, [batch, 1, heads * d_kv], over keys and values of several sources at once."""
    scores = [tf.where(mask, capped(product("bkgd,bkld->bkgl", query, key), cap), MASKED) for key, _, mask in sources]
    shares = tf.split(tf.nn.softmax(tf.concat(scores, axis=3)), [one.shape[3] for one in scores], axis=3)
    values = zip(shares, sources, strict=True)
    attended = tf.add_n(
        [product("bkgl,bkld->bkgd", tf.cast(share, query.dtype), value) for share, (_, value, _) in values]
    )
    return tf.reshape(tf.cast(attended, query.dtype), [query.shape[0], 1, -1])


WRITER = Writer(forward, encode, decoder_layers, init_cache, decode_step)

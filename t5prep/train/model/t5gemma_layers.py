"""Compute a T5Gemma or the text half of a T5Gemma 2, from weights and tokens to logits, and its decoder step by step.

Each sublayer is normed before and after (Gemma 2, arXiv:2408.00118, section 2). Dtypes are as in `t5`. In T5Gemma 2's decoder
queries attend to the targets so far and to the input at once; keys of the input are not rotated.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from t5prep.train.model.architecture import FEED_FORWARDS
from t5prep.train.model.attention import Heads, attend_grouped, capped
from t5prep.train.model.decoding import (
    Cache,
    Source,
    Writer,
    attend_step,
    cache_of,
    decoder_layers,
    heads_first,
    in_heads,
)
from t5prep.train.model.layers import Dropout, How, feed_forward, masked, rms_norm
from t5prep.train.model.positions import Angles, Reach, either, near, rotary_angles, rotate
from t5prep.train.model.t5 import (
    LayerWeights,
    Weights,
    before_logits,
    key_mask,
    logits,
    output_table,
    run_layers,
    same_segment,
    shift_right,
    token_mask,
)
from t5prep.train.model.t5gemma import T5GemmaConfig


def forward(weights: Weights, config: T5GemmaConfig, batch: Mapping[str, tf.Tensor], how: How) -> tf.Tensor:
    """Return the logits of every target position, as `forward.forward` does."""
    encoded = encode(weights, config, batch, how)
    segments, label_segments = batch.get("input_segment_ids"), batch.get("label_segment_ids")
    ids = shift_right(batch["labels"], config, segment_ids=label_segments)
    length = ids.shape[1]
    own, positions = near(ids, length, 0), None
    cross = token_mask(batch["attention_mask"], segments, queries=label_segments)
    if label_segments is not None:
        own &= same_segment(label_segments, label_segments)
        earlier = own & near(ids, length, -1)
        positions = tf.reduce_sum(tf.cast(earlier[:, 0], tf.int32), axis=-1)  # of each token in its own example
    reaches = []
    for mask, angles in zip((own, own & near(ids, config.window - 1, 0)), _angles(config, length), strict=True):
        angles = angles if positions is None else _gathered(angles, positions)
        reaches.append(Reach(mask, angles, angles))
    if config.merged:
        reaches = [_with_input(reach, cross, inputs=encoded.shape[1]) for reach in reaches]
    x = embed(weights, config, "decoder", ids, dtype=how.dtype)
    x = run_stack(weights, config, "decoder", x, reaches=reaches, encoded=encoded, cross=cross, how=how)
    return capped(logits(weights, config, x), config.logit_cap)


def encode(weights: Weights, config: T5GemmaConfig, batch: Mapping[str, tf.Tensor], how: How) -> tf.Tensor:
    """Return the encoder's output: dtype[batch, input_length, d_model]. Arguments as in `forward`."""
    ids = batch["input_ids"]
    mask = token_mask(batch["attention_mask"], batch.get("input_segment_ids"))
    # T5Gemma 2's window is split in two halves, T5Gemma's is as long on either side (transformers, modeling_t5gemma2.py
    # and masking_utils.py).
    sides = ((config.window + 1) // 2 - 1, config.window // 2) if config.merged else (config.window, config.window)
    reaches = [
        Reach(own, angles, angles)
        for own, angles in zip((mask, mask & near(ids, *sides)), _angles(config, ids.shape[1]), strict=True)
    ]
    x = embed(weights, config, "encoder", ids, dtype=how.dtype)
    return run_stack(weights, config, "encoder", x, reaches=reaches, how=how)


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
    how: How,
) -> tf.Tensor:
    """Apply all layers of the "encoder" or "decoder" (with `encoded`) to x; `reaches`: of full layers and of sliding ones."""
    size, is_merged = config.sizes(stack), config.merged and encoded is not None
    crosses = encoded is not None and not config.merged
    norm = functools.partial(_norm, config=config)

    def run_layer(
        x: tf.Tensor, shared: Sequence[tf.Tensor], w: LayerWeights, number: int | tf.Tensor, site: int | tf.Tensor
    ) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        widths = [size.width] * (2 if crosses else 1) + [size.hidden, size.width]
        *outs, inner, last = how.dropout.masks(x.shape[0], widths, x.dtype, site=site + 8)
        pre, post, *norms = w["norms"]
        normed = norm(x, pre)
        source = tf.concat([normed, *shared], axis=1) if is_merged else normed
        reach = either((number + 1) % config.full_every == 0, *reaches)
        attended = _attention(
            w, normed, source, config=config, stack=stack, reach=reach, dropout=how.dropout, site=site
        )
        x += masked(norm(attended, post), outs[0])
        if crosses:
            pre, post, *norms = norms
            across = functools.partial(_attention, config=config, stack=stack, reach=Reach(cross), dropout=how.dropout)
            x += masked(norm(across(w, norm(x, pre), shared[0], site=site + 4), post), outs[1])
        pre, post = norms
        activation = FEED_FORWARDS[config.feed_forward_proj]
        hidden = feed_forward(norm(x, pre), w["wi"], w["wo"], activation=activation, mask=inner)
        return x + masked(norm(hidden, post), last), shared

    shared = [] if encoded is None else [encoded]
    return run_layers(weights, config, stack, run_layer, x, shared, norm=norm, how=how)


def _attention(
    w: LayerWeights,
    x: tf.Tensor,
    source: tf.Tensor,
    *,
    config: T5GemmaConfig,
    stack: str,
    reach: Reach,
    dropout: Dropout,
    site: int | tf.Tensor,
) -> tf.Tensor:
    """Return attention of x over the source, with rotated queries and keys where `reach` has angles, else across."""
    prefix, which = ("cross_", 1) if reach.of_queries is None else ("", 0)
    heads = Heads.of(config.sizes(stack).heads, queries=x.shape[1], keys=source.shape[1])
    attended = attend_grouped(
        heads,
        x,
        source,
        (w[f"{prefix}q"], *w[f"{prefix}kv"]),
        reach=reach,
        scale=config.query_scalar**-0.5,
        dropout=dropout,
        site=site,
        norms=[1.0 + scale for scale in w.get("head_norms", ())],
        epsilon=config.layer_norm_epsilon,
        cap=config.score_cap,
    )
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
    assert reach.of_keys is not None
    cosines, sines = reach.of_keys
    still = [*cosines.shape[:-2], inputs, cosines.shape[-1]]
    of_keys = (tf.concat([cosines, tf.ones(still)], axis=-2), tf.concat([sines, tf.zeros(still)], axis=-2))
    return Reach(tf.concat([*masks], axis=3), reach.of_queries, of_keys)


# Generation: the decoder one token at a time.


def init_cache(layers: Sequence[LayerWeights], config: T5GemmaConfig, encoded: tf.Tensor, *, length: int) -> Cache:
    """Return a cache with `length` empty target positions, and the keys and values of the input, computed once."""
    number, name = config.sizes("decoder").kv_heads, "kv" if config.merged else "cross_kv"
    pairs = [[heads_first(tf.matmul(encoded, part), number) for part in w[name]] for w in layers]
    if config.merged:
        pairs = [[_norm(key, w["head_norms"][1], config), value] for w, (key, value) in zip(layers, pairs, strict=True)]
    return cache_of(pairs, length=length)


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
    length, dtype = cache.keys[0].shape[2], cache.keys[0].dtype
    places = tf.range(length)
    here = (places == position)[None, None, :, None]
    seen = places <= position
    masks = [mask[None, None, None] for mask in (seen, seen & (places > position - config.window))]
    angles = [[one[position][None] for one in kind] for kind in _angles(config, length)]
    offered = key_mask(attention_mask)
    split = functools.partial(in_heads, heads=config.sizes("decoder").kv_heads, width=config.d_kv)
    attend_to = functools.partial(attend_step, cap=config.score_cap)
    scale = tf.constant(config.query_scalar**-0.5, dtype)
    x = embed(weights, config, "decoder", tokens[:, None], dtype=dtype)
    all_keys, all_values = [], []
    for number, w in enumerate(layers):
        kind = 0 if (number + 1) % config.full_every == 0 else 1
        pre, post, *norms = w["norms"]
        normed = _norm(x, pre, config)
        query, key, value = (split(tf.matmul(normed, matrix)) for matrix in (w["q"], *w["kv"]))
        if config.merged:
            query, key = (_norm(one, own, config) for one, own in zip((query, key), w["head_norms"], strict=True))
        query, key = (rotate(one, *angles[kind], axis=3) for one in (query, key))
        all_keys.append(tf.where(here, key, cache.keys[number]))
        all_values.append(tf.where(here, value, cache.values[number]))
        of_targets = Source(all_keys[-1], all_values[-1], masks[kind])
        of_input = Source(cache.cross_keys[number], cache.cross_values[number], offered)
        attended = attend_to(query * scale, of_targets, *([of_input] if config.merged else []))
        x += _norm(tf.matmul(attended, w["out"][0]), post, config)
        if not config.merged:
            pre, post, *norms = norms
            query = split(tf.matmul(_norm(x, pre, config), w["cross_q"]))
            x += _norm(tf.matmul(attend_to(query * scale, of_input), w["out"][1]), post, config)
        pre, post = norms
        activation = FEED_FORWARDS[config.feed_forward_proj]
        hidden = feed_forward(_norm(x, pre, config), w["wi"], w["wo"], activation=activation)
        x += _norm(hidden, post, config)
    x = before_logits(config, _norm(x, weights["decoder.final_norm"], config)[:, 0])
    written = cache._replace(keys=tuple(all_keys), values=tuple(all_values))
    return capped(tf.matmul(output_table(weights, config), x, transpose_b=True), config.logit_cap), written


WRITER = Writer(forward, encode, decoder_layers, init_cache, decode_step)

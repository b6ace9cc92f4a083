"""Run the decoder one step at a time, with the keys and values of earlier positions in a cache of static shape.

    encoded = encode(weights, config, input_ids, attention_mask, dtype=dtype)
    layers = decoder_layers(weights, config, dtype=dtype)
    cache = init_cache(layers, config, encoded, length=target_length)
    tokens = tf.fill([batch], config.decoder_start_token_id)
    for position in range(target_length):  # a tf.while_loop in a compiled program: every shape stays as it is
        logits, cache = decode_step(
            weights, layers, config, tokens, cache, position=position, attention_mask=attention_mask
        )
        tokens = tf.argmax(logits, axis=0, output_type=tf.int32)

For beams, the batch is rows * beams: repeat `encoded` and `attention_mask` row by row (tf.repeat), and after choosing
beams bring the cache into their order with `reorder_cache`.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from t5prep.train.model.attention import relative_bias, split_heads
from t5prep.train.model.layers import feed_forward, rms_norm
from t5prep.train.model.row_attention import MASKED, product
from t5prep.train.model.t5 import (
    LayerWeights,
    Weights,
    before_logits,
    embed,
    encode,
    key_mask,
    output_table,
    stacked_weights,
    unstack_layers,
)
from t5prep.train.model.t5_config import ModelConfig


class Cache(NamedTuple):
    """Hold each decoder layer's keys and values of targets and of the input: dtype[batch, heads, length, d_kv].

    In this order a step multiplies them where they are: in the order of the projections, [batch, length, heads, d_kv],
    a compiler copies each of them at every step.
    """

    keys: tuple[tf.Tensor, ...]
    values: tuple[tf.Tensor, ...]
    cross_keys: tuple[tf.Tensor, ...]
    cross_values: tuple[tf.Tensor, ...]


def decoder_layers(weights: Weights, config: ModelConfig, *, dtype: tf.DType) -> list[LayerWeights]:
    """Return each decoder layer's weights. Take them before the loop: inside it, every step would copy them."""
    return unstack_layers(stacked_weights(weights, config, "decoder", dtype=dtype))


def init_cache(layers: Sequence[LayerWeights], config: ModelConfig, encoded: tf.Tensor, *, length: int) -> Cache:
    """Return a cache with `length` empty target positions, and the keys and values of the input, computed once.

    encoded: dtype[batch, input_length, d_model], of `t5.encode`; the cache has the same dtype.
    """
    empty = tf.zeros([encoded.shape[0], config.num_heads, length, config.d_kv], encoded.dtype)
    heads_first = (
        [tf.transpose(split_heads(tf.matmul(encoded, part), config.num_heads), [0, 2, 1, 3]) for part in w["cross_kv"]]
        for w in layers
    )
    cross_keys, cross_values = zip(*heads_first, strict=True)
    none = (empty,) * len(layers)
    return Cache(none, none, cross_keys, cross_values)


def decode_step(
    weights: Weights,
    layers: Sequence[LayerWeights],
    config: ModelConfig,
    tokens: tf.Tensor,
    cache: Cache,
    *,
    position: tf.Tensor | int,
    attention_mask: tf.Tensor,
) -> tuple[tf.Tensor, Cache]:
    """Return the logits of the next token, float32[vocab_size, batch], and the cache with this position written.

    The vocabulary comes first, because on a CPU XLA multiplies the table by a few columns three times as fast as a few
    rows by the table's transpose. Work on the logits as they are: XLA turns a transpose that follows into that product.

    tokens: int32[batch], the previous token (the start token at position 0); position: int32 scalar, the same for all
    rows; attention_mask: int32[batch, input_length]; layers: of `decoder_layers`.
    """
    length, dtype = cache.keys[0].shape[2], cache.keys[0].dtype
    offered = key_mask(attention_mask)
    bias_of = functools.partial(
        relative_bias,
        queries=1,
        keys=length,
        first_query=position,
        bidirectional=False,
        max_distance=config.relative_attention_max_distance,
    )
    own = config.bias_in_every_layer
    shared_bias = None if own else bias_of(tf.convert_to_tensor(weights["decoder.relative_bias"]))
    epsilon, heads = config.layer_norm_epsilon, config.num_heads
    here = (tf.range(length) == position)[None, None, :, None]
    seen = (tf.range(length) <= position)[None, None, None, :]
    x = embed(weights, tokens[:, None], dtype=dtype)
    all_keys, all_values = [], []
    for number, w in enumerate(layers):
        normed = rms_norm(x, w["norms"][0], epsilon=epsilon)
        query = split_heads(tf.matmul(normed, w["q"]), heads)
        key, value = (tf.transpose(split_heads(tf.matmul(normed, part), heads), [0, 2, 1, 3]) for part in w["kv"])
        all_keys.append(tf.where(here, key, cache.keys[number]))
        all_values.append(tf.where(here, value, cache.values[number]))
        bias = bias_of(w["relative_bias"]) if own else shared_bias
        x += tf.matmul(_attend(query, all_keys[-1], all_values[-1], bias=bias, mask=seen), w["out"][0])

        query = split_heads(tf.matmul(rms_norm(x, w["norms"][1], epsilon=epsilon), w["cross_q"]), heads)
        cross_key, cross_value = cache.cross_keys[number], cache.cross_values[number]
        x += tf.matmul(_attend(query, cross_key, cross_value, bias=None, mask=offered), w["out"][1])

        x += feed_forward(rms_norm(x, w["norms"][2], epsilon=epsilon), w["wi"], w["wo"])
    x = rms_norm(x, weights["decoder.final_norm"], epsilon=epsilon)
    written = cache._replace(keys=tuple(all_keys), values=tuple(all_values))
    return tf.matmul(output_table(weights, config), before_logits(config, x[:, 0]), transpose_b=True), written


def _attend(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, bias: tf.Tensor | None, mask: tf.Tensor
) -> tf.Tensor:
    """Return attention of one query of each row, [batch, 1, heads * d_kv], over keys with the heads first.

    query: [batch, 1, heads, d_kv]; key, value: [batch, heads, length, d_kv]; bias: float32[heads, 1, length].
    """
    scores = product("bqhd,bhkd->bhqk", query, key)
    scores = tf.where(mask, scores if bias is None else scores + bias, MASKED)
    raised = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
    shares = tf.cast(raised / tf.reduce_sum(raised, axis=-1, keepdims=True), query.dtype)
    attended = tf.cast(product("bhqk,bhkd->bqhd", shares, value), query.dtype)
    return tf.reshape(attended, [query.shape[0], 1, query.shape[2] * query.shape[3]])


def reorder_cache(cache: Cache, rows: tf.Tensor) -> Cache:
    """Return the cache with row rows[i] as its row i. rows: int32[batch].

    Beams of one input have the same keys and values of the input, so these are not reordered.
    """
    return cache._replace(
        keys=tuple(tf.gather(keys, rows) for keys in cache.keys),
        values=tuple(tf.gather(values, rows) for values in cache.values),
    )


class Decoder:
    """Run decoder steps for all beams of a batch, whose inputs are encoded once."""

    def __init__(
        self,
        weights: Weights,
        config: ModelConfig,
        input_ids: tf.Tensor,
        attention_mask: tf.Tensor,
        *,
        max_length: int,
        beams: int,
        dtype: tf.DType,
    ) -> None:
        self.weights, self.config = weights, config
        self.batch, self.beams, self.length = input_ids.shape[0], beams, max_length
        encoded = tf.repeat(encode(weights, config, input_ids, attention_mask, dtype=dtype), beams, axis=0)
        self.attention_mask = tf.repeat(attention_mask, beams, axis=0)
        self.layers = decoder_layers(weights, config, dtype=dtype)
        self.cache = init_cache(self.layers, config, encoded, length=max_length)

    def __call__(self, tokens: tf.Tensor, cache: Cache, at: tf.Tensor) -> tuple[tf.Tensor, Cache]:
        """Return the logits after `tokens`, float32[vocab_size, batch * beams], and the cache with these tokens in it.

        tokens: int32[batch, beams], all at position `at`.
        """
        return decode_step(
            self.weights,
            self.layers,
            self.config,
            tf.reshape(tokens, [self.batch * self.beams]),
            cache,
            position=at,
            attention_mask=self.attention_mask,
        )

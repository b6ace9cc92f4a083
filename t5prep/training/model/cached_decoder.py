"""Run the decoder step by step, with a cache of the keys and values of earlier positions, and choose tokens.

    decoder = Decoder(weights, config, input_ids, attention_mask, max_length=target_length, beams=1, dtype=dtype)
    cache, tokens = decoder.cache, tf.fill([batch, 1], config.decoder_start_token_id)
    for position in range(target_length):  # a tf.while_loop in a compiled program: every shape stays as it is
        logits, cache = decoder(tokens, cache, position)
        tokens = tf.argmax(logits, axis=0, output_type=tf.int32)[:, None]

All shapes are static, so that XLA compiles the whole loop. When beams are chosen, `reorder_cache` brings the cache into
their order.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

from t5prep.options.generation import Generation
from t5prep.training.model.architecture import FEED_FORWARDS, ModelConfig, Traits
from t5prep.training.model.attention import MASKED, soft_cap
from t5prep.training.model.layers import ComputeOptions, feed_forward, product, unstack_layers
from t5prep.training.model.positions import relative_bias, rotate
from t5prep.training.model.t5 import (
    Weights,
    angles_of,
    before_logits,
    embed,
    encode,
    has_shared_bias,
    in_parts,
    key_mask,
    norm_of,
    output_table,
    split_norms,
    stacked_weights,
)

FORBIDDEN = -1e9  # far below any logit and finite, so that differences stay numbers
SLICES = 128  # parts of the vocabulary in `most_likely`; it divides the 32,128 rows of T5's table


def most_likely(scores: tf.Tensor) -> tf.Tensor:
    """Return the index of each column's highest score, int32[rows]; any of the indices if scores are equal.

    scores: float32[vocabulary, rows]. On a CPU, XLA's tf.argmax compares one score at a time. Here the vocabulary is cut into
    slices, whose element-wise maximum is fast. tf.argmax then searches only this maximum, and the slices at its best offset:
    0.9 ms instead of 2.6 ms (docs/decisions/014-generate-on-cpu-with-xla-alone.md).

    >>> most_likely(tf.constant([[0.0, 9.0], [2.0, 1.0], [1.0, 1.0]])).numpy().tolist()
    [1, 0]
    """
    vocabulary, rows = scores.shape
    if vocabulary % SLICES:
        return tf.argmax(scores, axis=0, output_type=tf.int32)
    slices = tf.reshape(scores, [SLICES, vocabulary // SLICES, rows])
    offset = tf.argmax(tf.reduce_max(slices, axis=0), axis=0, output_type=tf.int32)
    slice_numbers = tf.repeat(tf.range(SLICES)[:, None], rows, axis=1)
    places, columns = (tf.repeat(indices[None], SLICES, axis=0) for indices in (offset, tf.range(rows)))
    at_place = tf.gather_nd(slices, tf.stack([slice_numbers, places, columns], axis=-1))
    return tf.argmax(at_place, axis=0, output_type=tf.int32) * (vocabulary // SLICES) + offset


def forbid(
    scores: tf.Tensor, so_far: tf.Tensor, position: tf.Tensor, *, options: Generation, eos: int, start: int
) -> tf.Tensor:
    """Return the scores, with FORBIDDEN for EOS before `options.min_length` and for tokens that would repeat an n-gram.

    scores: float32[vocabulary, rows]; so_far: int32[rows, length], whose first `position` tokens are set; eos, start: the ids
    of EOS and of the decoder's start token. The start token counts as the token before the others, as in `transformers`.
    """
    if options.min_length > 1:
        too_soon = (tf.range(scores.shape[0]) == eos) & (position + 1 < options.min_length)
        scores = tf.where(too_soon[:, None], FORBIDDEN, scores)
    size = options.no_repeat_ngram
    if 0 < size <= so_far.shape[1] + 1:
        prefix = tf.pad(so_far, [[0, 0], [1, 0]], constant_values=start)
        repeats = _repeats(prefix, position + 1, size=size, vocabulary=scores.shape[0])
        scores = tf.where(tf.transpose(repeats), FORBIDDEN, scores)
    return scores


def _repeats(so_far: tf.Tensor, position: tf.Tensor, *, size: int, vocabulary: int) -> tf.Tensor:
    """Return which tokens would complete an n-gram of `size` tokens that occurred before: bool[rows, vocabulary]."""
    rows, length = so_far.shape
    begins = length - size + 1
    # An n-gram that begins at i is complete if its last token, i + size - 1, is before `position`.
    matches = tf.tile((tf.range(begins) + size - 1 < position)[None], [rows, 1])
    for ahead in range(size - 1):
        last = tf.gather(so_far, tf.maximum(position - (size - 1) + ahead, 0), axis=1)
        matches &= so_far[:, ahead : ahead + begins] == last[:, None]
    places = tf.stack([tf.tile(tf.range(rows)[:, None], [1, begins]), so_far[:, size - 1 :]], axis=-1)
    return tf.scatter_nd(places, tf.cast(matches, tf.float32), [rows, vocabulary]) > 0


def draw(scores: tf.Tensor, uniform: tf.Tensor, *, options: Generation) -> tf.Tensor:
    """Return a token for each row, int32[rows], drawn by the row's random number.

    scores: float32[rows, vocabulary]; uniform: float32[rows], between 0 and 1. As in `transformers`, first the temperature
    applies, then only the `top_k` most likely tokens remain, then the fewest of these that have `top_p` of the probability.
    """
    tokens = None
    scores = scores / options.temperature
    if options.top_k or options.top_p < 1:
        scores, tokens = tf.math.top_k(scores, k=min(options.top_k or scores.shape[1], scores.shape[1]))
    shares = tf.nn.softmax(scores)
    if options.top_p < 1:
        shares = tf.where(tf.cumsum(shares, axis=1, exclusive=True) < options.top_p, shares, 0.0)
    sums = tf.cumsum(shares, axis=1)
    total = sums[:, -1:]
    # The second condition selects the last token if rounding keeps all sums below the drawn number.
    reached = (sums > uniform[:, None] * total) | (sums >= total)
    first = tf.argmax(tf.cast(reached, tf.int32), axis=1, output_type=tf.int32)
    return first if tokens is None else tf.gather(tokens, first, batch_dims=1)


class Cache(NamedTuple):
    """Each decoder layer's keys and values of targets and of the input: dtype[batch, heads of keys, length, d_kv].

    A step multiplies tensors of this axis order in place. In the order of the projections, [batch, length, heads, d_kv],
    the compiler would copy each of them at every step.
    """

    keys: tuple[tf.Tensor, ...]
    values: tuple[tf.Tensor, ...]
    cross_keys: tuple[tf.Tensor, ...]
    cross_values: tuple[tf.Tensor, ...]


class Source(NamedTuple):
    """The keys and values that a step attends to, [batch, heads, length, d_kv], with a mask and perhaps a bias of scores.

    mask: bool, broadcastable to [batch, heads of keys, queries that share one, length]. bias: broadcastable to the same.
    """

    keys: tf.Tensor
    values: tf.Tensor
    mask: tf.Tensor
    bias: tf.Tensor | None = None


class Decoder:
    """Run decoder steps for all beams of a batch, whose inputs are encoded once.

    `cache` is the cache before the first step: `max_length` empty target positions, and each layer's keys and values of the
    input.
    """

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
        self.weights, self.config, self.norm = weights, config, norm_of(config)
        self.batch, self.beams, self.length = input_ids.shape[0], beams, max_length
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        encoded = tf.repeat(encode(weights, config, batch, ComputeOptions(dtype)), beams, axis=0)
        self.attention_mask = tf.repeat(attention_mask, beams, axis=0)
        # Cast and unstack before the loop: inside it, every step would copy the weights.
        self.table = tf.cast(output_table(weights, config), dtype)
        stacked = stacked_weights(weights, config, "decoder", dtype=dtype)
        self.layers = [in_parts(w) for w in unstack_layers(stacked)]
        number, name = config.sizes("decoder").kv_heads, "kv" if config.traits.merged else "cross_kv"
        pairs = [[heads_first(tf.matmul(encoded, part), number) for part in w[name]] for w in self.layers]
        if config.traits.merged:
            pairs = [
                [self.norm(key, w["head_norms"][1]), value] for w, (key, value) in zip(self.layers, pairs, strict=True)
            ]
        cross_keys, cross_values = zip(*pairs, strict=True)
        rows, heads, _, width = cross_keys[0].shape
        none = (tf.zeros([rows, heads, max_length, width], dtype),) * len(pairs)
        self.cache = Cache(none, none, cross_keys, cross_values)

    def __call__(self, tokens: tf.Tensor, cache: Cache, position: tf.Tensor | int) -> tuple[tf.Tensor, Cache]:
        """Return the logits after `tokens`, float32[vocab_size, batch * beams], and the cache with these tokens added.

        tokens: int32[batch, beams], the tokens at `position`: the previous tokens, or the start token at position 0.

        The vocabulary is the first axis because of XLA on CPUs. It multiplies the table by a few columns in 15 ms, and a few
        rows by the table's transpose in 38 ms (docs/decisions/014-generate-on-cpu-with-xla-alone.md). Callers must not
        transpose the logits: XLA would turn product and transpose into the slow product.
        """
        weights, config, traits, norm = self.weights, self.config, self.config.traits, self.norm
        dtype, offered = cache.keys[0].dtype, key_mask(self.attention_mask)
        bias_of = functools.partial(
            relative_bias,
            queries=1,
            keys=self.length,
            first_query=position,
            bidirectional=False,
            max_distance=config.relative_attention_max_distance,
        )
        table = "decoder.relative_bias"
        shared_bias = bias_of(tf.convert_to_tensor(weights[table])) if has_shared_bias(config) else None
        places = tf.range(self.length)
        current_mask, causal_mask = (places == position)[None, None, :, None], places <= position
        # The mask of layers with full attention, and the mask of layers with a window.
        masks = [
            mask[None, None, None]
            for mask in (causal_mask, causal_mask & (places >= position - traits.decoder_window[0]))
        ]
        angles = [[tensor[position][None] for tensor in kind] for kind in angles_of(config, self.length)]
        x = embed(weights, config, "decoder", tf.reshape(tokens, [self.batch * self.beams])[:, None], dtype=dtype)
        all_keys, all_values = [], []
        for number, w in enumerate(self.layers):
            pre_scales, post_norms = split_norms(w["norms"], config)
            kind = 0 if traits.is_full(number) else 1
            normed = norm(x, pre_scales[0])
            query, key, value = (self._in_heads(tf.matmul(normed, matrix)) for matrix in (w["q"], *w["kv"]))
            if "head_norms" in w:
                query, key = (norm(tensor, scale) for tensor, scale in zip((query, key), w["head_norms"], strict=True))
            if angles:
                query, key = (rotate(tensor, *angles[kind], axis=3) for tensor in (query, key))
            all_keys.append(tf.where(current_mask, key, cache.keys[number]))
            all_values.append(tf.where(current_mask, value, cache.values[number]))
            bias = bias_of(w["relative_bias"]) if config.bias_in_every_layer else shared_bias
            of_targets = Source(all_keys[-1], all_values[-1], masks[kind], bias)
            of_input = Source(cache.cross_keys[number], cache.cross_values[number], offered)
            attended = attend_step(query, traits, of_targets, *([of_input] if traits.merged else []))
            x += post_norms[0](tf.matmul(attended, w["out"][0]))
            if not traits.merged:
                query = self._in_heads(tf.matmul(norm(x, pre_scales[1]), w["cross_q"]))
                x += post_norms[1](tf.matmul(attend_step(query, traits, of_input), w["out"][1]))
            activation = FEED_FORWARDS[config.feed_forward_proj]
            x += post_norms[-1](feed_forward(norm(x, pre_scales[-1]), w["wi"], w["wo"], activation=activation))
        x = before_logits(config, norm(x, weights["decoder.final_norm"])[:, 0])
        written = cache._replace(keys=tuple(all_keys), values=tuple(all_values))
        return soft_cap(product("vw,bw->vb", self.table, x), traits.logit_cap), written

    def _in_heads(self, x: tf.Tensor) -> tf.Tensor:
        """Return x, [batch, 1, heads of queries * d_kv], as [batch, heads of keys, queries that share one, d_kv]."""
        return tf.reshape(x, [x.shape[0], self.config.sizes("decoder").kv_heads, -1, self.config.d_kv])


def heads_first(x: tf.Tensor, heads: int) -> tf.Tensor:
    """Return [batch, length, heads * d_kv] as [batch, heads, length, d_kv]."""
    batch, length, inner = x.shape
    return tf.transpose(tf.reshape(x, [batch, length, heads, inner // heads]), [0, 2, 1, 3])


def attend_step(query: tf.Tensor, traits: Traits, *sources: Source) -> tf.Tensor:
    """Return attention of one query of each row over all sources, with one softmax: [batch, 1, heads of queries * d_kv].

    query: [batch, heads of keys, queries that share one, d_kv], see `Decoder._in_heads`.
    """
    query = query if traits.score_scale == 1.0 else query * tf.constant(traits.score_scale, query.dtype)
    scores = []
    for source in sources:
        source_scores = soft_cap(product("bkgd,bkld->bkgl", query, source.keys), traits.score_cap)
        scores.append(
            tf.where(source.mask, source_scores if source.bias is None else source_scores + source.bias, MASKED)
        )
    all_scores = tf.concat(scores, axis=3) if len(scores) > 1 else scores[0]
    raised = tf.exp(all_scores - tf.reduce_max(all_scores, axis=-1, keepdims=True))
    shares = tf.cast(raised / tf.reduce_sum(raised, axis=-1, keepdims=True), query.dtype)
    parts = tf.split(shares, [part_scores.shape[3] for part_scores in scores], axis=3) if len(scores) > 1 else [shares]
    attended = tf.add_n(
        [product("bkgl,bkld->bkgd", part, source.values) for part, source in zip(parts, sources, strict=True)]
    )
    return tf.reshape(tf.cast(attended, query.dtype), [query.shape[0], 1, -1])


def reorder_cache(cache: Cache, rows: tf.Tensor) -> Cache:
    """Return the cache with row rows[i] of targets as its row i. rows: int32[batch * beams].

    Beams of one input share the keys and values of the input, so these need no reordering.
    """
    return cache._replace(
        keys=tuple(tf.gather(keys, rows) for keys in cache.keys),
        values=tuple(tf.gather(values, rows) for values in cache.values),
    )

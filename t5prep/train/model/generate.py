"""Greedy and beam search with keys and values kept, every shape static, so that the whole search compiles.

Token by token what `transformers` generates with `early_stopping=False` and its default length penalty. An
input is encoded once, whatever the number of beams.
"""

from typing import NamedTuple

import tensorflow as tf

from t5prep.train.model.decoding import Cache, decode_step, init_cache, reorder_cache
from t5prep.train.model.t5 import Weights, encode
from t5prep.train.model.t5_config import ModelConfig

IMPOSSIBLE = -1e9  # the score of a beam that is not there


def generate(
    weights: Weights,
    config: ModelConfig,
    input_ids: tf.Tensor,
    attention_mask: tf.Tensor,
    *,
    max_length: int,
    beams: int = 1,
    length_penalty: float = 1.0,
    dtype: tf.DType = tf.float32,
) -> tf.Tensor:
    """The best target found for each input: int32[batch, max_length], EOS kept, padding after it.

    input_ids, attention_mask: int32[batch, input_length]. Greedy where `beams` is 1. A finished beam's score is its
    summed log-probability divided by its length to the power of `length_penalty` (Wu et al. 2016 without its constant).
    """
    step = _Decoder(weights, config, input_ids, attention_mask, max_length=max_length, beams=beams, dtype=dtype)
    return _greedy(step) if beams == 1 else _beam(step, length_penalty=length_penalty)


class _Decoder:
    """One step for all beams of a batch, whose inputs were encoded once."""

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
        self.cache = init_cache(weights, config, encoded, length=max_length)

    def __call__(self, tokens: tf.Tensor, cache: Cache, at: tf.Tensor) -> tuple[tf.Tensor, Cache]:
        """Logits after `tokens`, int32[batch, beams], at place `at`: float32[batch, beams, vocab_size], and the new cache."""
        scores, cache = decode_step(
            self.weights,
            self.config,
            tf.reshape(tokens, [self.batch * self.beams]),
            cache,
            position=at,
            attention_mask=self.attention_mask,
        )
        return tf.reshape(scores, [self.batch, self.beams, scores.shape[-1]]), cache


def _greedy(step: _Decoder) -> tf.Tensor:
    """The likeliest token each time, until every row has its EOS."""
    pad, eos = step.config.pad_token_id, step.config.eos_token_id
    places = tf.range(step.length)

    def one(
        at: tf.Tensor, tokens: tf.Tensor, out: tf.Tensor, done: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, Cache]:
        scores, cache = step(tokens, cache, at)
        tokens = tf.where(done, pad, tf.argmax(scores, axis=-1, output_type=tf.int32))
        return at + 1, tokens, tf.where(places[None] == at, tokens, out), done | (tokens == eos), cache

    start = (
        tf.zeros([], tf.int32),
        tf.fill([step.batch, 1], step.config.decoder_start_token_id),
        tf.fill([step.batch, step.length], pad),
        tf.zeros([step.batch, 1], tf.bool),
        step.cache,
    )
    out: tf.Tensor = tf.while_loop(
        lambda at, tokens, out, done, cache: (at < step.length) & ~tf.reduce_all(done), one, start
    )[2]
    return out


class _Beams(NamedTuple):
    """The search: running hypotheses with summed log-probabilities, finished ones with their scores by length."""

    at: tf.Tensor  # int32[]: tokens so far
    running: tf.Tensor  # int32[batch, beams, length]
    running_score: tf.Tensor  # float32[batch, beams]
    finished: tf.Tensor  # int32[batch, beams, length]
    finished_score: tf.Tensor  # float32[batch, beams]
    is_finished: tf.Tensor  # bool[batch, beams]
    improvable: tf.Tensor  # bool[batch, 1]: a running hypothesis may still beat the worst finished one
    cache: Cache


def _beam(step: _Decoder, *, length_penalty: float) -> tf.Tensor:
    """The best finished hypothesis of `step.beams` running ones; the best running one where none finished in time."""
    batch, beams, length = step.batch, step.beams, step.length
    pad, eos = step.config.pad_token_id, step.config.eos_token_id
    places = tf.range(length)

    def one(*state: tf.Tensor) -> _Beams:
        s = _Beams(*state)
        previous = tf.where(
            s.at == 0, step.config.decoder_start_token_id, tf.gather(s.running, tf.maximum(s.at - 1, 0), axis=2)
        )
        scores, cache = step(previous, s.cache, s.at)
        vocabulary = scores.shape[-1]
        total = tf.nn.log_softmax(scores) + s.running_score[..., None]
        # Twice as many as go on: at most one of each beam's continuations is its EOS, so enough remain to run.
        score, index = tf.math.top_k(tf.reshape(total, [batch, beams * vocabulary]), k=2 * beams)
        parent, token = index // vocabulary, index % vocabulary
        tokens = tf.where(places == s.at, token[..., None], tf.gather(s.running, parent, batch_dims=1))
        ends = (token == eos) | (s.at + 1 >= length)

        running_score, going = tf.math.top_k(score + tf.cast(ends, tf.float32) * IMPOSSIBLE, k=beams)
        order = tf.reshape(tf.gather(parent, going, batch_dims=1) + tf.range(batch)[:, None] * beams, [-1])

        may_finish = ends & (tf.range(2 * beams) < beams) & s.improvable
        by_length = score / tf.cast(s.at + 1, tf.float32) ** length_penalty
        merged = tf.concat([s.finished_score, by_length + tf.cast(~may_finish, tf.float32) * IMPOSSIBLE], axis=1)
        finished_score, best = tf.math.top_k(merged, k=beams)
        is_finished = tf.gather(tf.concat([s.is_finished, may_finish], axis=1), best, batch_dims=1)

        worst = tf.where(is_finished, tf.reduce_min(finished_score, axis=1, keepdims=True), IMPOSSIBLE)
        possible = running_score[:, :1] / tf.cast(s.at + 1, tf.float32) ** length_penalty
        return _Beams(
            s.at + 1,
            tf.gather(tokens, going, batch_dims=1),
            running_score,
            tf.gather(tf.concat([s.finished, tokens], axis=1), best, batch_dims=1),
            finished_score,
            is_finished,
            s.improvable & tf.reduce_any(possible > worst, axis=1, keepdims=True),
            reorder_cache(cache, order),
        )

    # Only the first beam counts at first, or all would be the same.
    first = tf.tile(tf.constant([[0.0] + [IMPOSSIBLE] * (beams - 1)]), [batch, 1])
    none = tf.fill([batch, beams, length], pad)
    start = _Beams(
        at=tf.zeros([], tf.int32),
        running=none,
        running_score=first,
        finished=none,
        finished_score=tf.fill([batch, beams], IMPOSSIBLE),
        is_finished=tf.zeros([batch, beams], tf.bool),
        improvable=tf.ones([batch, 1], tf.bool),
        cache=step.cache,
    )
    end = tf.while_loop(lambda *s: (s[0] < length) & tf.reduce_any(_Beams(*s).improvable), one, start)
    return end.finished[:, 0]

"""Generate answers by greedy search, beam search or sampling, in static shapes, so that XLA compiles the whole search.

Greedy search and beam search give the same tokens as `transformers` with `early_stopping=False`. An input is encoded once,
for any number of answers or beams.
"""

from typing import NamedTuple

import tensorflow as tf

from t5prep.options.generation import Generation
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.cached_decoder import Cache, Decoder, draw, forbid, most_likely, reorder_cache
from t5prep.training.model.t5 import Weights


def one_by_one(step: Decoder, *, options: Generation, uniform: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Return answers by greedy search or sampling, best first, int32[batch, answers, length], and float32[batch, answers] scores.

    uniform: float32[batch, answers, length], the random numbers that draw tokens; None for the most likely tokens. A score is
    a log-probability normalized by length; 0 if `options` requests no scores. Log-probabilities are those of the unchanged
    model, even if some tokens were forbidden.
    """
    pad, eos = step.config.pad_token_id, step.config.eos_token_id
    start_id = step.config.decoder_start_token_id
    rows, length = step.batch * step.beams, step.length
    places = tf.range(length)
    scored = options.scores or options.answers > 1

    def add_token(
        position: tf.Tensor, tokens: tf.Tensor, out: tf.Tensor, score: tf.Tensor, is_finished: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, Cache]:
        logits, cache = step(tf.reshape(tokens, [step.batch, step.beams]), cache, position)
        allowed = forbid(logits, out, position, options=options, eos=eos, start=start_id)
        if uniform is None:
            tokens = most_likely(allowed)
        else:
            tokens = draw(
                tf.transpose(allowed), tf.reshape(tf.gather(uniform, position, axis=2), [rows]), options=options
            )
        if scored:
            chosen = tf.range(logits.shape[0])[:, None] == tokens
            likelihood = tf.reduce_sum(tf.where(chosen, logits, 0.0), axis=0) - tf.reduce_logsumexp(logits, axis=0)
            score += tf.where(is_finished, 0.0, likelihood)
        tokens = tf.where(is_finished, pad, tokens)
        return (
            position + 1,
            tokens,
            tf.where(places[None] == position, tokens[:, None], out),
            score,
            is_finished | (tokens == eos),
            cache,
        )

    start = (
        tf.zeros([], tf.int32),
        tf.fill([rows], start_id),
        tf.fill([rows, length], pad),
        tf.zeros([rows]),
        tf.zeros([rows], tf.bool),
        step.cache,
    )
    _, _, out, score, _, _ = tf.while_loop(
        lambda position, tokens, out, score, is_finished, cache: (position < length) & ~tf.reduce_all(is_finished),
        add_token,
        start,
    )
    answers = tf.reshape(out, [step.batch, step.beams, length])
    lengths = tf.reduce_sum(tf.cast(answers != pad, tf.float32), axis=2)
    by_length = tf.reshape(score, [step.batch, step.beams]) / tf.maximum(lengths, 1.0) ** options.length_penalty
    if step.beams == 1:
        return answers, by_length
    best, order = tf.math.top_k(by_length, k=step.beams)
    return tf.gather(answers, order, batch_dims=1), best


IMPOSSIBLE = -1e9  # the score of a beam that does not exist


class _Beams(NamedTuple):
    """The state of a beam search: running hypotheses with log-probabilities, finished hypotheses with final scores."""

    position: tf.Tensor  # int32[]: the number of tokens so far
    running: tf.Tensor  # int32[batch, beams, length]
    running_score: tf.Tensor  # float32[batch, beams]
    finished: tf.Tensor  # int32[batch, beams, length]
    finished_score: tf.Tensor  # float32[batch, beams]
    is_finished: tf.Tensor  # bool[batch, beams]
    improvable: tf.Tensor  # bool[batch, 1]: a running hypothesis may still beat the worst finished one
    cache: Cache


def beam_search(step: Decoder, *, options: Generation) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the best hypotheses of `step.beams` beams, int32[batch, answers, length], and float32[batch, answers] scores.

    A hypothesis without EOS ends at the last position. Scores are log-probabilities normalized by length.
    """
    end = tf.while_loop(
        lambda *s: (s[0] < step.length) & tf.reduce_any(_Beams(*s).improvable),
        lambda *s: _one_token_longer(_Beams(*s), step, options=options),
        _start(step),
    )
    return end.finished[:, : options.answers], end.finished_score[:, : options.answers]


def _start(step: Decoder) -> _Beams:
    """Return the state before the first token. All beams are equal then, so all but the first get IMPOSSIBLE scores."""
    batch, beams = step.batch, step.beams
    none = tf.fill([batch, beams, step.length], step.config.pad_token_id)
    return _Beams(
        position=tf.zeros([], tf.int32),
        running=none,
        running_score=tf.tile(tf.constant([[0.0] + [IMPOSSIBLE] * (beams - 1)]), [batch, 1]),
        finished=none,
        finished_score=tf.fill([batch, beams], IMPOSSIBLE),
        is_finished=tf.zeros([batch, beams], tf.bool),
        improvable=tf.ones([batch, 1], tf.bool),
        cache=step.cache,
    )


def _one_token_longer(s: _Beams, step: Decoder, *, options: Generation) -> _Beams:
    """Return the state after one more token. The best candidates without EOS continue, the best with EOS are finished."""
    batch, beams = step.batch, step.beams
    total, cache = _scores(s, step, options=options)
    vocabulary = total.shape[-1]
    # Of 2 * beams candidates at least `beams` continue, because at most one continuation of each beam is EOS.
    score, index = tf.math.top_k(tf.reshape(total, [batch, beams * vocabulary]), k=2 * beams)
    parent, token = index // vocabulary, index % vocabulary
    tokens = tf.where(tf.range(step.length) == s.position, token[..., None], tf.gather(s.running, parent, batch_dims=1))
    ends = (token == step.config.eos_token_id) | (s.position + 1 >= step.length)

    running_score, going = tf.math.top_k(score + tf.cast(ends, tf.float32) * IMPOSSIBLE, k=beams)
    order = tf.reshape(tf.gather(parent, going, batch_dims=1) + tf.range(batch)[:, None] * beams, [-1])

    # As in transformers, EOS finishes a hypothesis only among the best `beams` candidates.
    may_finish = ends & (tf.range(2 * beams) < beams) & s.improvable
    by_length = score / tf.cast(s.position + 1, tf.float32) ** options.length_penalty
    merged = tf.concat([s.finished_score, by_length + tf.cast(~may_finish, tf.float32) * IMPOSSIBLE], axis=1)
    finished_score, best = tf.math.top_k(merged, k=beams)
    is_finished = tf.gather(tf.concat([s.is_finished, may_finish], axis=1), best, batch_dims=1)

    worst = tf.where(is_finished, tf.reduce_min(finished_score, axis=1, keepdims=True), IMPOSSIBLE)
    possible = running_score[:, :1] / tf.cast(s.position + 1, tf.float32) ** options.length_penalty
    return _Beams(
        s.position + 1,
        tf.gather(tokens, going, batch_dims=1),
        running_score,
        tf.gather(tf.concat([s.finished, tokens], axis=1), best, batch_dims=1),
        finished_score,
        is_finished,
        s.improvable & tf.reduce_any(possible > worst, axis=1, keepdims=True),
        reorder_cache(cache, order),
    )


def _scores(s: _Beams, step: Decoder, *, options: Generation) -> tuple[tf.Tensor, Cache]:
    """Return the score of each running hypothesis with each next token, float32[batch, beams, vocabulary]."""
    start = step.config.decoder_start_token_id
    previous = tf.where(s.position == 0, start, tf.gather(s.running, tf.maximum(s.position - 1, 0), axis=2))
    scores, cache = step(previous, s.cache, s.position)
    vocabulary, rows = scores.shape
    allowed = forbid(
        tf.nn.log_softmax(scores, axis=0),
        tf.reshape(s.running, [rows, step.length]),
        s.position,
        options=options,
        eos=step.config.eos_token_id,
        start=start,
    )
    return tf.reshape(tf.transpose(allowed), [step.batch, step.beams, vocabulary]) + s.running_score[..., None], cache


def search(
    weights: Weights,
    config: ModelConfig,
    input_ids: tf.Tensor,
    attention_mask: tf.Tensor,
    *,
    options: Generation,
    uniform: tf.Tensor | None = None,
    dtype: tf.DType = tf.float32,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the answers to each input, best first, int32[batch, answers, max_length], and float32[batch, answers] scores.

    input_ids, attention_mask: int32[batch, input_length]; uniform: float32[batch, answers, max_length], random numbers between
    0 and 1 that draw tokens (None unless `options.sample`). Answers include EOS, and padding after it. Scores are 0 if
    `options` requests none.
    """
    beams = options.answers if options.sample else options.beams
    step = Decoder(
        weights,
        config,
        input_ids,
        attention_mask,
        max_length=options.max_length,
        beams=beams,
        dtype=dtype,
    )
    if options.beams > 1:
        return beam_search(step, options=options)
    return one_by_one(step, options=options, uniform=uniform)


def generate(
    weights: Weights,
    config: ModelConfig,
    input_ids: tf.Tensor,
    attention_mask: tf.Tensor,
    *,
    max_length: int,
    beams: int = 1,
    length_penalty: float = Generation.length_penalty,
    dtype: tf.DType = tf.float32,
) -> tf.Tensor:
    """Return the best answer to each input, int32[batch, max_length], by beam search; one beam is greedy search.

    The other arguments are those of `search`.
    """
    options = Generation(max_length=max_length, beams=beams, length_penalty=length_penalty)
    return search(weights, config, input_ids, attention_mask, options=options, dtype=dtype)[0][:, 0]

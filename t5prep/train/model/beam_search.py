"""Search with beams; the tokens are the same as those of `transformers` with `early_stopping=False`."""

from typing import NamedTuple

import tensorflow as tf

from t5prep.train.model.decoding import Cache, Decoder, reorder_cache
from t5prep.train.model.generation import Generation
from t5prep.train.model.next_token import forbid

IMPOSSIBLE = -1e9  # the score of a beam that does not exist


class _Beams(NamedTuple):
    """Hold the state of a search: running hypotheses with their log-probabilities, finished ones with final scores."""

    at: tf.Tensor  # int32[]: tokens so far
    running: tf.Tensor  # int32[batch, beams, length]
    running_score: tf.Tensor  # float32[batch, beams]
    finished: tf.Tensor  # int32[batch, beams, length]
    finished_score: tf.Tensor  # float32[batch, beams]
    is_finished: tf.Tensor  # bool[batch, beams]
    improvable: tf.Tensor  # bool[batch, 1]: a running hypothesis may still beat the worst finished one
    cache: Cache


def beam_search(step: Decoder, *, options: Generation) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the best hypotheses of a search with `step.beams` beams, int32[batch, answers, length], and their scores.

    Hypotheses without EOS end at the last position. scores: float32[batch, answers], normalized by length.
    """
    end = tf.while_loop(
        lambda *s: (s[0] < step.length) & tf.reduce_any(_Beams(*s).improvable),
        lambda *s: _one_token_longer(_Beams(*s), step, options=options),
        _start(step),
    )
    return end.finished[:, : options.answers], end.finished_score[:, : options.answers]


def _start(step: Decoder) -> _Beams:
    """Return the state before the first token. All beams are equal then, so only the first one counts."""
    batch, beams = step.batch, step.beams
    none = tf.fill([batch, beams, step.length], step.config.pad_token_id)
    return _Beams(
        at=tf.zeros([], tf.int32),
        running=none,
        running_score=tf.tile(tf.constant([[0.0] + [IMPOSSIBLE] * (beams - 1)]), [batch, 1]),
        finished=none,
        finished_score=tf.fill([batch, beams], IMPOSSIBLE),
        is_finished=tf.zeros([batch, beams], tf.bool),
        improvable=tf.ones([batch, 1], tf.bool),
        cache=step.cache,
    )


def _one_token_longer(s: _Beams, step: Decoder, *, options: Generation) -> _Beams:
    """Return the state after one more token: the best candidates without EOS run on, the best with it are finished."""
    batch, beams = step.batch, step.beams
    total, cache = _scores(s, step, options=options)
    vocabulary = total.shape[-1]
    # Take 2 * beams candidates: at most one continuation of each beam is EOS, so at least `beams` of them continue.
    score, index = tf.math.top_k(tf.reshape(total, [batch, beams * vocabulary]), k=2 * beams)
    parent, token = index // vocabulary, index % vocabulary
    tokens = tf.where(tf.range(step.length) == s.at, token[..., None], tf.gather(s.running, parent, batch_dims=1))
    ends = (token == step.config.eos_token_id) | (s.at + 1 >= step.length)

    running_score, going = tf.math.top_k(score + tf.cast(ends, tf.float32) * IMPOSSIBLE, k=beams)
    order = tf.reshape(tf.gather(parent, going, batch_dims=1) + tf.range(batch)[:, None] * beams, [-1])

    may_finish = ends & (tf.range(2 * beams) < beams) & s.improvable
    by_length = score / tf.cast(s.at + 1, tf.float32) ** options.length_penalty
    merged = tf.concat([s.finished_score, by_length + tf.cast(~may_finish, tf.float32) * IMPOSSIBLE], axis=1)
    finished_score, best = tf.math.top_k(merged, k=beams)
    is_finished = tf.gather(tf.concat([s.is_finished, may_finish], axis=1), best, batch_dims=1)

    worst = tf.where(is_finished, tf.reduce_min(finished_score, axis=1, keepdims=True), IMPOSSIBLE)
    possible = running_score[:, :1] / tf.cast(s.at + 1, tf.float32) ** options.length_penalty
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


def _scores(s: _Beams, step: Decoder, *, options: Generation) -> tuple[tf.Tensor, Cache]:
    """Return the score of each running hypothesis with each next token, float32[batch, beams, vocabulary]."""
    start = step.config.decoder_start_token_id
    previous = tf.where(s.at == 0, start, tf.gather(s.running, tf.maximum(s.at - 1, 0), axis=2))
    scores, cache = step(previous, s.cache, s.at)
    vocabulary, rows = scores.shape
    allowed = forbid(
        tf.nn.log_softmax(scores, axis=0),
        tf.reshape(s.running, [rows, step.length]),
        s.at,
        options=options,
        eos=step.config.eos_token_id,
        start=start,
    )
    return tf.reshape(tf.transpose(allowed), [step.batch, step.beams, vocabulary]) + s.running_score[..., None], cache

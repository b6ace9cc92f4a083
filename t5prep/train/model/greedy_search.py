"""Search greedily or sample: take one token after the other, the most likely or a drawn one, until all have EOS."""

import tensorflow as tf

from t5prep.train.model.decoding import Cache, Decoder
from t5prep.train.model.generation import Generation
from t5prep.train.model.next_token import draw, forbid, most_likely


def one_by_one(step: Decoder, *, options: Generation, uniform: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the answers, best first, int32[batch, answers, length], and their scores, float32[batch, answers].

    uniform: float32[batch, answers, length], the numbers by which tokens are drawn; None to take the most likely
    tokens. A score is a log-probability normalized by length. Log-probabilities are the model's own, also where tokens
    were forbidden, and zeros where they were not requested.
    """
    pad, eos = step.config.pad_token_id, step.config.eos_token_id
    start_id = step.config.decoder_start_token_id
    rows, length = step.batch * step.beams, step.length
    places = tf.range(length)
    scored = options.scores or options.answers > 1

    def one(
        at: tf.Tensor, tokens: tf.Tensor, out: tf.Tensor, score: tf.Tensor, done: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, Cache]:
        logits, cache = step(tf.reshape(tokens, [step.batch, step.beams]), cache, at)
        allowed = forbid(logits, out, at, options=options, eos=eos, start=start_id)
        if uniform is None:
            tokens = most_likely(allowed)
        else:
            tokens = draw(tf.transpose(allowed), tf.reshape(tf.gather(uniform, at, axis=2), [rows]), options=options)
        if scored:
            chosen = tf.range(logits.shape[0])[:, None] == tokens
            likelihood = tf.reduce_sum(tf.where(chosen, logits, 0.0), axis=0) - tf.reduce_logsumexp(logits, axis=0)
            score += tf.where(done, 0.0, likelihood)
        tokens = tf.where(done, pad, tokens)
        return at + 1, tokens, tf.where(places[None] == at, tokens[:, None], out), score, done | (tokens == eos), cache

    start = (
        tf.zeros([], tf.int32),
        tf.fill([rows], start_id),
        tf.fill([rows, length], pad),
        tf.zeros([rows]),
        tf.zeros([rows], tf.bool),
        step.cache,
    )
    _, _, out, score, _, _ = tf.while_loop(
        lambda at, tokens, out, score, done, cache: (at < length) & ~tf.reduce_all(done), one, start
    )
    answers = tf.reshape(out, [step.batch, step.beams, length])
    lengths = tf.reduce_sum(tf.cast(answers != pad, tf.float32), axis=2)
    by_length = tf.reshape(score, [step.batch, step.beams]) / tf.maximum(lengths, 1.0) ** options.length_penalty
    if step.beams == 1:
        return answers, by_length
    best, order = tf.math.top_k(by_length, k=step.beams)
    return tf.gather(answers, order, batch_dims=1), best

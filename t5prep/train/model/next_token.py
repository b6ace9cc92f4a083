"""Choose the next token: exclude forbidden tokens, and draw one of the others."""

import tensorflow as tf

from t5prep.train.model.generation import Generation

FORBIDDEN = -1e9  # far below any logit and finite, so that differences stay numbers
SLICES = 128  # parts of the vocabulary that are compared with each other


def most_likely(scores: tf.Tensor) -> tf.Tensor:
    """Return the number of each column's highest score, int32[rows], or of one of equal ones.

    scores: float32[vocabulary, rows]. For tf.argmax, XLA compares one score at a time on a CPU. Here the best of the
    slices is computed for many places at once; then only these, and the slices at the best place, are searched so.

    >>> most_likely(tf.constant([[0.0, 9.0], [2.0, 1.0], [1.0, 1.0]])).numpy().tolist()
    [1, 0]
    """
    vocabulary, rows = scores.shape
    if vocabulary % SLICES:
        return tf.argmax(scores, axis=0, output_type=tf.int32)
    slices = tf.reshape(scores, [SLICES, vocabulary // SLICES, rows])
    place = tf.argmax(tf.reduce_max(slices, axis=0), axis=0, output_type=tf.int32)
    slice_numbers = tf.repeat(tf.range(SLICES)[:, None], rows, axis=1)
    places, columns = (tf.repeat(one[None], SLICES, axis=0) for one in (place, tf.range(rows)))
    at_place = tf.gather_nd(slices, tf.stack([slice_numbers, places, columns], axis=-1))
    return tf.argmax(at_place, axis=0, output_type=tf.int32) * (vocabulary // SLICES) + place


def forbid(
    scores: tf.Tensor, so_far: tf.Tensor, at: tf.Tensor, *, options: Generation, eos: int, start: int
) -> tf.Tensor:
    """Return the scores, with FORBIDDEN for EOS before the least length and for tokens that would repeat an n-gram.

    scores: float32[vocabulary, rows]; so_far: int32[rows, length], the tokens so far, of which the first `at` are set.
    The decoder's start token counts as the token before them, as in `transformers`.
    """
    if options.min_length > 1:
        too_soon = (tf.range(scores.shape[0]) == eos) & (at + 1 < options.min_length)
        scores = tf.where(too_soon[:, None], FORBIDDEN, scores)
    size = options.no_repeat_ngram
    if 0 < size <= so_far.shape[1] + 1:
        before = tf.pad(so_far, [[0, 0], [1, 0]], constant_values=start)
        repeats = _repeats(before, at + 1, size=size, vocabulary=scores.shape[0])
        scores = tf.where(tf.transpose(repeats), FORBIDDEN, scores)
    return scores


def _repeats(so_far: tf.Tensor, at: tf.Tensor, *, size: int, vocabulary: int) -> tf.Tensor:
    """Return which tokens would complete an n-gram of `size` tokens that occurred before: bool[rows, vocabulary]."""
    rows, length = so_far.shape
    begins = length - size + 1
    # An n-gram that begins at i is complete where its last token, i + size - 1, is before `at`.
    same = tf.tile((tf.range(begins) + size - 1 < at)[None], [rows, 1])
    for ahead in range(size - 1):
        last = tf.gather(so_far, tf.maximum(at - (size - 1) + ahead, 0), axis=1)
        same &= so_far[:, ahead : ahead + begins] == last[:, None]
    places = tf.stack([tf.tile(tf.range(rows)[:, None], [1, begins]), so_far[:, size - 1 :]], axis=-1)
    return tf.scatter_nd(places, tf.cast(same, tf.float32), [rows, vocabulary]) > 0


def draw(scores: tf.Tensor, uniform: tf.Tensor, *, options: Generation) -> tf.Tensor:
    """Return a token for each row, int32[rows], drawn by the row's own number between 0 and 1: float32[rows].

    scores: float32[rows, vocabulary].

    First the temperature is applied, then the `top_k` most likely tokens are kept, then of these the fewest that have
    `top_p` of the probability, as in `transformers`.
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
    reached = (sums > uniform[:, None] * total) | (sums >= total)
    first = tf.argmax(tf.cast(reached, tf.int32), axis=1, output_type=tf.int32)
    return first if tokens is None else tf.gather(tokens, first, batch_dims=1)

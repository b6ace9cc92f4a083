"""Generate answers with a cache of keys and values and static shapes, so that XLA can compile the whole search.

Greedy search and beam search give the same tokens as `transformers`. An input is encoded once, for any number of
answers or beams.
"""

import tensorflow as tf

from t5prep.train.model.beam_search import beam_search
from t5prep.train.model.decoding import Decoder
from t5prep.train.model.generation import Generation
from t5prep.train.model.greedy_search import one_by_one
from t5prep.train.model.t5 import Weights
from t5prep.train.model.t5_config import ModelConfig


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
    """Return the answers to each input, best first, int32[batch, answers, max_length], and their scores.

    input_ids, attention_mask: int32[batch, input_length]; uniform: float32[batch, answers, max_length], the numbers
    between 0 and 1 by which tokens are drawn (None unless `options.sample`). Answers keep their EOS, with padding after
    it. scores: float32[batch, answers], zeros where they were not requested.
    """
    each = options.answers if options.sample else options.beams
    step = Decoder(
        weights,
        config,
        input_ids,
        attention_mask,
        max_length=options.max_length,
        beams=each,
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
    """Return the best answer to each input: int32[batch, max_length]. Arguments as in `search`; one beam is greedy."""
    options = Generation(max_length=max_length, beams=beams, length_penalty=length_penalty)
    return search(weights, config, input_ids, attention_mask, options=options, dtype=dtype)[0][:, 0]

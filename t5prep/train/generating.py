"""Generate answers on the devices, with the operations that are fastest there."""

import functools
from collections.abc import Mapping

import tensorflow as tf

from t5prep.train.model.generate import search
from t5prep.train.model.generation import Generation
from t5prep.train.model.step_operations import StepOperations, operations_for
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.token_mask import with_mask
from t5prep.train.padding import OF_T5, Padding
from t5prep.train.runtime.layout import Layout
from t5prep.train.runtime.rows import OnRows, on_rows

LEAST = 8  # rows that a core of a CPU answers alone: with fewer it waits for the weights, which every step reads


def answers_on_rows(
    config: ModelConfig,
    options: Generation,
    *,
    layout: Layout,
    dtype: tf.DType,
    place: str = "",
    padding: Padding = OF_T5,
) -> OnRows:
    """Return the function (weights, batch) → `ids`, int32[rows, answers, length], and `scores`, float32[rows, answers].

    The batch has `input_ids`, and `uniform` where answers are drawn (see `generate.search`); it may have an
    `attention_mask`, which is otherwise computed from `padding`.
    """
    operations = operations_for(platform=layout.platform, devices=len(layout.devices), dtype=dtype)
    answers = functools.partial(
        _answers, config=config, options=options, dtype=dtype, padding=padding, operations=operations
    )
    return on_rows("generate", answers, shape=config, layout=layout, place=place, least=LEAST)


def _answers(
    weights: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
    *,
    config: ModelConfig,
    options: Generation,
    dtype: tf.DType,
    padding: Padding,
    operations: StepOperations,
) -> dict[str, tf.Tensor]:
    ids, scores = search(
        weights,
        config,
        batch["input_ids"],
        with_mask(batch, padding)["attention_mask"],
        options=options,
        uniform=batch.get("uniform"),
        dtype=dtype,
        operations=operations,
    )
    return {"ids": ids, "scores": scores}

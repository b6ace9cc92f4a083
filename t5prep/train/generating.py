"""Generate answers on the devices: on a CPU each core answers a part of the batch, with operations for few rows."""

import functools
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import tensorflow as tf

from t5prep.train.model import custom_calls
from t5prep.train.model.generate import search
from t5prep.train.model.generation import Generation
from t5prep.train.model.step_operations import OwnOperations, StepOperations
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.token_mask import with_mask
from t5prep.train.model.weight_layout import t5_layouts
from t5prep.train.padding import OF_T5, Padding
from t5prep.train.runtime.layout import Layout
from t5prep.train.runtime.rows import OnRows, Rows, on_rows

LEAST = 8  # rows that a core answers alone: with fewer it waits for the weights, which every step reads
MOST_COPIED = 4 << 30  # bytes of the decoder's weights in all parts together, each of which has its own copy


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

    def on_devices(operations: StepOperations) -> OnRows:
        answers = functools.partial(
            _answers, config=config, options=options, dtype=dtype, padding=padding, operations=operations
        )
        return on_rows("generate", answers, shape=config, layout=layout, place=place)

    plain, own = on_devices(StepOperations()), on_devices(OwnOperations())
    possible = layout.platform == "cpu" and len(layout.devices) == 1 and dtype == tf.float32 and custom_calls.usable()

    def answer(weights: Mapping[str, Any], batch: Rows) -> dict[str, Any]:
        rows = len(batch["input_ids"])
        parts = parts_of(rows, cores=_cores(), part_bytes=_decoder_bytes(config)) if possible else 0
        if parts == 0:
            return plain(weights, batch)
        size = rows // parts
        cuts = [{name: whole[i : i + size] for name, whole in batch.items()} for i in range(0, rows, size)]
        # A call on a CPU whose arguments are there returns when its work is done, so each part has a thread.
        with ThreadPoolExecutor(parts) as threads:
            answers = list(threads.map(functools.partial(own, weights), cuts))
        return {name: jnp.concatenate([one[name] for one in answers]) for name in answers[0]}

    return answer


def parts_of(rows: int, *, cores: int, part_bytes: int) -> int:
    """Return in how many parts the cores answer so many rows, each its own; 0 where XLA should use all cores for all rows.

    >>> parts_of(32, cores=1, part_bytes=0), parts_of(32, cores=2, part_bytes=0), parts_of(32, cores=64, part_bytes=0)
    (1, 2, 0)
    """
    if cores == 1:
        return 1
    return cores if rows % cores == 0 and rows >= cores * LEAST and cores * part_bytes <= MOST_COPIED else 0


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _decoder_bytes(config: ModelConfig) -> int:
    """Return the size of the decoder's weights in float32."""
    layouts = t5_layouts(config).items()
    return 4 * sum(math.prod(layout.shape) for name, layout in layouts if name.startswith("decoder."))


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

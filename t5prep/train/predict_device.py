"""Run a model on the devices for prediction: token ids of inputs in, token ids and scores of answers out."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.tokens.tokenizer import Tokenizer
from t5prep.train import random_draws
from t5prep.train.generating import answers_on_rows
from t5prep.train.model.architecture import Config
from t5prep.train.model.encoder_config import EncoderConfig
from t5prep.train.model.forward import forward
from t5prep.train.model.generation import Generation
from t5prep.train.run import Model, weight_bytes
from t5prep.train.runtime.devices import open_layout
from t5prep.train.runtime.rows import on_rows
from t5prep.train.runtime.state import put_weights
from t5prep.train.step_parts import dtype_of


class Device:
    """Answer batches of `rows` inputs with one model. Raises UsageError where the requested device does not exist."""

    def __init__(
        self,
        opened: Model,
        *,
        generation: Generation,
        rows: int,
        tokenizer: Tokenizer,
        tpu: str | None = None,
        gpus: bool = False,
    ) -> None:
        layout = open_layout(tpu=tpu, gpus=gpus, shard=None, weight_bytes=weight_bytes(opened))
        self.rows = -(-rows // layout.replicas) * layout.replicas
        self._generation, self._tokenizer = generation, tokenizer
        self._weights = put_weights(opened.weights, opened.config, layout)
        dtype = dtype_of("auto", platform=layout.platform)
        self._pairs = bool(opened.config.classes)
        if isinstance(opened.config, EncoderConfig) or opened.config.classes:
            classes = functools.partial(_classes, config=opened.config, options=generation, dtype=dtype)
            self._answers = on_rows("generate", classes, shape=opened.config, layout=layout)
        else:
            self._answers = answers_on_rows(opened.config, generation, layout=layout, dtype=dtype)

    def __call__(self, inputs: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return answers, int32[inputs, answers, max_length], and scores, float32[inputs, answers], best first.

        inputs: at most `rows` of int32[<= length]. The batch that the device gets is always [rows, length].
        """
        ids = np.full([self.rows, length], self._tokenizer.pad_id, np.int32)
        mask = np.zeros([self.rows, length], np.int32)
        for row in range(self.rows):
            own = inputs[row] if row < len(inputs) else np.array([self._tokenizer.eos_id])
            ids[row, : len(own)], mask[row, : len(own)] = own, 1
            if self._pairs:  # as in the batches of training: 2 for the second text of a pair
                mask[row, 1 : len(own)] += np.cumsum(own == self._tokenizer.eos_id)[:-1] > 0
        batch = {"input_ids": ids, "attention_mask": mask}
        if self._generation.sample:
            batch["uniform"] = random_draws.uniform(ids, self._generation, pad_id=self._tokenizer.pad_id)
        answer = {name: np.asarray(value) for name, value in self._answers(self._weights, batch).items()}
        return answer["ids"][: len(inputs)], answer["scores"][: len(inputs)]


def _classes(
    weights: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
    *,
    config: Config,
    options: Generation,
    dtype: Any,
) -> dict[str, tf.Tensor]:
    """Return the numbers of the likeliest classes, int32[rows, answers, 1], and the logarithms of their probabilities."""
    scores = tf.nn.log_softmax(forward(weights, config, batch, dtype=dtype)[:, 0])
    best = tf.math.top_k(scores, k=min(options.answers, len(config.classes)))
    return {"ids": best.indices[..., None], "scores": best.values}

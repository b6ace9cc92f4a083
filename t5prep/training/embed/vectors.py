"""Run an encoder on the devices: token ids of texts in, a vector for each token or for each text out."""

import functools
import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
import tensorflow as tf

from t5prep.options.models import EmbedOptions, VectorOptions
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.embed.sentence_recipe import LEAST_NORM
from t5prep.training.model.architecture import Config
from t5prep.training.model.forward import encode
from t5prep.training.model.layers import mean_of_tokens
from t5prep.training.model.weight_layout import WeightLayout, of_encoder
from t5prep.training.predict.device import batch_of, check_finite, enough_memory
from t5prep.training.run.run import Model
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.programs import Program, rows_program
from t5prep.training.runtime.row_programs import on_rows
from t5prep.training.runtime.state import put_weights
from t5prep.training.step.step import OF_LAYERS, dtype_of


class Encoder:
    """Compute the vectors of a batch of texts at a time, with weights that stay on the devices.

    `output` holds the kind of vectors, after the model's own recipe was applied (`embedding._choose`). On a TPU or GPU the
    matrix products, and the stored matrices of layers, have the dtype of the vectors; on a CPU they are float32. Raises
    UsageError if weights are not finite or do not fit into the devices' memory.
    """

    def __init__(
        self,
        opened: Model,
        output: VectorOptions,
        options: EmbedOptions,
        *,
        tokenizer: Tokenizer,
    ) -> None:
        config, replicas = opened.config, options.replicas
        weight_bytes = sum(
            math.prod(weight.shape) * (tf.as_dtype(output.dtype).size if is_rounded(name, weight) else 4)
            for name, weight in of_encoder(config).items()
        )
        layout = open_layout(
            tpu=options.model.tpu,
            gpus=options.model.gpus,
            replicas=replicas,
            shard=None if replicas == 1 else 1,
            weight_bytes=weight_bytes,
        )
        self.rows = -(-options.batch // layout.replicas) * layout.replicas
        self._tokenizer, self._pairs = tokenizer, bool(config.classes)
        dtype = dtype_of("auto" if output.dtype == "bfloat16" else output.dtype, platform=layout.platform)
        self._weights = put_weights(opened.weights, weight_specs(config, dtype, layout))
        check_finite(self._weights, layout, name=opened.name)
        run = functools.partial(vectors, config=config, output=output, dtype=dtype)
        self._run = on_rows("embed", run, shape=config, layout=layout, dtype=dtype)

    def begin(self, inputs: Sequence[np.ndarray], length: int) -> jax.Array:
        """Start the computation for at most `rows` inputs, int32[<= length] each, and return the pending array.

        `vectors_of` waits for the array, so that the host can prepare the next batch meanwhile.
        """
        batch = batch_of(inputs, [self.rows, length], tokenizer=self._tokenizer, pairs=self._pairs)
        with enough_memory(self.rows):
            return self._run(self._weights, batch)["vectors"]

    def vectors_of(self, work: jax.Array) -> np.ndarray:
        """Wait for the pending array `work` and return its vectors: [rows, length, width], or [rows, width] if pooled."""
        with enough_memory(self.rows):
            return np.asarray(work)


def vectors(
    weights: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
    *,
    config: Config,
    output: VectorOptions,
    dtype: tf.DType,
) -> dict[str, tf.Tensor]:
    """Return the `vectors` of a batch in the dtype of `output`. `dtype` is the dtype of matrix products."""
    x, mask = encode(weights, config, batch, dtype=dtype), batch["attention_mask"]
    if output.pooling != "none":
        x = mean_of_tokens(x, mask) if output.pooling == "mean" else tf.cast(x[:, 0], tf.float32)
    if output.normalize:
        x /= tf.maximum(tf.norm(x, axis=-1, keepdims=True), LEAST_NORM)
    return {"vectors": tf.cast(x, tf.as_dtype(output.dtype))}


def is_rounded(name: str, weight: WeightLayout) -> bool:
    """Check whether a weight is stored in the dtype of matrix products, as the matrices of layers are."""
    return weight.transposed and name.startswith(OF_LAYERS)


def weight_specs(config: Config, dtype: tf.DType, layout: Layout) -> dict[str, jax.ShapeDtypeStruct]:
    """Return shape, dtype and sharding of each weight of the encoder, by name. `dtype` is the dtype of matrix products."""
    specs = layout.weights(config)
    return {
        name: specs[name].update(dtype=dtype.as_numpy_dtype) if is_rounded(name, weight) else specs[name]
        for name, weight in of_encoder(config).items()
    }


def program_of(config: Config, output: VectorOptions, *, rows: int, length: int, layout: Layout) -> Program:
    """Return the program that `Encoder` runs on a TPU or GPU for `rows` texts of `length` tokens, over all devices."""
    dtype = tf.as_dtype(output.dtype)
    return rows_program(
        "embed",
        functools.partial(vectors, config=config, output=output, dtype=dtype),
        shape=config,
        layout=layout,
        batch={name: tf.TensorSpec([rows, length], tf.int32) for name in ("input_ids", "attention_mask")},
        dtype=dtype,
        weights=weight_specs(config, dtype, layout),
    )

"""Run a model on the devices for prediction: token ids of inputs in, token ids and scores of answers out."""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from t5prep.errors import UsageError
from t5prep.options.fields import changed
from t5prep.options.generation import Generation
from t5prep.options.models import ModelOptions
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.model.architecture import Config, ModelConfig
from t5prep.training.model.beam_search import search
from t5prep.training.model.forward import forward, with_mask
from t5prep.training.model.weight_layout import weight_bytes
from t5prep.training.objectives import HeadObjective
from t5prep.training.run.run import Model
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.row_programs import OnRows, on_rows
from t5prep.training.runtime.state import put_weights
from t5prep.training.settings.padding import OF_T5, Padding
from t5prep.training.step.step import dtype_of


class Device:
    """Answer batches of at most `rows` inputs with one model, whose weights stay on the devices.

    Raises UsageError if a requested device does not exist or has too little memory, if there are more beams than tokens allow,
    or if the model's weights are not finite.
    """

    def __init__(
        self,
        opened: Model,
        *,
        generation: Generation,
        rows: int,
        tokenizer: Tokenizer,
        options: ModelOptions = ModelOptions(),  # noqa: B008 - frozen
    ) -> None:
        layout = open_layout(tpu=options.tpu, gpus=options.gpus, shard=None, weight_bytes=weight_bytes(opened.config))
        self.rows = -(-rows // layout.replicas) * layout.replicas
        self._generation, self._tokenizer = generation, tokenizer
        if 2 * generation.beams > opened.config.vocab_size:
            max_beams = opened.config.vocab_size // 2
            raise UsageError(
                f"--beams {generation.beams} is too many for a model with {opened.config.vocab_size:,} "
                f"tokens. Use at most {max_beams:,} beams.",
                code="option.out-of-range",
            )
        self._weights = put_weights(opened.weights, layout.weights(opened.config))
        check_finite(self._weights, layout, name=opened.name)
        dtype = dtype_of("auto", platform=layout.platform)
        objective = opened.config.objective
        self._pairs = isinstance(objective, HeadObjective)
        if isinstance(opened.config, ModelConfig) and objective.target.is_text:
            self._answers = answers_on_rows(opened.config, generation, layout=layout, dtype=dtype)
        else:
            fixed = {"config": opened.config, "objective": objective, "options": generation, "dtype": dtype}
            answers = functools.partial(_answers_of_head, **fixed)
            self._answers = on_rows("generate", answers, shape=opened.config, layout=layout, dtype=dtype)

    def __call__(self, inputs: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return answers, int32[inputs, answers, max_length], and scores, float32[inputs, answers], best first.

        For tags, answers are int32[inputs, 1, length] and scores float32[inputs, 1, length], one for each token.

        inputs: at most `rows` arrays int32[<= length]. The device always gets a batch [rows, length], so that one program per
        length is compiled.
        """
        batch = batch_of(inputs, [self.rows, length], tokenizer=self._tokenizer, pairs=self._pairs)
        if self._generation.sample:
            batch["uniform"] = uniform(batch["input_ids"], self._generation, pad_id=self._tokenizer.pad_id)
        with enough_memory(self.rows, beams=self._generation.beams):
            answer = {name: np.asarray(value) for name, value in self._answers(self._weights, batch).items()}
        return answer["ids"][: len(inputs)], answer["scores"][: len(inputs)]


def check_generates(opened: Model, generation: Generation) -> None:
    """Raise UsageError if options of generation are set that have no effect on a model with classes or numbers."""
    # The most likely classes are the answers, each with its score. `answers` also sets the number of beams.
    allowed = {"answers", "scores", *(["beams"] if generation.answers > 1 else [])}
    names = [field.name for field in dataclasses.fields(generation) if field.name not in allowed]
    if (options := changed(generation, *names)) and not opened.config.objective.target.is_text:
        raise UsageError(
            f"{opened.name} predicts classes or numbers and generates no text. Remove {' '.join(options)}",
            code="option.inapplicable",
        )


def check_finite(weights: Mapping[str, jax.Array], layout: Layout, *, name: str) -> None:
    """Raise UsageError if weights on the devices, of the model `name`, are not finite."""
    for variable, weight in weights.items():
        # On a CPU, numpy reads the device's memory without a compilation. isfinite checks each value: XLA's minimum or maximum
        # may ignore a NaN.
        finite = np.isfinite(np.asarray(weight)) if layout.platform == "cpu" else jnp.isfinite(weight)
        if not finite.all():
            raise UsageError(
                f"The weight {variable} of {name} contains NaN or infinity, so the model cannot answer. "
                "Choose another checkpoint (--checkpoint), or export the model again.",
                code="weights.nonfinite",
            )


def batch_of(
    inputs: Sequence[np.ndarray], shape: Sequence[int], *, tokenizer: Tokenizer, pairs: bool
) -> dict[str, np.ndarray]:
    """Return `inputs`, int32[<= length] each, as a batch of `shape`, [rows, length]. Unused rows hold only EOS.

    pairs: mark the second text of a pair by 2 in `attention_mask`, as `forward.token_mask` does.
    """
    ids, mask = np.full(shape, tokenizer.pad_id, np.int32), np.zeros(shape, np.int32)
    for row in range(len(ids)):
        tokens = inputs[row] if row < len(inputs) else np.array([tokenizer.eos_id])
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        if pairs:
            mask[row, 1 : len(tokens)] += np.cumsum(tokens == tokenizer.eos_id)[:-1] > 0
    return {"input_ids": ids, "attention_mask": mask}


@contextlib.contextmanager
def enough_memory(rows: int, *, beams: int = 1) -> Iterator[None]:
    """Turn an error of too little device memory in this block into a UsageError that advises on `rows` and `beams`."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "out of memory" not in str(error).lower() and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        with_beams = f" with {beams} beams each" if beams > 1 else ""
        raise UsageError(
            f"The devices have too little memory for {rows} rows at a time{with_beams}. Use a smaller "
            f"--batch{' or fewer --beams' if with_beams else ''}.",
            code="device.insufficient-memory",
        ) from error


def _answers_of_head(
    weights: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
    *,
    config: Config,
    objective: HeadObjective,
    options: Generation,
    dtype: tf.DType,
) -> dict[str, tf.Tensor]:
    """Return `ids` and `scores` of the answers of a model with a head (`HeadObjective.answers`)."""
    return objective.answers(forward(weights, config, batch, dtype=dtype), count=options.answers)


def answers_on_rows(
    config: ModelConfig,
    options: Generation,
    *,
    layout: Layout,
    dtype: tf.DType,
    cache_path: str = "",
    padding: Padding = OF_T5,
) -> OnRows:
    """Return a function (weights, batch) → `ids`, int32[rows, answers, length], and `scores`, float32[rows, answers].

    The batch has `input_ids`, and `uniform` if answers are sampled (see `search.search`). Without an `attention_mask` in the
    batch, `padding` defines it. cache_path: the folder of compiled programs; "" for none.
    """

    def answers(weights: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        mask, numbers = with_mask(batch, padding)["attention_mask"], batch.get("uniform")
        outputs = search(weights, config, batch["input_ids"], mask, options=options, uniform=numbers, dtype=dtype)
        return dict(zip(("ids", "scores"), outputs, strict=True))

    return on_rows("generate", answers, shape=config, layout=layout, dtype=dtype, cache_path=cache_path)


def uniform(ids: np.ndarray, generation: Generation, *, pad_id: int) -> np.ndarray:
    """Return random numbers between 0 and 1, float32[rows, answers, max_length], from the seed and each row's tokens.

    The numbers of a row thus do not depend on other rows or on the size of the batch. ids: int32[rows, length].
    """
    shape = (generation.answers, generation.max_length)
    samples = np.empty([len(ids), *shape], np.float32)
    for row, row_ids in enumerate(ids):
        tokens = row_ids[row_ids != pad_id].tobytes()
        key = hashlib.blake2b(tokens, digest_size=16, key=generation.seed.to_bytes(8, "big")).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(key, "big")))
        samples[row] = generator.random(shape, np.float32)
    return samples

"""Compute a step of training: the summed loss, its gradients, and the next weights.

The sum of losses and the number of targets stay separate until those of all replicas and micro-batches are added up. Only then
the sum is divided. Thus the loss does not depend on the division of a batch, and a part without targets adds nothing.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from t5prep.errors import UsageError
from t5prep.training.model.architecture import Config
from t5prep.training.model.forward import forward, with_mask
from t5prep.training.model.lora import merged, trained_layouts
from t5prep.training.model.switches import is_on
from t5prep.training.settings.padding import OF_T5, Padding
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.optimizer import Adafactor, AdamW, Optimizer
from t5prep.training.step.schedules import Schedule, schedule


class Sums(NamedTuple):
    """The values that are added up over replicas and micro-batches: float32 scalars."""

    loss: tf.Tensor  # the minimized loss, summed over targets
    targets: tf.Tensor  # the number of labels that are not -100
    correct: tf.Tensor  # the number of labels that are predicted correctly

    @classmethod
    def of(cls, losses: tf.Tensor, correct: tf.Tensor, is_target: tf.Tensor) -> "Sums":
        """Return the sums of the results of `objectives.Objective.losses`, tensors of one shape."""
        return cls(
            loss=tf.reduce_sum(tf.where(is_target, losses, 0.0)),
            targets=tf.reduce_sum(tf.cast(is_target, tf.float32)),
            correct=tf.reduce_sum(tf.cast(is_target & correct, tf.float32)),
        )


Batch = Mapping[str, tf.Tensor]
Tensors = dict[str, tf.Tensor]
# Prefixes of the names of variables in layers: of a T5's two stacks, and of an encoder.
OF_LAYERS = ("encoder.", "decoder.", "layers.")
NO_COPIES: Mapping[str, tf.Tensor] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """The functions of a training step. Weights and gradients are dicts by the names in `weight_layout`.

    config: of the model, with dropout rate and adapters. optimizer: computes updates. settings: of the run. dtype: of matrix
    products. padding: defines the mask. Each replica's batch is cut into `settings.accumulate` micro-batches, computed one after
    the other. Dropout masks depend on seed and step.
    """

    config: Config
    optimizer: Optimizer
    settings: TrainConfig
    dtype: tf.DType = tf.float32
    padding: Padding = OF_T5

    @property
    def rounded(self) -> tuple[str, ...]:
        """Return the names of the matrices with a copy in the products' dtype (`state.Variables.copies`): those of layers.

        There are none in float32, with adapters (the matrices do not change), or if `switches` turns copies off.
        """
        if self.dtype == tf.float32 or self.config.lora_rank or not is_on("copies"):
            return ()
        layouts = trained_layouts(self.config).items()
        return tuple(name for name, layout in layouts if layout.transposed and name.startswith(OF_LAYERS))

    def copies_of(self, weights: Tensors) -> Tensors:
        """Return copies of the matrices named by `rounded`, in the dtype of products."""
        return {name: tf.cast(weights[name], self.dtype) for name in self.rounded}

    def gradients(
        self, weights: Tensors, batch: Batch, index: tf.Tensor, copies: Batch = NO_COPIES
    ) -> tuple[Tensors, Sums]:
        """Return the gradients of the summed loss of one replica's batch, in the dtype of their computation, and the sums.

        batch: int32[rows of this replica, length] each, see `forward.forward`, with or without `attention_mask`. index: int32,
        different for each step and replica, for dropout. copies: the result of `copies_of`.
        """
        parts, full_weights, weights = self.settings.accumulate, weights, {**weights, **copies}
        rows = batch["labels"].shape[0]
        if rows % parts:
            raise UsageError(
                f"A replica's batch of {rows} rows cannot be divided into {parts} equal parts. Set accumulate "
                f"to a divisor of {rows}.",
                code="device.indivisible-batch",
            )
        if parts == 1:
            return self.part_gradients(weights, batch, index)
        cut = {name: tf.reshape(x, [parts, rows // parts, *x.shape[1:]]) for name, x in batch.items()}

        def add_part(part: tf.Tensor, total: tuple[Tensors, Sums]) -> tuple[tf.Tensor, tuple[Tensors, Sums]]:
            """Return the number of the next part, and `total` with the gradients and sums of the rows of this `part`."""
            gradients = self.part_gradients(weights, {name: x[part] for name, x in cut.items()}, index * parts + part)
            return part + 1, tf.nest.map_structure(
                lambda sum_, gradient: sum_ + tf.cast(gradient, sum_.dtype), total, gradients
            )

        zeros = {name: tf.zeros_like(full_weights[name]) for name in trained_layouts(self.config)}
        begin = (tf.constant(0), (zeros, Sums(*[tf.constant(0.0)] * 3)))
        return tf.while_loop(lambda part, _: part < parts, add_part, begin, maximum_iterations=parts)[1]

    def part_gradients(self, weights: Tensors, batch: Batch, index: tf.Tensor) -> tuple[Tensors, Sums]:
        """Return the gradients of the summed loss of one micro-batch, and its sums. index: different for each micro-batch."""
        settings = self.settings
        trained = {name: weights[name] for name in trained_layouts(self.config)}
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trained)
            scores = forward(
                merged(weights, self.config),
                self.config,
                with_mask(batch, self.padding),
                dtype=self.dtype,
                dropout_seed=tf.stack([settings.seed, index]) if settings.dropout else None,
                remat=settings.remat,
            )
            smoothing, z_loss = settings.label_smoothing, settings.z_loss
            losses = self.config.objective.losses(scores, batch["labels"], label_smoothing=smoothing, z_loss=z_loss)
            sums = Sums.of(*losses)
        gradients = tape.gradient(sums.loss, trained)
        return {name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()}, sums

    def update(
        self,
        weights: Tensors,
        slots: Mapping[str, Tensors],
        gradients: Tensors,
        sums: Sums,
        step: tf.Tensor,
        learning_rate: tf.Tensor,
        copies: Batch = NO_COPIES,
    ) -> tuple[Tensors, dict[str, Tensors], Tensors, Tensors]:
        """Return the next weights and slots, the step's metrics, and the copies of the next weights.

        gradients, sums: added up over all replicas. The metrics are float32 scalars: `loss` and `accuracy` over all targets,
        `targets`, and the `gradient_norm` before clipping. A batch without any target has gradients of 0.
        """
        targets = tf.maximum(sums.targets, 1.0)
        factor = 1.0 / targets
        squares = [tf.reduce_sum(tf.square(tf.cast(gradient, tf.float32))) for gradient in gradients.values()]
        norm = factor * tf.sqrt(tf.add_n(squares))
        if self.settings.clip_norm:
            factor *= tf.minimum(1.0, self.settings.clip_norm / tf.maximum(norm, 1e-30))
        new_weights, new_slots = dict(weights), {}
        for name, layout in trained_layouts(self.config).items():
            new_weights[name], new_slots[name] = self.optimizer.update(
                weights[name],
                gradients[name],
                slots[name],
                layout=layout,
                learning_rate=learning_rate,
                step=step,
                scale=factor,
                rounded=copies.get(name),
            )
        metrics = {
            "loss": sums.loss / targets,
            "accuracy": sums.correct / targets,
            "targets": sums.targets,
            "gradient_norm": norm,
        }
        return new_weights, new_slots, metrics, self.copies_of(new_weights)


def batch_specs(rows: int, *, input_length: int, target_length: int, packed: bool = False) -> dict[str, tf.TensorSpec]:
    """Return the specs of one replica's batch of `rows` rows, by feature."""
    names = {"input_ids": input_length, "labels": target_length}
    if packed:
        names |= {"input_segment_ids": input_length, "input_positions": input_length}
        names |= {"label_segment_ids": target_length, "label_positions": target_length}
    return {name: tf.TensorSpec([rows, length], tf.int32, name=name) for name, length in names.items()}


def shape_of(config: TrainConfig, shape: Config) -> Config:
    """Return the model config `shape` with the dropout rate and the adapters of a run's settings."""
    alpha = config.lora_alpha if config.lora else 0.0
    return dataclasses.replace(shape, dropout_rate=config.dropout, lora_rank=config.lora, lora_alpha=alpha)


def optimizer_of(config: TrainConfig) -> Optimizer:
    """Return the optimizer of a run's settings.

    In a run with adapters the learning rate is absolute. A rate relative to a weight's size would hardly change adapters, one
    matrix of which is initialized to 0.
    """
    if config.optimizer == "adafactor":
        scaled = config.parameter_scale and not config.lora
        return Adafactor(decay_rate=config.decay_rate, multiply_by_parameter_scale=scaled)
    return AdamW(beta_1=config.beta1, beta_2=config.beta2, epsilon=config.epsilon, weight_decay=config.weight_decay)


def checkpoint_bytes(config: TrainConfig, shape: Config) -> int:
    """Return the size of a checkpoint in bytes: the trained variables and the optimizer's slots, in float32."""
    optimizer, layouts = optimizer_of(config), trained_layouts(shape_of(config, shape)).values()
    shapes = [size for layout in layouts for size in (layout.shape, *optimizer.slot_shapes(layout).values())]
    return 4 * sum(map(math.prod, shapes))


def schedule_of(config: TrainConfig, *, steps: int) -> Schedule:
    """Return the learning rate schedule of a run of `steps` steps.

    A `config.warmup` below 1 is a share of them. One above `steps`, as that of a recipe in a short trial, becomes a tenth.
    """
    share = 0.1 if config.warmup > steps else config.warmup
    warmup = round(share if share >= 1 else share * steps)
    return schedule(
        config.schedule,
        learning_rate=config.learning_rate,
        total_steps=steps,
        warmup_steps=warmup,
        power=config.power,
        end_rate=config.end_rate,
    )


def dtype_of(name: str, *, platform: str) -> tf.DType:
    """Return the dtype of matrix products by its name. "auto" is float32 if `platform` is "cpu", bfloat16 otherwise."""
    if name == "auto":
        return tf.float32 if platform == "cpu" else tf.bfloat16
    return tf.as_dtype(name)

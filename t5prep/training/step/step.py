"""Compute a step of training: the loss as a sum and not as a mean, its gradients, and the next weights.

The sum and the number of targets stay separate until all replicas and all micro-batches are added up; only then is the
sum divided. So the loss does not depend on how a batch is split, and a part without targets adds nothing.
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
from t5prep.training.settings.config import TrainConfig
from t5prep.training.settings.padding import OF_T5, Padding
from t5prep.training.step.optimizer import Adafactor, AdamW, Optimizer
from t5prep.training.step.schedules import Schedule, schedule


class Sums(NamedTuple):
    """The values that are added up over replicas and micro-batches: float32 scalars."""

    loss: tf.Tensor  # the loss that is minimised, summed over targets
    targets: tf.Tensor  # how many labels are not -100
    correct: tf.Tensor  # how many of them have the highest logit

    @classmethod
    def of(cls, losses: tf.Tensor, correct: tf.Tensor, is_target: tf.Tensor) -> "Sums":
        """Return the sums over labels, of which each has a loss (`objectives.Objective.losses`)."""
        return cls(
            loss=tf.reduce_sum(tf.where(is_target, losses, 0.0)),
            targets=tf.reduce_sum(tf.cast(is_target, tf.float32)),
            correct=tf.reduce_sum(tf.cast(is_target & correct, tf.float32)),
        )


Batch = Mapping[str, tf.Tensor]
Tensors = dict[str, tf.Tensor]
# What the names of the variables in layers begin with: of a T5's two stacks, and of an encoder with a head.
OF_LAYERS = ("encoder.", "decoder.", "layers.")
NO_COPIES: Mapping[str, tf.Tensor] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """A step of a model with an optimizer, by a run's settings. Weights and gradients are dicts by the names of `weight_layout`.

    Each replica's batch is cut into `accumulate` parts, computed one after the other. Dropout is at the config's rate, with
    masks from the seed and the step. dtype: that of products.
    """

    config: Config
    optimizer: Optimizer
    settings: TrainConfig
    dtype: tf.DType = tf.float32
    padding: Padding = OF_T5

    @property
    def rounded(self) -> tuple[str, ...]:
        """Return the names of the matrices that a device keeps in the products' dtype too; none in float32 or with adapters.

        They are those of the layers. The embeddings are also added up in float32.
        """
        if self.dtype == tf.float32 or self.config.lora_rank or not is_on("copies"):
            return ()
        layouts = trained_layouts(self.config).items()
        return tuple(name for name, layout in layouts if layout.transposed and name.startswith(OF_LAYERS))

    def copies_of(self, weights: Tensors) -> Tensors:
        """Return the `rounded` matrices in the dtype of products."""
        return {name: tf.cast(weights[name], self.dtype) for name in self.rounded}

    def gradients(
        self, weights: Tensors, batch: Batch, index: tf.Tensor, copies: Batch = NO_COPIES
    ) -> tuple[Tensors, Sums]:
        """Return the gradients of the summed loss of one replica's batch, in the dtype they were computed in, and sums.

        batch: int32[rows of this replica, length] each, see `model.forward`; its mask may be left out. index: int32,
        unique by step and replica; copies: those of `copies_of`.
        """
        parts, full_weights, weights = self.settings.accumulate, weights, {**weights, **copies}
        rows = batch["labels"].shape[0]
        if rows % parts:
            raise UsageError(
                f"A replica's batch of {rows} rows cannot be cut into {parts} equal parts: make accumulate a divisor."
            )
        if parts == 1:
            return self.part_gradients(weights, batch, index)
        cut = {name: tf.reshape(x, [parts, rows // parts, *x.shape[1:]]) for name, x in batch.items()}

        def add_part(part: tf.Tensor, total: tuple[Tensors, Sums]) -> tuple[tf.Tensor, tuple[Tensors, Sums]]:
            gradients = self.part_gradients(weights, {name: x[part] for name, x in cut.items()}, index * parts + part)
            return part + 1, tf.nest.map_structure(
                lambda sum_, gradient: sum_ + tf.cast(gradient, sum_.dtype), total, gradients
            )

        zeros = {name: tf.zeros_like(full_weights[name]) for name in trained_layouts(self.config)}
        begin = (tf.constant(0), (zeros, Sums(*[tf.constant(0.0)] * 3)))
        return tf.while_loop(lambda part, _: part < parts, add_part, begin, maximum_iterations=parts)[1]

    def part_gradients(self, weights: Tensors, batch: Batch, index: tf.Tensor) -> tuple[Tensors, Sums]:
        """Return the gradients of the summed loss of one micro-batch, and its sums."""
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
        """Return the next weights and slots, the step's metrics, float32 scalars, and the next weights' copies.

        gradients, sums: of all replicas together. Metrics: `loss` and `accuracy` over all targets, `targets`, and the
        `gradient_norm` before clipping. A batch without any target has gradients of zero.
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
    """Return the static shapes of one replica's batch, by name."""
    names = {"input_ids": input_length, "labels": target_length}
    if packed:
        names |= {"input_segment_ids": input_length, "input_positions": input_length}
        names |= {"label_segment_ids": target_length, "label_positions": target_length}
    return {name: tf.TensorSpec([rows, length], tf.int32, name=name) for name, length in names.items()}


def shape_of(config: TrainConfig, shape: Config) -> Config:
    """Return a model's shape with the dropout and the adapters of a run."""
    alpha = config.lora_alpha if config.lora else 0.0
    return dataclasses.replace(shape, dropout_rate=config.dropout, lora_rank=config.lora, lora_alpha=alpha)


def optimizer_of(config: TrainConfig) -> Optimizer:
    """Return the optimizer with its settings.

    Adapters begin at zero, so a rate relative to their size would never move them: with them the rate is absolute.
    """
    if config.optimizer == "adafactor":
        scaled = config.parameter_scale and not config.lora
        return Adafactor(decay_rate=config.decay_rate, multiply_by_parameter_scale=scaled)
    return AdamW(beta_1=config.beta1, beta_2=config.beta2, epsilon=config.epsilon, weight_decay=config.weight_decay)


def checkpoint_bytes(config: TrainConfig, shape: Config) -> int:
    """Return the size of a checkpoint of a run: what is trained and the optimizer's slots, in float32."""
    optimizer, layouts = optimizer_of(config), trained_layouts(shape_of(config, shape)).values()
    shapes = [size for layout in layouts for size in (layout.shape, *optimizer.slot_shapes(layout).values())]
    return 4 * sum(map(math.prod, shapes))


def schedule_of(config: TrainConfig, *, steps: int) -> Schedule:
    """Return the learning rate schedule over `steps`; a warmup below 1 is a share of them."""
    warmup = round(config.warmup if config.warmup >= 1 else config.warmup * steps)
    return schedule(
        config.schedule,
        learning_rate=config.learning_rate,
        total_steps=steps,
        warmup_steps=warmup,
        power=config.power,
        end_rate=config.end_rate,
    )


def dtype_of(name: str, *, platform: str) -> tf.DType:
    """Return the dtype of matrix products: `auto` is float32 on a CPU, bfloat16 on a TPU ("tpu") or GPU ("cuda")."""
    if name == "auto":
        return tf.float32 if platform == "cpu" else tf.bfloat16
    return tf.as_dtype(name)

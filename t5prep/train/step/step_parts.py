"""Build the parts of a training step that a configuration names, for `runtime.programs`."""

import dataclasses
import math

import tensorflow as tf

from t5prep.train.model.architecture import Config
from t5prep.train.model.lora import trained_layouts
from t5prep.train.settings.config import TrainConfig
from t5prep.train.step.optimizer import Adafactor, AdamW, Optimizer
from t5prep.train.step.schedules import Schedule, schedule
from t5prep.train.step.step import StepOptions


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
    shapes = [size for own in layouts for size in (own.shape, *optimizer.slot_shapes(own).values())]
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


def options_of(config: TrainConfig, *, dtype: tf.DType) -> StepOptions:
    """Return the options of a step, without model and optimizer."""
    return StepOptions(
        dtype=dtype,
        label_smoothing=config.label_smoothing,
        z_loss=config.z_loss,
        clip_norm=config.clip_norm or None,
        accumulation=config.accumulate,
        remat=config.remat,
        dropout=config.dropout > 0,
        seed=config.seed,
    )

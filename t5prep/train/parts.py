"""Build the parts of a training step that a configuration names, for `runtime.programs`."""

import tensorflow as tf

from t5prep.train.config import TrainConfig
from t5prep.train.optimizer import Adafactor, AdamW, Optimizer
from t5prep.train.schedules import Schedule, schedule
from t5prep.train.step import StepOptions


def optimizer_of(config: TrainConfig) -> Optimizer:
    """Return the optimizer with its settings."""
    if config.optimizer == "adafactor":
        return Adafactor(decay_rate=config.decay_rate, multiply_by_parameter_scale=config.parameter_scale)
    return AdamW(beta_1=config.beta1, beta_2=config.beta2, epsilon=config.epsilon, weight_decay=config.weight_decay)


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

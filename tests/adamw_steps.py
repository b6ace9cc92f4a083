"""Ten steps of AdamW on one batch, as a run makes them: what tests/torch_steps.py makes of the same in PyTorch."""

from typing import Any

import numpy as np
import tensorflow as tf
from torch_steps import DECAY, RATE, STEPS

from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.optimizer import AdamW
from t5prep.training.step.step import TrainStep


def _begin(config: Any, weights: dict[str, Any]) -> tuple[TrainStep, dict[str, tf.Tensor]]:
    step = TrainStep(config, AdamW(weight_decay=DECAY), TrainConfig(dropout=0.0, z_loss=0.0))
    return step, {name: tf.constant(np.asarray(value)) for name, value in weights.items()}


def gradients_of(
    config: Any, weights: dict[str, Any], batch: dict[str, tf.Tensor]
) -> tuple[float, dict[str, tf.Tensor]]:
    """Return the loss of a batch and its gradients, by our names: TensorFlow's, in a thirtieth of the time of compiling them."""
    step, weights = _begin(config, weights)
    gradients, sums = step.gradients(weights, batch, tf.constant(0))
    return float(sums.loss / sums.targets), {name: gradient / sums.targets for name, gradient in gradients.items()}


def train(
    config: Any, weights: dict[str, Any], batch: dict[str, tf.Tensor], *, steps: int = STEPS
) -> tuple[list[float], dict[str, tf.Tensor]]:
    """Return the loss before each step, and the gradients of the first, by our names: of programs that XLA compiles.

    With one step nothing is updated, and no optimizer compiled, which is half of the time: how AdamW moves weights does
    not depend on the model.
    """
    step, weights = _begin(config, weights)
    slots = {
        name: {slot: tf.zeros(shape) for slot, shape in step.optimizer.slot_shapes(layout).items()}
        for name, layout in weight_layouts(config).items()
    }

    @tf.function(jit_compile=True, autograph=False)  # eager TensorFlow dies in a product of stacked matrices
    def run(weights: Any, slots: Any, number: tf.Tensor) -> Any:
        gradients, sums = step.gradients(weights, batch, number)
        mean = {name: tf.cast(gradient, tf.float32) / sums.targets for name, gradient in gradients.items()}
        if steps == 1:
            return weights, slots, sums.loss / sums.targets, mean
        weights, slots, metrics, _ = step.update(weights, slots, gradients, sums, number, tf.constant(RATE))
        return weights, slots, metrics["loss"], mean

    losses: list[float] = []
    first: dict[str, tf.Tensor] = {}
    for number in range(steps):
        weights, slots, loss, gradients = run(weights, slots, tf.constant(number))
        losses.append(float(loss))
        first = first or gradients
    return losses, first

"""Update weights by Adafactor as in T5X, or by AdamW: pure functions of weight, gradient and slots.

A variable may stack many weights (`weight_layout`). Each weight of the stack is scaled, factored and clipped separately: a mean
is taken over the weight's axes, and has one value for each weight in the stack.
"""

import dataclasses
import math
from collections.abc import Mapping

import tensorflow as tf

from t5prep.training.model.weight_layout import WeightLayout

Slots = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Adafactor (Shazeer and Stern 2018) with the defaults of t5x/adafactor.py; no momentum, no weight decay.

    The state of a matrix with at least `min_dim_size_to_factor` rows and columns is one float for each row and each column.
    `multiply_by_parameter_scale=False` makes `learning_rate` absolute (as Hugging Face recommends for fine-tuning).
    """

    decay_rate: float = 0.8
    clipping_threshold: float | None = 1.0
    multiply_by_parameter_scale: bool = True
    min_dim_size_to_factor: int = 128
    epsilon_gradient: float = 1e-30
    epsilon_parameter: float = 1e-3

    def factored(self, layout: WeightLayout) -> bool:
        """Check whether the state of a variable is factored: its weights are large enough matrices."""
        weight = layout.shape[layout.stacked_axes :]
        return len(weight) == 2 and min(weight) >= self.min_dim_size_to_factor

    def slot_shapes(self, layout: WeightLayout) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the float32 state: `rows` and `columns` if it is factored, else `squares`."""
        if self.factored(layout):
            return {"rows": layout.shape[:-1], "columns": (*layout.shape[:-2], layout.shape[-1])}
        return {"squares": layout.shape}

    def update(
        self,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        *,
        layout: WeightLayout,
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        scale: tf.Tensor | float = 1.0,
        rounded: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Slots]:
        """Return the next weight and slots.

        step: the number of earlier updates. scale: a factor of the gradient. rounded: the weight's copy in bfloat16, if there is
        one; reading the size of the weight from it moves half of the bytes.
        """
        decay = 1.0 - tf.pow(tf.cast(step, tf.float32) + 1.0, -self.decay_rate)
        gradient = tf.cast(gradient, tf.float32)
        squared, scale_squared = tf.square(gradient), tf.square(scale)
        if self.factored(layout):
            # Scale the sums and not the squares, so that XLA shares the unscaled sums with the gradient's norm.
            height, width = layout.shape[-2:]
            row_sums, column_sums = (tf.reduce_sum(squared, axis=axis) * scale_squared for axis in (-1, -2))
            rows = decay * slots["rows"] + (1.0 - decay) * (row_sums / width + self.epsilon_gradient)
            columns = decay * slots["columns"] + (1.0 - decay) * (column_sums / height + self.epsilon_gradient)
            row_scale = tf.math.rsqrt(rows / tf.reduce_mean(rows, axis=-1, keepdims=True))
            column_scale = tf.math.rsqrt(columns)
            direction = gradient * row_scale[..., :, None] * column_scale[..., None, :]
            # The squared norm of `direction`, from `squared`: XLA need not compute `direction` for it.
            row_squares = tf.reduce_sum(squared * tf.square(column_scale)[..., None, :], axis=-1)
            size = tf.reduce_sum(row_squares * tf.square(row_scale), axis=-1)
            state = {"rows": rows, "columns": columns}
        else:
            squares = decay * slots["squares"] + (1.0 - decay) * (squared * scale_squared + self.epsilon_gradient)
            direction = gradient * tf.math.rsqrt(squares)
            size = weight_sums(tf.square(direction), layout)
            state = {"squares": squares}
        change = learning_rate * scale
        if self.clipping_threshold is not None:
            change /= tf.maximum(1.0, scale * root_mean(size, layout) / self.clipping_threshold)
        if self.multiply_by_parameter_scale:
            read = weight if rounded is None else tf.cast(rounded, tf.float32)
            size = weight_sums(tf.square(read), layout)
            change *= tf.maximum(root_mean(size, layout), self.epsilon_parameter)
        return weight - change * direction, state


@dataclasses.dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): PyTorch's defaults, except for no decay.

    Norms and relative position biases do not decay.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def slot_shapes(self, layout: WeightLayout) -> dict[str, tuple[int, ...]]:
        """Return two slots of the weight's own shape: the means of the gradient and of its square."""
        return {"means": layout.shape, "squares": layout.shape}

    def update(
        self,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        *,
        layout: WeightLayout,
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        scale: tf.Tensor | float = 1.0,
        rounded: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Slots]:
        """Return the next weight and slots; the arguments are those of `Adafactor.update`."""
        steps = tf.cast(step, tf.float32) + 1.0
        gradient = tf.cast(gradient, tf.float32) * scale
        means = self.beta_1 * slots["means"] + (1.0 - self.beta_1) * gradient
        squares = self.beta_2 * slots["squares"] + (1.0 - self.beta_2) * tf.square(gradient)
        # 1 - beta ** steps. As a difference of float32 numbers, its relative error would be up to 1.3e-5
        # (docs/decisions/015-correct-adamw-bias-with-expm1.md).
        correction_1, correction_2 = (
            -tf.math.expm1(steps * math.log(max(beta, 1e-30))) for beta in (self.beta_1, self.beta_2)
        )
        direction = means / correction_1 / (tf.sqrt(squares / correction_2) + self.epsilon)
        if self.weight_decay and layout.decays:
            direction += self.weight_decay * weight
        return weight - learning_rate * direction, {"means": means, "squares": squares}


Optimizer = Adafactor | AdamW


def weight_sums(x: tf.Tensor, layout: WeightLayout) -> tf.Tensor:
    """Return the sum of x over each weight of a stack, one value for each."""
    return tf.reduce_sum(x, axis=list(range(layout.stacked_axes, x.shape.rank)))


def root_mean(sums: tf.Tensor, layout: WeightLayout) -> tf.Tensor:
    """Return root mean squares of weights that broadcast over a stack, from `sums` of squares, one for each weight."""
    weight = layout.shape[layout.stacked_axes :]
    return tf.reshape(tf.sqrt(sums / math.prod(weight)), [*sums.shape, *(1 for _ in weight)])

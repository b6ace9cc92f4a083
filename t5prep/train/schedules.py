"""Learning rates as functions of the step: step 0 is the first update, `total_steps - 1` the last.

Warmup rises in equal parts to the full rate at its last step, so that no update is made with a rate of zero and none
above the full one; decay would reach zero one step after the last.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from t5prep.errors import UsageError, did_you_mean

Schedule = Callable[[tf.Tensor], tf.Tensor]  # int step → float32 learning rate

NAMES = ("constant", "warmup_constant", "linear", "inverse_sqrt", "cosine")


def schedule(name: str, *, learning_rate: float, total_steps: int, warmup_steps: int = 0) -> Schedule:
    """One of `NAMES`.

    constant: always `learning_rate`. warmup_constant: up to it in `warmup_steps`, then always. linear: warmup, then
    down in a straight line. cosine: warmup, then down along half a cosine. inverse_sqrt: `learning_rate` for
    `warmup_steps`, then falling with the root of the step, as T5 was pre-trained (rate 0.01 and 10,000 steps; Raffel et
    al. 2020, 3.1.2).

    Raises UsageError for another name, or a warmup that is longer than the training.

    >>> rate = schedule("linear", learning_rate=1.0, total_steps=6, warmup_steps=2)
    >>> [float(rate(step)) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if name not in NAMES:
        raise UsageError(f'No schedule is named "{name}": choose one of {", ".join(NAMES)}.{did_you_mean(name, NAMES)}')
    if not 0 <= warmup_steps <= total_steps:
        raise UsageError(
            f"A warmup of {warmup_steps:,} steps does not fit into {total_steps:,} steps of training. Make it shorter: "
            "--set warmup=0.1 is a share of all steps."
        )
    warmup = float(max(warmup_steps, 1))
    remaining = float(max(total_steps - warmup_steps, 1))

    def rate(step: tf.Tensor) -> tf.Tensor:
        made = tf.cast(step, tf.float32)
        rise = tf.minimum(1.0, (made + 1.0) / warmup)
        left = tf.clip_by_value((total_steps - made) / remaining, 0.0, 1.0)
        if name == "constant":
            factor = tf.ones_like(made)
        elif name == "warmup_constant":
            factor = rise
        elif name == "linear":
            factor = tf.minimum(rise, left)
        elif name == "cosine":
            factor = tf.minimum(rise, 0.5 - 0.5 * tf.cos(math.pi * left))
        else:
            factor = tf.math.rsqrt(tf.maximum(made + 1.0, warmup) / warmup)
        return learning_rate * factor

    return rate

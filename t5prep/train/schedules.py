"""Compute learning rates as functions of the step: step 0 is the first update, `total_steps - 1` the last.

Warmup rises in equal steps and reaches the full rate at its last step, so no update has a rate of zero or one above the
full rate; decay would reach zero one step after the last.
"""

import math
from collections.abc import Callable

from t5prep.errors import UsageError, did_you_mean

Schedule = Callable[[int], float]  # step → learning rate

NAMES = ("constant", "warmup_constant", "linear", "inverse_sqrt", "cosine")


def schedule(name: str, *, learning_rate: float, total_steps: int, warmup_steps: int = 0) -> Schedule:
    """Return one of `NAMES`.

    constant: always `learning_rate`. warmup_constant: rises to it in `warmup_steps`, then stays. linear: warmup, then
    falls in a straight line. cosine: warmup, then falls along half a cosine. inverse_sqrt: `learning_rate` for
    `warmup_steps`, then falls with the square root of the step, as T5 was pre-trained (rate 0.01 and 10,000 steps;
    Raffel et al. 2020, 3.1.2).

    Raises UsageError for another name, or a warmup that is longer than the training.

    >>> rate = schedule("linear", learning_rate=1.0, total_steps=6, warmup_steps=2)
    >>> [rate(step) for step in range(6)]
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

    def rate(step: int) -> float:
        rise = min(1.0, (step + 1) / warmup)
        left = min(max((total_steps - step) / remaining, 0.0), 1.0)
        if name == "constant":
            return learning_rate
        if name == "warmup_constant":
            return learning_rate * rise
        if name == "linear":
            return learning_rate * min(rise, left)
        if name == "cosine":
            return learning_rate * min(rise, 0.5 - 0.5 * math.cos(math.pi * left))
        return learning_rate / math.sqrt(max(step + 1, warmup) / warmup)

    return rate

"""Compute learning rates as functions of the step: step 0 is the first update, `total_steps - 1` the last.

Warmup rises in equal steps, and reaches the full rate at its last step. Decay would reach its end one step after the last
update. Therefore no update has a rate of 0, or one above the full rate.
"""

import math
from collections.abc import Callable

from t5prep.errors import UsageError, did_you_mean

Schedule = Callable[[int], float]  # step → learning rate

NAMES = (
    *("constant", "warmup_constant", "linear", "constantlinear", "cosine", "polynomial"),
    *("inverse_sqrt", "warmup_inverse_sqrt"),
)


def schedule(
    name: str,
    *,
    learning_rate: float,
    total_steps: int,
    warmup_steps: int = 0,
    power: float = 1.0,
    end_rate: float = 0.0,
) -> Schedule:
    """Return the schedule `name`, one of NAMES. `learning_rate` is its highest rate, `warmup_steps` the length of the warmup.

    * constant: `learning_rate` at all steps.
    * warmup_constant: warmup, then constant.
    * linear: warmup, then a straight line to 0.
    * constantlinear: `learning_rate` for `warmup_steps`, then a straight line to 0 (wangcongcong123/ttt).
    * cosine: warmup, then half a cosine to 0.
    * polynomial: warmup, then a fall to `end_rate`, by the remaining share of steps to the power of `power`.
    * inverse_sqrt: `learning_rate` for `warmup_steps`, then a fall with the square root of the step. T5 was pre-trained so, with
      a rate of 0.01 and 10,000 steps (Raffel et al. 2020, 3.1.2).
    * warmup_inverse_sqrt: the same after a warmup (Vaswani et al. 2017, 5.3; T5X's linear_warmup * rsqrt_decay).

    Raises UsageError for an unknown name.

    >>> rate = schedule("linear", learning_rate=1.0, total_steps=6, warmup_steps=2)
    >>> [rate(step) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if name not in NAMES:
        raise UsageError(
            f'No schedule is named "{name}".{did_you_mean(name, NAMES)} Choose one of: {", ".join(NAMES)}.',
            code="setting.unknown-choice",
        )
    warmup = float(max(warmup_steps, 1))
    remaining = float(max(total_steps - warmup_steps, 1))

    def rate(step: int) -> float:
        rise = min(1.0, (step + 1) / warmup)
        remaining_share = min(max((total_steps - step) / remaining, 0.0), 1.0)
        root = math.sqrt(max(step + 1, warmup) / warmup)
        return {
            "constant": learning_rate,
            "warmup_constant": learning_rate * rise,
            "linear": learning_rate * min(rise, remaining_share),
            "constantlinear": learning_rate * remaining_share,
            "cosine": learning_rate * min(rise, 0.5 - 0.5 * math.cos(math.pi * remaining_share)),
            "polynomial": min(learning_rate * rise, end_rate + (learning_rate - end_rate) * remaining_share**power),
            "inverse_sqrt": learning_rate / root,
            "warmup_inverse_sqrt": learning_rate * rise / root,
        }[name]

    return rate

"""Keep bfloat16 copies of the matrices between the steps, so that no step begins by making them.

An update that writes a weight writes its copy too, which costs half of what reading and rounding all weights costs.
Copies are never saved: they are the rounded weights, and are made again when a run begins or goes on.
"""

from collections.abc import Callable
from typing import Any


class StepWithCopies:
    """Call a compiled step with the copies of the matrices that the step before it returned.

    `step` takes and returns copies as its last argument and result; `make` returns them for weights. It is called
    where the weights are not those of the step before, as at the begin of a run.
    """

    def __init__(self, step: Callable[..., tuple[Any, ...]], make: Callable[[Any], Any]) -> None:
        self._step, self._make = step, make
        self._weights: Any = None  # those that the copies belong to
        self._copies: Any = None

    def __call__(self, weights: Any, slots: Any, number: Any, batch: Any, rate: Any) -> tuple[Any, ...]:
        """Make one step: return weights, slots, number and metrics."""
        copies = self._copies if weights is self._weights else self._make(weights)
        self._weights = self._copies = None  # if the step fails, they are gone
        weights, slots, number, metrics, copies = self._step(weights, slots, number, batch, rate, copies)
        self._weights, self._copies = weights, copies
        return weights, slots, number, metrics

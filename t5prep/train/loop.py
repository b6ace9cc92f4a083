"""Run the inner training loop: start steps on the devices before earlier ones have ended; read their metrics later."""

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from t5prep.errors import T5prepError
from t5prep.train.runtime.programs import METRICS
from t5prep.train.runtime.state import Variables

# Steps that are started on the devices and not yet waited for. One is being computed, the input of the next one is
# being transferred; more would only keep more batches in memory.
AHEAD = 3

Step = Callable[..., tuple[Any, ...]]  # (weights, slots, step, batch, rate) → (weights, slots, step, metrics)


@dataclasses.dataclass(frozen=True)
class FinishedStep:
    """Hold a step that has ended: its number, counted from 1, and its metrics if they were wanted."""

    number: int
    metrics: dict[str, float] | None


class Stepper:
    """Make steps one after the other, and keep the host ahead of the devices.

    `batches` yields batches that are already being transferred to the devices; `wanted(number)` says whether the
    metrics of a step are needed. Only then are they fetched.
    """

    def __init__(
        self,
        step: Step,
        variables: Variables,
        batches: Iterator[Mapping[str, Any]],
        *,
        rate: Callable[[int], float],
        wanted: Callable[[int], bool],
        number: int = 0,
    ) -> None:
        self.variables = variables
        self.number = number  # of the last step that was started
        self._waited = 0.0
        self._step, self._batches, self._rate, self._wanted = step, batches, rate, wanted
        self._begun: collections.deque[tuple[int, Any]] = collections.deque()
        self._not_checked: list[tuple[int, Any]] = []  # steps since the last metrics that were fetched

    def begin(self) -> None:
        """Start one step on the devices."""
        since = time.monotonic()
        batch = next(self._batches)
        if not self._begun or self._begun[-1][1].is_ready():
            self._waited += time.monotonic() - since
        rate = np.float32(self._rate(self.number))
        *variables, metrics = self._step(*self.variables, batch, rate)
        self.variables = Variables(*variables)
        self.number += 1
        self._begun.append((self.number, metrics))

    def take_waited(self) -> float:
        """Return the seconds, since the last call, in which the devices only waited for a batch."""
        waited, self._waited = self._waited, 0.0
        return waited

    def ended(self, *, ahead: int = AHEAD) -> Iterator[FinishedStep]:
        """Yield steps in order until at most `ahead` started steps are left to yield.

        Raises T5prepError that names the first step whose loss is not finite.
        """
        while len(self._begun) > ahead:
            number, metrics = self._begun.popleft()
            self._not_checked.append((number, metrics))
            if not self._wanted(number) and ahead:
                metrics.block_until_ready()
                yield FinishedStep(number, None)
                continue
            values = np.asarray(metrics)
            if not math.isfinite(values[0]):
                self._refuse()
            self._not_checked.clear()
            named = dict(zip(METRICS, values.tolist(), strict=True)) | {"learning_rate": self._rate(number - 1)}
            yield FinishedStep(number, named if self._wanted(number) else None)

    def _refuse(self) -> None:
        losses = ((number, float(np.asarray(metrics)[0])) for number, metrics in self._not_checked)
        number, loss = next((number, loss) for number, loss in losses if not math.isfinite(loss))
        raise T5prepError(f"The loss of step {number:,} is {loss}: lower learning_rate, or set clip_norm.")

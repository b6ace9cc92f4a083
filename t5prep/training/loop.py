"""Make a run's steps, and log, save and evaluate when each is due, until the last step, a signal, or patience's end.

Steps are started on the devices before earlier ones have ended, and their metrics are read later.
"""

import collections
import contextlib
import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
import tensorflow as tf

from t5prep.errors import OutputError, T5prepError
from t5prep.io import atomic_files
from t5prep.io import signals as io_signals
from t5prep.training.evaluate.validation import Validation
from t5prep.training.log import CURVES, RunLog, say
from t5prep.training.run.checkpoint import State
from t5prep.training.run.checkpoint_tensors import CheckpointWriter
from t5prep.training.runtime import hosts
from t5prep.training.runtime.lowering import Tree
from t5prep.training.runtime.programs import METRICS
from t5prep.training.runtime.state import Variables
from t5prep.training.settings.config import TrainConfig

if TYPE_CHECKING:
    from t5prep.training.publish.pushes import CheckpointPushes

# Steps that are started on the devices and not yet waited for. One is being computed, the input of the next one is
# being transferred; more would only keep more batches in memory.
AHEAD = 3

Step = Callable[..., tuple[Tree, ...]]  # (weights, slots, step, batch, rate) → (weights, slots, step, metrics)


@dataclasses.dataclass(frozen=True)
class FinishedStep:
    """A step that has ended: its number, counted from 1, and its metrics if they were wanted."""

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
        batches: Iterator[Mapping[str, jax.Array]],
        *,
        rate: Callable[[int], float],
        needs_metrics: Callable[[int], bool],
        number: int = 0,
    ) -> None:
        self.variables = variables
        self.number = number  # of the last step that was started
        self._waited = 0.0
        self._step, self._batches, self._rate, self._wanted = step, batches, rate, needs_metrics
        self._begun: collections.deque[tuple[int, jax.Array]] = collections.deque()
        self._not_checked: list[tuple[int, jax.Array]] = []  # steps since the last metrics that were fetched

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

        Raises T5prepError that names the first step whose loss or gradient is not finite. The metrics of all steps are
        looked at where those of one are fetched, so before each checkpoint, and no step waits for it.
        """
        while len(self._begun) > ahead:
            number, metrics = self._begun.popleft()
            self._not_checked.append((number, metrics))
            if not self._wanted(number) and ahead:
                metrics.block_until_ready()
                yield FinishedStep(number, None)
                continue
            for earlier, numbers in self._not_checked:
                values = np.asarray(numbers)
                _check_finite(earlier, dict(zip(METRICS, values.tolist(), strict=True)))
            self._not_checked.clear()
            named_metrics = dict(zip(METRICS, values.tolist(), strict=True)) | {"learning_rate": self._rate(number - 1)}
            yield FinishedStep(number, named_metrics if self._wanted(number) else None)


def _check_finite(number: int, metrics: Mapping[str, float]) -> None:
    """Raise T5prepError if the loss of a step or the norm of its gradient is not finite."""
    loss, norm = metrics["loss"], metrics["gradient_norm"]
    if not math.isfinite(loss):
        advice = "lower learning_rate, or set clip_norm"
        if number == 1:
            advice = "the weights that training begins with hold values that are no numbers, or too large ones for this dtype"
        raise T5prepError(f"The loss of step {number:,} is {loss}: {advice}.")
    if not math.isfinite(norm):
        raise T5prepError(
            f"The gradient norm of step {number:,} is {norm}, at a loss of {loss:.4g}, and its weights are not saved: "
            "lower learning_rate, or try --set dtype=float32."
        )


@dataclasses.dataclass(frozen=True)
class Due:
    """After how many steps each thing happens; 0: never. What is not 0 happens after the last step too."""

    steps: int
    evaluate_every: int
    save_every: int
    log_every: int

    @classmethod
    def by(cls, config: TrainConfig, *, steps: int, in_epoch: int, evaluates: bool) -> "Due":
        """Return what the settings say. By default a run evaluates after each epoch, and saves when it evaluates."""
        evaluate_every = (config.eval_every or min(in_epoch, steps)) if evaluates else 0
        return cls(steps, evaluate_every, config.save_every or evaluate_every or min(in_epoch, steps), config.log_every)

    def evaluate(self, step: int) -> bool:
        """Check whether the run is evaluated after this step."""
        return self._due(step, self.evaluate_every)

    def save(self, step: int) -> bool:
        """Check whether a checkpoint is saved after this step."""
        return self._due(step, self.save_every)

    def log(self, step: int) -> bool:
        """Check whether the metrics of this step are logged."""
        return self._due(step, self.log_every)

    def _due(self, step: int, every: int) -> bool:
        return bool(every) and (step % every == 0 or step == self.steps)


class Signals:
    """Remember SIGTERM and SIGINT while the loop runs, instead of ending the process at once; a second one ends it.

    Python calls a handler only between two of its own instructions, and an evaluation may compute for minutes in one of
    them. So a thread of its own hears of each signal, prints, and ends the process.
    """

    def __init__(self) -> None:
        self.received = ""
        self._asked = -1
        self._previous_handlers: dict[signal.Signals, Any] = {}
        self._heard, self._pipe, self._pipe_before = 0, -1, -1

    def __enter__(self) -> Self:
        # Several hosts end after the same step: jax tells all of them when one has received a signal.
        if threading.current_thread() is threading.main_thread() and hosts.count() == 1:
            listening, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            with io_signals.kept_from_new_threads():
                threading.Thread(target=self._listen, args=(listening,), name="signals", daemon=True).start()
            self._pipe_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
            for number in io_signals.stopping():
                self._previous_handlers[number] = signal.signal(number, self._remember)
            # Of a signal that came before, the KeyboardInterrupt may have been raised where it is ignored.
            if earlier := io_signals.received():
                self.received, self._heard = earlier, self._heard + 1
            io_signals.forget()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        if self._previous_handlers:
            signal.set_wakeup_fd(self._pipe_before)
            os.close(self._pipe)  # the thread ends

    def stop(self, step: int) -> bool:
        """Return whether the run ends after this step."""
        if step > self._asked and hosts.count() > 1:
            self._asked = step
            self.received = self.received or ("SIGTERM" if hosts.stopping(step) else "")
        return bool(self.received)

    def _remember(self, number: int, _: object) -> None:
        self.received = self.received or signal.Signals(number).name

    def _listen(self, listening: int) -> None:
        """Print what the first signal does, and end the process at the second one."""
        while numbers := os.read(listening, 1):
            number = signal.Signals(numbers[0])
            if number not in self._previous_handlers:
                continue
            self._heard += 1
            # Not by print, whose lock the main thread may hold.
            message = "saving after the steps under way. A second one ends at once, unsaved."
            if self._heard > 1:
                message = (
                    "a second one, so the process ends at once. The same command goes on from the last checkpoint."
                )
            with contextlib.suppress(OSError):
                os.write(2, f"{number.name}: {message}\n".encode())
            if self._heard > 1:  # a checkpoint that is being written counts only when it is whole
                os._exit(1)
        os.close(listening)


WARM = 3  # steps before the first one that is recorded: they fill the queues between host and devices


class StepProfile:
    """Record `steps` steps of a run that begins after step `first`, and write them once; 0 records nothing."""

    def __init__(self, run: str, *, steps: int, first: int) -> None:
        self._place = f"{run.rstrip('/')}/{CURVES}"
        self._begin, self._end = (first + WARM, first + WARM + steps) if steps else (-1, -1)
        self._folder = ""  # of the trace that is being recorded
        self._stack = contextlib.ExitStack()

    def step(self, number: int, variables: Variables) -> None:
        """Begin or end the trace after step `number` was started, whose results are `variables`."""
        if number == self._begin:
            jax.block_until_ready(variables)
            self._folder = self._stack.enter_context(atomic_files.temporary_folder())
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # it ends the process where other threads run Python, as the input does
            jax.profiler.start_trace(self._folder, profiler_options=options)
        if number == self._end:
            self.finish(variables)

    def finish(self, variables: Variables) -> None:
        """Write the trace, if one is being recorded. Raises OutputError."""
        if not self._folder:
            return
        jax.block_until_ready(variables)
        jax.profiler.stop_trace()
        try:
            _copy(Path(self._folder), self._place)
        except (OSError, tf.errors.OpError) as error:
            raise OutputError(f"The profile cannot be written to {self._place} ({error}).") from error
        finally:
            self._stack.close()
            self._folder = ""
        say(f"The profile is written. See it: tensorboard --logdir {self._place} (it needs tensorboard-plugin-profile)")


def _copy(folder: Path, destination: str) -> None:
    """Copy all files of a folder to a place that may be on gs://."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            target = f"{destination}/{path.relative_to(folder).as_posix()}"
            tf.io.gfile.makedirs(target.rpartition("/")[0])
            tf.io.gfile.copy(str(path), target, overwrite=True)


@dataclasses.dataclass
class TrainingLoop:
    """A run while it trains. `state` is that of its newest checkpoint."""

    state: State
    due: Due
    stepper: Stepper
    evaluations: Validation
    writer: CheckpointWriter
    log: RunLog
    profile: StepProfile
    signals: Signals
    pushes: "CheckpointPushes | None" = None

    def run(self) -> None:
        """Make steps until the last one, until no evaluation is better for a while, or until a signal; then all is saved.

        A signal that comes while a step is waited for is seen after the next step: a run never ends without saving.
        """
        stepper, due = self.stepper, self.due
        if self.state.step and due.evaluate(self.state.step) and not self.state.metrics:
            self._evaluate(saved_already=True)  # the run stopped between saving and evaluating
        self.log.restart(stepper.number)
        saved_and_stopping = False
        while stepper.number < due.steps and not self.stopped_early and not saved_and_stopping:
            stepper.begin()
            now = stepper.number
            self.profile.step(now, stepper.variables.step)
            self.writer.check()
            pausing = due.save(now) or due.evaluate(now) or now == due.steps or self.signals.stop(now)
            self._log_ended(all_of_them=pausing)
            if pausing:
                saved_and_stopping = self._save_and_evaluate()
                self.log.restart(now)
        self.profile.finish(stepper.variables.step)

    @property
    def stopped_early(self) -> bool:
        """Check whether patience is exhausted."""
        return self.evaluations.exhausted(self.state)

    @property
    def complete(self) -> bool:
        """Check whether the run has made all its steps, or stopped early, and its last evaluation."""
        now = self.stepper.number
        evaluated = not self.due.evaluate(now) or bool(self.state.metrics)
        return evaluated and (now >= self.due.steps or self.stopped_early)

    def _log_ended(self, *, all_of_them: bool) -> None:
        """Log the steps that have ended; with `all_of_them`, wait until every one that was started has."""
        for finished_step in self.stepper.ended(ahead=0) if all_of_them else self.stepper.ended():
            if finished_step.metrics:
                self.log.record(finished_step.number, finished_step.metrics, prefix="")
                loss, learning_rate = finished_step.metrics["loss"], finished_step.metrics["learning_rate"]
                self.log.line(
                    finished_step.number, loss=loss, learning_rate=learning_rate, waited=self.stepper.take_waited()
                )

    def _save_and_evaluate(self) -> bool:
        """Save, and evaluate if it is due. Return whether all is saved and a signal has come, so that the run ends.

        Saving comes first: an evaluation may take longer than a preemption allows.
        """
        now = self.stepper.number
        self.state = dataclasses.replace(self.state, step=now, value=None, metrics={})
        stopping = self.signals.stop(now)
        saving = self.due.save(now) or stopping
        if saving:
            self.log.flush()
            self.writer.save(self.stepper.variables, state=self.state)
        if self.due.evaluate(now) and not stopping:
            self._evaluate(saved_already=saving)
        if self.pushes and self.writer.step == now:
            self.pushes.begin(now, self.writer.written)
        return saving and self.signals.stop(now)

    def _evaluate(self, *, saved_already: bool) -> None:
        """Evaluate, log it, and write it to this step's checkpoint, or to a new one if it is the best or the last."""
        self.state, improved = self.evaluations.judge(self.state, self.stepper.variables.weights)
        self.log.record(self.state.step, self.state.metrics, prefix=f"{self.evaluations.split}_")
        self.log.flush()  # before a checkpoint knows of the evaluation: a run that goes on from there logs it no more
        if saved_already:
            self.writer.describe(self.state)
        elif improved or self.stopped_early:
            self.writer.save(self.stepper.variables, state=self.state)

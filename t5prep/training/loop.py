"""Run a training's steps, and log, save and evaluate when each is due.

The loop ends at the last step, at a signal, or when patience is exhausted. Steps are started on the devices before
earlier steps have ended, and their metrics are fetched later.
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
from types import FrameType
from typing import TYPE_CHECKING, Self

import jax
import numpy as np
import tensorflow as tf

from t5prep.errors import OutputError, T5prepError
from t5prep.io import atomic_files, signals
from t5prep.training.evaluate.validation import Validation
from t5prep.training.log import CURVES, RunLog, say
from t5prep.training.run.checkpoint_tensors import CheckpointWriter
from t5prep.training.run.checkpoints import State
from t5prep.training.runtime import hosts
from t5prep.training.runtime.programs import METRICS
from t5prep.training.runtime.state import Step, Variables
from t5prep.training.settings.train_config import TrainConfig

if TYPE_CHECKING:
    from t5prep.training.publish.pushes import CheckpointPushes

# Steps that are started on the devices and not yet waited for: one is computed while the next one's input is transferred.
# A larger number would only hold more batches in memory.
AHEAD = 3


@dataclasses.dataclass(frozen=True)
class FinishedStep:
    """A step that has ended: its number, counted from 1, and its metrics if they were requested."""

    number: int
    metrics: dict[str, float] | None


class Stepper:
    """Run steps one after the other, and keep the host ahead of the devices.

    `batches` yields batches whose transfer to the devices has begun. `rate(number)` is the learning rate after `number`
    steps. Metrics of a step are fetched only if `needs_metrics(number)` is true, because fetching waits for the device.
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
        self._wait_seconds = 0.0
        self._step, self._batches, self._rate, self._needs_metrics = step, batches, rate, needs_metrics
        # The number and the metrics of each step that was started and not yet yielded.
        self._unfinished_steps: collections.deque[tuple[int, jax.Array]] = collections.deque()
        self._not_checked: list[tuple[int, jax.Array]] = []  # steps since the last metrics that were fetched

    def begin(self) -> None:
        """Start one step on the devices."""
        since = time.monotonic()
        batch = next(self._batches)
        # The newest step has already ended, so the devices were idle while this batch was awaited.
        if not self._unfinished_steps or self._unfinished_steps[-1][1].is_ready():
            self._wait_seconds += time.monotonic() - since
        rate = np.float32(self._rate(self.number))
        weights, slots, step, copies, metrics = self._step(*self.variables, batch, rate)
        self.variables = Variables(weights, slots, step, copies)
        self.number += 1
        self._unfinished_steps.append((self.number, metrics))

    def take_wait_seconds(self) -> float:
        """Return the seconds since the previous call in which the devices waited for a batch."""
        seconds, self._wait_seconds = self._wait_seconds, 0.0
        return seconds

    def finish_steps(self, *, ahead: int = AHEAD) -> Iterator[FinishedStep]:
        """Yield steps in order as they end, until at most `ahead` started steps have not been yielded.

        Raises a T5prepError that names the first step whose loss or gradient is not finite. All steps are checked, but only
        together with a step whose metrics are fetched, or with `ahead` = 0. So they are checked before each checkpoint, and
        no step waits for the check.
        """
        while len(self._unfinished_steps) > ahead:
            number, metrics = self._unfinished_steps.popleft()
            self._not_checked.append((number, metrics))
            if not self._needs_metrics(number) and ahead:
                metrics.block_until_ready()
                yield FinishedStep(number, None)
                continue
            for earlier, numbers in self._not_checked:
                values = np.asarray(numbers)
                _check_finite(earlier, dict(zip(METRICS, values.tolist(), strict=True)))
            self._not_checked.clear()
            named_metrics = dict(zip(METRICS, values.tolist(), strict=True)) | {"learning_rate": self._rate(number - 1)}
            yield FinishedStep(number, named_metrics if self._needs_metrics(number) else None)


def _check_finite(number: int, metrics: Mapping[str, float]) -> None:
    """Raise T5prepError if the loss of a step or the norm of its gradient is not finite."""
    loss, norm = metrics["loss"], metrics["gradient_norm"]
    if not math.isfinite(loss):
        advice = "Lower learning_rate, or set clip_norm"
        if number == 1:
            advice = "The initial weights contain NaN, or values too large for this dtype. Use another model or --set dtype=float32"
        raise T5prepError(f"The loss of step {number:,} is {loss}. {advice}.", code="step.nonfinite-loss")
    if not math.isfinite(norm):
        raise T5prepError(
            f"The gradient norm of step {number:,} is {norm}, at a loss of {loss:.4g}. The weights of "
            "this step are not saved. Lower learning_rate, or try --set dtype=float32.",
            code="step.nonfinite-gradient",
        )


@dataclasses.dataclass(frozen=True)
class Due:
    """The intervals, in steps, of evaluating, saving and logging; 0: never. Each of the others also follows the last step."""

    steps: int
    evaluate_every: int
    save_every: int
    log_every: int

    @classmethod
    def by(cls, config: TrainConfig, *, steps: int, in_epoch: int, evaluates: bool) -> "Due":
        """Return the intervals of a run of `steps` steps, `in_epoch` of them in an epoch.

        By default a run evaluates after each epoch, and saves when it evaluates. `evaluates`: whether any dataset has the
        evaluation split.
        """
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
    """Record a SIGTERM or SIGINT while the loop runs, so that the run saves before it ends. A second signal ends it at once.

    Python calls a handler only between two of its own instructions, and a single instruction of an evaluation may compute
    for minutes. Therefore a thread reads each signal from a pipe (`signal.set_wakeup_fd`), prints a line, and ends the
    process at the second signal.
    """

    def __init__(self) -> None:
        self.received = ""
        self._synchronized_step = -1  # the last step for which the hosts agreed whether to stop
        self._previous_handlers: dict[
            signal.Signals, signal.Handlers | Callable[[int, FrameType | None], object] | int | None
        ] = {}
        self._signal_count, self._pipe, self._pipe_before = 0, -1, -1

    def __enter__(self) -> Self:
        # With several hosts jax handles signals: it tells all hosts when one has received a signal, so that all end after
        # the same step (`hosts.stopping`).
        if threading.current_thread() is threading.main_thread() and hosts.count() == 1:
            listening, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            # A signal that arrives meanwhile is the loop's: no earlier handler raises KeyboardInterrupt in the middle of this.
            with signals.kept_from_new_threads():
                threading.Thread(target=self._listen, args=(listening,), name="signals", daemon=True).start()
                self._pipe_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
                for number in signals.stopping():
                    self._previous_handlers[number] = signal.signal(number, self._remember)
                # A signal may have come before this point and its KeyboardInterrupt may have been swallowed, in a
                # destructor for example. It counts as the first signal.
                if earlier := signals.received():
                    self.received, self._signal_count = earlier, self._signal_count + 1
                signals.forget()
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous_handlers:
            with signals.kept_from_new_threads():  # a signal that arrives meanwhile gets the handler from before
                for number, handler in self._previous_handlers.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(self._pipe_before)
                os.close(self._pipe)  # the thread ends

    def stop(self, step: int) -> bool:
        """Return whether the run ends after this step."""
        if step > self._synchronized_step and hosts.count() > 1:
            self._synchronized_step = step
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
            self._signal_count += 1
            # os.write, because the main thread may hold the lock of print's buffer.
            message = "saving after the steps under way. A second one ends at once, unsaved."
            if self._signal_count > 1:
                message = (
                    "a second one, so the process ends at once. The same command resumes from the last checkpoint."
                )
            with contextlib.suppress(OSError):
                os.write(2, f"{number.name}: {message}\n".encode())
            if self._signal_count > 1:  # safe at any moment: an incomplete checkpoint is never read
                os._exit(1)
        os.close(listening)


WARM = 3  # steps before the first recorded one: they fill the queues between host and devices


class StepProfile:
    """Record a profiler's trace of `steps` steps, beginning `WARM` steps after step `first`; 0 records nothing.

    The trace is written to the TensorBoard folder of `run`.
    """

    def __init__(self, run: str, *, steps: int, first: int) -> None:
        self._curves = f"{run.rstrip('/')}/{CURVES}"
        self._begin, self._end = (first + WARM, first + WARM + steps) if steps else (-1, -1)
        self._folder = ""  # of the trace that is being recorded
        self._stack = contextlib.ExitStack()

    def step(self, number: int, variables: Variables) -> None:
        """Begin or end the trace if that is due after step `number`, which was started and computes `variables`."""
        if number == self._begin:
            jax.block_until_ready(variables)
            self._folder = self._stack.enter_context(atomic_files.temporary_folder())
            options = jax.profiler.ProfileOptions()
            # jax's tracer of Python ends the process if other threads run Python, as the readers of batches do.
            options.python_tracer_level = 0
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
            _copy(Path(self._folder), self._curves)
        except (OSError, tf.errors.OpError) as error:
            raise OutputError(
                f"The profile cannot be written to {self._curves} ({error}).", code="output.unwritable"
            ) from error
        finally:
            self._stack.close()
            self._folder = ""
        say(
            f"The profile is written. See it: tensorboard --logdir {self._curves} (it needs tensorboard-plugin-profile)"
        )


def _copy(folder: Path, destination: str) -> None:
    """Copy all files of `folder`, with its subfolders, to `destination`, a local folder or a gs:// prefix."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            target = f"{destination}/{path.relative_to(folder).as_posix()}"
            tf.io.gfile.makedirs(target.rpartition("/")[0])
            tf.io.gfile.copy(str(path), target, overwrite=True)


@dataclasses.dataclass
class TrainingLoop:
    """A run while it trains. `state` is the state of its newest checkpoint."""

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
        """Run steps until the last one, until patience is exhausted, or until a signal. The last step is saved in each case.

        A signal that arrives while the loop waits for a step takes effect after the next step, because a run never ends
        without saving.
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
        """Log the steps that have ended. With `all_of_them`, wait until all started steps have ended."""
        for finished_step in self.stepper.finish_steps(ahead=0) if all_of_them else self.stepper.finish_steps():
            if finished_step.metrics:
                self.log.record(finished_step.number, finished_step.metrics, prefix="")
                loss, learning_rate = finished_step.metrics["loss"], finished_step.metrics["learning_rate"]
                self.log.line(
                    finished_step.number,
                    loss=loss,
                    learning_rate=learning_rate,
                    waited=self.stepper.take_wait_seconds(),
                )

    def _save_and_evaluate(self) -> bool:
        """Save and evaluate if they are due. Return true if a signal has arrived and everything is saved, so that the run ends.

        Saving comes first, because an evaluation may take longer than the notice before a preemption.
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
        """Evaluate, and write the result to the log and to a checkpoint.

        With `saved_already` the checkpoint of this step gets the result. Otherwise a new checkpoint is written if the result
        is the best so far, or if the run stops early.
        """
        self.state, improved = self.evaluations.judge(self.state, self.stepper.variables.weights)
        self.log.record(self.state.step, self.state.metrics, prefix=f"{self.evaluations.split}_")
        # Flush before the checkpoint contains the evaluation: a run that resumes from it does not log the evaluation again.
        self.log.flush()
        if saved_already:
            self.writer.describe(self.state)
        elif improved or self.stopped_early:
            self.writer.save(self.stepper.variables, state=self.state)

"""The loop around a run's steps: when each thing is due, and a signal, which is never lost, ends it after a checkpoint."""

import dataclasses
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked_commands
import jax
import pytest
import tensorflow as tf
from raised import assert_error, raises

from t5prep.errors import T5prepError
from t5prep.io import signals
from t5prep.training.log import RunLog
from t5prep.training.loop import Due, FinishedStep, Signals, Stepper, StepProfile, TrainingLoop
from t5prep.training.run.checkpoints import State
from t5prep.training.runtime.state import Variables
from t5prep.training.settings import train_config


class _Stepper:
    """Count steps; a signal comes while the step `at` is waited for."""

    variables = Variables({}, {}, 0)

    def __init__(self, *, signal_step: int) -> None:
        self.number, self._at = 0, signal_step

    def begin(self) -> None:
        self.number += 1

    def finish_steps(self, **_: int) -> Iterator[FinishedStep]:
        if self.number == self._at:
            os.kill(os.getpid(), signal.SIGTERM)
        yield FinishedStep(self.number, None)


class _Writer:
    """Remember the steps that were saved."""

    def __init__(self) -> None:
        self.saved: list[int] = []

    def save(self, _: Variables, *, state: State) -> None:
        self.saved.append(state.step)

    def describe(self, state: State) -> None:
        assert state.step == self.saved[-1]

    def check(self) -> None:
        """Find nothing wrong."""


class _Evaluations:
    """Find every evaluation as good as the others; a signal comes in that of step `at`."""

    split = "validation"

    def __init__(self, *, signal_step: int = 0) -> None:
        self._at = signal_step

    def judge(self, state: State, _: object) -> tuple[State, bool]:
        if state.step == self._at:
            os.kill(os.getpid(), signal.SIGTERM)
        return dataclasses.replace(state, metrics={"loss": 1.0}), False

    def exhausted(self, _: State) -> bool:
        return False


def _run(out: Path | str, *parts: Any, evaluate_every: int = 0) -> tuple[TrainingLoop, str]:
    """Run twelve steps that are saved after each five; return the loop, and the signal that has come."""
    state = State(step=0, config={}, data=[], tokenizer="", metric="loss", versions={})
    due = Due(steps=12, evaluate_every=evaluate_every, save_every=5, log_every=0)
    log = RunLog(str(out), step=0, steps=12, tokens_per_step=1, tensorboard=False)
    stepper, evaluations, writer = parts
    with Signals() as signals:
        profile = StepProfile(str(out), steps=0, first=0)
        loop = TrainingLoop(state, due, stepper, evaluations, writer, log, profile, signals)
        loop.run()
    return loop, signals.received


def _stepper(*metrics: tuple[float, float]) -> Stepper:
    """Steps that do nothing, whose losses and gradient norms are given."""
    numbers = iter(metrics)

    def step(*arguments: Any) -> tuple[Any, ...]:
        loss, norm = next(numbers)
        return *arguments[: len(Variables._fields)], jax.numpy.array([loss, 0.5, norm])

    batches: Iterator[dict[str, Any]] = iter([{}] * len(metrics))
    variables = Variables(*[{}] * len(Variables._fields))
    return Stepper(step, variables, batches, rate=lambda _: 0.1, needs_metrics=lambda number: number == 12)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ((1.0, math.inf), ("step.nonfinite-gradient", "2", "inf", "1")),
        ((1.0, math.nan), ("step.nonfinite-gradient", "2", "nan")),
        ((math.nan, 1.0), ("step.nonfinite-loss", "2", "nan")),
    ],
)
def test_a_step_whose_loss_or_gradient_is_not_finite_is_not_saved(
    tmp_path: Path, metrics: tuple, message: tuple[str, ...]
) -> None:
    """Also where later steps are finite, and where nobody wants its metrics."""
    writer = _Writer()
    steps = [(1.0, 1.0), metrics, *[(1.0, 1.0)] * 10]
    with raises(T5prepError, *message):
        _run(tmp_path, _stepper(*steps), _Evaluations(), writer)
    assert writer.saved == []


@pytest.mark.parametrize(
    ("signal_step", "ends"),
    [
        pytest.param(3, 4, id="between two steps"),
        pytest.param(5, 5, id="while the steps before a checkpoint are waited for"),
        pytest.param(12, 12, id="in the last step"),
    ],
)
def test_a_signal_while_a_step_is_waited_for_ends_the_run_after_a_checkpoint(
    tmp_path: Path, signal_step: int, ends: int
) -> None:
    stepper, writer = _Stepper(signal_step=signal_step), _Writer()
    loop, received = _run(tmp_path, stepper, _Evaluations(), writer)
    assert (received, stepper.number, writer.saved[-1]) == ("SIGTERM", ends, ends)
    assert loop.complete == (ends == 12)


def test_an_evaluation_is_in_a_bucket_before_its_checkpoint_knows_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed right after goes on without it: what was not written then is nowhere.

    The bucket is TensorFlow's file system in memory, to which a run's log is written as to gs://.
    """
    writer, last_lines = _Writer(), []

    def describe(_: State) -> None:
        with tf.io.gfile.GFile("ram://bucket/run/metrics.jsonl") as file:
            last_lines.append(json.loads(file.read().splitlines()[-1]))

    monkeypatch.setattr(writer, "describe", describe)
    _run("ram://bucket/run", _Stepper(signal_step=0), _Evaluations(), writer, evaluate_every=5)
    assert last_lines == [{"step": step, "validation_loss": 1.0} for step in (5, 10, 12)]


def test_a_signal_in_an_evaluation_ends_the_run_at_the_checkpoint_before_it(tmp_path: Path) -> None:
    stepper, writer = _Stepper(signal_step=0), _Writer()
    loop, _ = _run(tmp_path, stepper, _Evaluations(signal_step=5), writer, evaluate_every=5)
    assert (stepper.number, writer.saved, loop.complete) == (5, [5], False)


@pytest.mark.parametrize(
    ("settings", "evaluates", "expected"),
    [
        ({}, True, (5, 5)),  # after each epoch
        ({}, False, (0, 5)),
        ({"eval_every": 3}, True, (3, 3)),
        ({"eval_every": 3}, False, (0, 5)),
        ({"eval_every": 3, "save_every": 2}, True, (3, 2)),
    ],
)
def test_a_run_evaluates_after_each_epoch_and_saves_when_it_evaluates(
    settings: dict[str, int], evaluates: bool, expected: tuple[int, int]
) -> None:
    due = Due.by(train_config.build(settings), steps=12, in_epoch=5, evaluates=evaluates)
    assert (due.evaluate_every, due.save_every) == expected


def test_an_epoch_longer_than_the_run_ends_with_it() -> None:
    due = Due.by(train_config.build({}), steps=12, in_epoch=100, evaluates=True)
    assert [step for step in range(1, 13) if due.evaluate(step)] == [12]


def test_everything_happens_after_the_last_step() -> None:
    due = Due(steps=10, evaluate_every=4, save_every=3, log_every=7)
    assert [step for step in range(1, 11) if due.evaluate(step)] == [4, 8, 10]
    assert [step for step in range(1, 11) if due.save(step)] == [3, 6, 9, 10]
    assert [step for step in range(1, 11) if due.log(step)] == [7, 10]
    assert not Due(steps=10, evaluate_every=0, save_every=3, log_every=7).evaluate(10)


# A process that spends all its time where exceptions are ignored, as in a callback of jax's of the garbage collection.
IGNORING = """
import time
from t5prep.cli import _terminal
from t5prep.io import signals
from t5prep.training.loop import Signals

class Ignoring:
    def __del__(self):
        print("begun", flush=True)
        time.sleep(600)

signals._AGAIN_SECONDS = 600  # the loop asks before that
with _terminal.stoppable():
    one = Ignoring()
    del one
    {then}
"""
THEN = {
    "train": "with Signals() as signals: print(signals.stop(1), signals.received)",
    "predict": "signals.check()",
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("then", THEN)
def test_a_signal_that_was_ignored_is_seen_by_the_loop(then: str, number: signal.Signals) -> None:
    """No other test ignores the exception that a signal becomes before the loop asks."""
    process = forked_commands.start_code(IGNORING.format(then=THEN[then]))
    process.wait_for_line(b"begun")
    process.send_signal(number)
    output, error = process.communicate(timeout=300)
    if then == "train":
        assert output.decode() == f"begun\nTrue {number.name}\n"
    else:
        assert error.rstrip().endswith(b"KeyboardInterrupt")


RERAISE_CODE = """
import sys, time
from t5prep.cli import _terminal

class Ignoring:
    def __del__(self):
        print("begun", flush=True)
        time.sleep(600)

with _terminal.stoppable():
    one = Ignoring()
    del one
    print("after it", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_ignored_is_raised_again(number: signal.Signals) -> None:
    """Also where no loop asks: while a program is compiled, or a file is read."""
    with subprocess.Popen(
        [sys.executable, "-c", RERAISE_CODE], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        output, error = process.communicate(timeout=300)
    assert output == b"after it\n"
    assert error.rstrip().endswith(b"KeyboardInterrupt")
    assert b"Exception ignored" not in error


def test_a_signal_between_two_handlers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the loop's handler is set, and before the loop has asked what came earlier."""

    def received() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return ""

    monkeypatch.setattr(signals, "received", received)
    with Signals() as stop_signals:
        assert stop_signals.stop(1)
        assert stop_signals.received == "SIGINT"


STARTING = """
import os, signal, sys

class Sends:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Sends())
sys.argv = {argv}
from t5prep.cli import main
"""


def test_while_a_command_starts_it_ends_without_a_word() -> None:
    code = STARTING.format(argv=["/usr/bin/t5prep", "doctor"])
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, b"", b"")
    # In another program, Ctrl-C is that program's.
    code = STARTING.format(argv=["mine.py"])
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert result.stderr.rstrip().endswith(b"KeyboardInterrupt")


def test_a_stop_inside_code_that_is_given_as_text_ends_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text("""
import os, signal
from t5prep import cli
from t5prep.cli import machine_commands

machine_commands.doctor_command.callback = lambda **_: exec("os.kill(os.getpid(), signal.SIGINT)", globals())
cli.main(["doctor"])
""")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    command = [sys.executable, "-m", "stops"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert_error(result.stderr, "terminal.interrupted")


def test_a_stop_does_not_take_jax_down_while_it_computes(tmp_path: Path) -> None:
    """Of 106 stops of `train` and `predict` one ended in `corrupted double-linked list`, behind its sentence."""
    (tmp_path / "stops.py").write_text("""
import atexit, os, signal, sys, types
from t5prep import cli
from t5prep.cli import machine_commands

sys.modules["jax"] = types.ModuleType("jax")
atexit.register(print, "taken down", file=sys.stderr)
machine_commands.doctor_command.callback = lambda **_: os.kill(os.getpid(), signal.SIGINT)
cli.main(["doctor"])
""")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    result = subprocess.run(
        [sys.executable, "-m", "stops"], capture_output=True, text=True, check=False, env=environment
    )
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert_error(result.stderr, "terminal.interrupted")


@pytest.mark.slow
def test_real_signals_against_real_processes(tmp_path: Path) -> None:
    """One to `train`, one to `predict`: `signals_thousand` says what must hold; it sends 1,000 where somebody has the time."""
    count = os.environ.get("T5PREP_SIGNALS", "2")
    script = Path(__file__).with_name("signals_thousand.py")
    result = subprocess.run([sys.executable, str(script), str(tmp_path / "s"), count], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


LOOP = """
from t5prep.cli import _terminal
from t5prep.training.runtime import hosts
from t5prep.training.loop import Signals
hosts.count()  # opens the devices, which takes longer than all the rest
for moment in range(40):
    try:
        with _terminal.stoppable():
            print("begun", flush=True)
            with Signals() as signals:
                step = 0
                while not signals.stop(step):
                    step += 1
            print("saved", flush=True)
    except KeyboardInterrupt:  # before the loop, nothing is to be saved
        print("stopped", flush=True)
"""


@pytest.mark.slow
def test_signals_at_random_moments_end_the_loop() -> None:
    """Forty of them in one process, from before the loop's own handler is there on."""
    random_moment = random.Random(0)
    ends = set()
    with subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        while process.stdout.readline() == b"begun\n":
            time.sleep(random_moment.random() ** 4 * 0.02)
            process.send_signal(signal.SIGINT)
            ends.add(process.stdout.readline())
        error = process.communicate(timeout=300)[1]
    assert process.returncode == 0, error[-2000:]
    assert b"saved\n" in ends <= {b"saved\n", b"stopped\n"}, (ends, error[-2000:])

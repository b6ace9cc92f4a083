"""The loop around a run's steps: a signal ends it after a checkpoint, whenever it comes."""

import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.train.due import Due
from t5prep.train.log import RunLog
from t5prep.train.loop import FinishedStep
from t5prep.train.profiling import StepProfile
from t5prep.train.run.checkpoint import State
from t5prep.train.runtime.state import Variables
from t5prep.train.signals import Signals
from t5prep.train.training_loop import TrainingLoop


class _Stepper:
    """Count steps; a signal comes while the step `at` is waited for."""

    variables = Variables({}, {}, 0)

    def __init__(self, *, at: int) -> None:
        self.number, self._at = 0, at

    def begin(self) -> None:
        self.number += 1

    def ended(self, **_: int) -> Iterator[FinishedStep]:
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

    def __init__(self, *, at: int = 0) -> None:
        self._at = at

    def judge(self, state: State, _: object) -> tuple[State, bool]:
        if state.step == self._at:
            os.kill(os.getpid(), signal.SIGTERM)
        return dataclasses.replace(state, metrics={"loss": 1.0}), False

    def exhausted(self, _: State) -> bool:
        return False


def _run(out: Path, *parts: Any, evaluate_every: int = 0) -> tuple[TrainingLoop, str]:
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


@pytest.mark.parametrize(
    ("at", "ends"),
    [
        pytest.param(3, 4, id="between two steps"),
        pytest.param(5, 5, id="while the steps before a checkpoint are waited for"),
        pytest.param(12, 12, id="in the last step"),
    ],
)
def test_a_signal_while_a_step_is_waited_for_ends_the_run_after_a_checkpoint(
    tmp_path: Path, at: int, ends: int
) -> None:
    stepper, writer = _Stepper(at=at), _Writer()
    loop, received = _run(tmp_path, stepper, _Evaluations(), writer)
    assert (received, stepper.number, writer.saved[-1]) == ("SIGTERM", ends, ends)
    assert loop.complete == (ends == 12)


def test_a_signal_in_an_evaluation_ends_the_run_at_the_checkpoint_before_it(tmp_path: Path) -> None:
    stepper, writer = _Stepper(at=0), _Writer()
    loop, _ = _run(tmp_path, stepper, _Evaluations(at=5), writer, evaluate_every=5)
    assert (stepper.number, writer.saved, loop.complete) == (5, [5], False)

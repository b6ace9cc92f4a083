"""The loop around a run's steps: a signal ends it after a checkpoint, whenever it comes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.train.checkpoint import State
from t5prep.train.due import Due
from t5prep.train.loop import FinishedStep
from t5prep.train.profiling import StepProfile
from t5prep.train.progress import RunLog
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

    def check(self) -> None:
        """Find nothing wrong."""


class _Evaluations:
    """Stand for a run without an evaluation split."""

    def exhausted(self, _: State) -> bool:
        return False


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
    state = State(step=0, config={}, data=[], tokenizer="", metric="loss", versions={})
    due = Due(steps=12, evaluate_every=0, save_every=5, log_every=0)
    stepper, writer = _Stepper(at=at), _Writer()
    log = RunLog(str(tmp_path), step=0, steps=12, tokens_per_step=1, tensorboard=False)
    stepper_here, evaluations, writer_here = cast(Any, (stepper, _Evaluations(), writer))
    with Signals() as signals:
        profile = StepProfile(str(tmp_path), steps=0, first=0)
        loop = TrainingLoop(state, due, stepper_here, evaluations, writer_here, log, profile, signals)
        loop.run()
    assert signals.received == "SIGTERM"
    assert (stepper.number, writer.saved[-1]) == (ends, ends)
    assert loop.complete == (ends == 12)

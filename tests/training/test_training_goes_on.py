"""Runs that get more steps, and runs whose steps are recorded for TensorBoard."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import toy_runs
from raised import raises

from t5prep.errors import T5prepError, UsageError
from t5prep.training import trainer
from t5prep.training.loop import Stepper
from t5prep.training.run import checkpoints


@pytest.mark.slow
def test_a_longer_run_is_the_run_that_was_long_from_the_beginning(
    toys: Path, data: str, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """More steps than the run began with."""
    uninterrupted_result = trainer.train(toy_runs.config(data, shape, toys / "whole", steps=8))
    trainer.train(toy_runs.config(data, shape, toys / "longer", steps=4))
    longer = trainer.train(toy_runs.config(data, shape, toys / "longer", steps=8))
    assert "The run has 8 steps now, instead of 4." in capsys.readouterr().err
    assert longer.evaluation == uninterrupted_result.evaluation
    assert toy_runs.losses(longer.run) == toy_runs.losses(uninterrupted_result.run)
    assert [state.step for _, state in checkpoints.list_checkpoints(longer.run)] == [4, 8]
    linear_schedule = {"schedule": "linear", "warmup": 2}
    trainer.train(toy_runs.config(data, shape, toys / "ended", steps=4, **linear_schedule))
    with raises(UsageError, "checkpoint.schedule-mismatch", "4", "linear"):
        trainer.train(toy_runs.config(data, shape, toys / "ended", steps=8, **linear_schedule))


def test_recorded_steps_are_a_trace_that_tensorboard_reads(toys: Path, data: str, shape: str) -> None:
    """In a process of its own: the profiler ends one in which a hundred other tests have left threads and devices."""
    config = dataclasses.asdict(toy_runs.config(data, shape, toys / "traced", steps=8))
    code = (
        "from t5prep.training import trainer; from t5prep.training.settings.train_config import TrainConfig; "
        f"trainer.train(TrainConfig(**{config!r}), profile=2)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "The profile is written. See it: tensorboard --logdir" in result.stderr, result.stderr[-2000:]
    (trace,) = (toys / "traced" / "tensorboard").glob("plugins/profile/*/*.xplane.pb")
    planes = [plane.name for plane in jax.profiler.ProfileData.from_file(str(trace)).planes]
    assert any("CPU" in name for name in planes), planes


def test_a_device_that_runs_out_of_memory_is_one_sentence(
    toys: Path, data: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(_: Stepper) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.")

    monkeypatch.setattr(Stepper, "begin", exhausted)
    with raises(T5prepError, "device.insufficient-memory"):
        trainer.train(toy_runs.config(data, shape, toys / "exhausted"))

"""Runs that get more steps, and runs for which a device is too small."""

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


def test_a_device_that_runs_out_of_memory_is_one_sentence(
    tmp_path: Path, data: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(_: Stepper) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.")

    profiled: list[dict[str, int]] = []
    monkeypatch.setattr(trainer, "StepProfile", lambda _, **steps: profiled.append(steps))
    monkeypatch.setattr(
        trainer.compiling, "compile_step", toy_runs.uncompiled(lambda *_: pytest.fail("no step begins"))
    )
    monkeypatch.setattr(Stepper, "begin", exhausted)
    with raises(T5prepError, "device.insufficient-memory"):
        trainer.train(toy_runs.config(data, shape, tmp_path / "exhausted"), profile=2)
    assert profiled == [{"steps": 2, "first": 0}]

"""Runs that end where they should not: between a checkpoint and its evaluation, and at a loss that is not a number."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest
import toy_runs
from raised import raises

from t5prep.dataset import manifest
from t5prep.errors import OutputError, T5prepError
from t5prep.training import log, trainer
from t5prep.training.evaluate.evaluator import Evaluation, Evaluator
from t5prep.training.run import checkpoints, run

pytestmark = pytest.mark.slow


def _states(run: str) -> list[tuple[int, dict[str, float], float | None, int]]:
    return [(state.step, state.metrics, state.best, state.stale) for _, state in checkpoints.list_checkpoints(run)]


def test_a_step_is_saved_before_it_is_evaluated_and_evaluated_when_the_run_goes_on(
    toys: Path, data: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preemption leaves half a minute, and an evaluation may take longer."""
    uninterrupted_result = trainer.train(toy_runs.config(data, shape, toys / "whole", steps=8))
    config = toy_runs.config(data, shape, toys / "stopped", steps=8)
    line, score = log.RunLog.line, Evaluator.__call__

    signals = iter([signal.SIGTERM])  # once: a second one ends the process without saving

    def terminated(log: log.RunLog, step: int, **metrics: float) -> None:
        line(log, step, **metrics)
        for number in signals:
            os.kill(os.getpid(), number)

    def killed(evaluator: Evaluator, *arguments: object, **options: int) -> Evaluation:
        raise KeyboardInterrupt  # nothing is saved any more, as by kill -9

    monkeypatch.setattr(log.RunLog, "line", lambda log, step, **metrics: terminated(log, step, **metrics))
    with raises(T5prepError, "run.interrupted", "4", "SIGTERM"):
        trainer.train(config)
    monkeypatch.setattr(log.RunLog, "line", line)
    monkeypatch.setattr(Evaluator, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(config)
    newest = checkpoints.last(config.out)
    assert newest
    assert (newest[1].step, newest[1].metrics) == (4, {})
    scored = iter([score, killed])
    monkeypatch.setattr(
        Evaluator, "__call__", lambda evaluator, *arguments, **options: next(scored)(evaluator, *arguments, **options)
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.train(config)
    newest = checkpoints.last(config.out)
    assert newest
    assert (newest[1].step, newest[1].metrics) == (8, {})
    monkeypatch.setattr(Evaluator, "__call__", score)
    assert trainer.train(config).evaluation == uninterrupted_result.evaluation
    assert _states(config.out)[-2:] == _states(uninterrupted_result.run)
    assert toy_runs.losses(config.out) == toy_runs.losses(uninterrupted_result.run)


def test_a_second_process_does_not_train_into_the_same_run(
    toys: Path, data: str, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_path = toy_runs.create_run(toys / "begun", manifest.load(data))
    config = toy_runs.config(data, run_path, toys / "held")
    with (
        run.lock_run(config.out),
        raises(OutputError, "output.locked"),
    ):
        trainer.train(config)
    assert not Path(config.out).exists()
    assert f"Using only the architecture of {run_path}, because weights=random." in capsys.readouterr().err


def test_a_loss_that_is_no_number_ends_the_run_unsaved(toys: Path, data: str, shape: str) -> None:
    config = toy_runs.config(data, shape, toys / "nan", optimizer="adamw", learning_rate=1e30)
    with raises(T5prepError, "step.nonfinite-loss", "2", "nan"):
        trainer.train(dataclasses.replace(config, save_every=12, eval_every=12))
    assert not checkpoints.list_checkpoints(config.out)

"""What a run says of its speed: on stderr for people, in metrics.jsonl for pages; never of compiling or evaluating."""

import json
from pathlib import Path

import pytest
import tensorflow as tf
import toy_runs

from t5prep.training import log
from t5prep.training.log import RunLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    return now


def log_in(folder: Path, *, step: int = 0, tensorboard: bool = False, evaluated: str = "") -> RunLog:
    return RunLog(
        str(folder), step=step, steps=1000, tokens_per_step=50.0, tensorboard=tensorboard, evaluated=evaluated
    )


def test_speed_is_that_of_training_alone(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_in(tmp_path)
    clock[0] += 60  # the compiler's
    log.restart(10)
    clock[0] += 4
    log.line(50, loss=2.0, learning_rate=0.1, waited=1.0)
    clock[0] += 500  # an evaluation
    log.restart(50)
    assert not capsys.readouterr().err
    clock[0] += 6
    log.line(110, loss=1.5, learning_rate=0.1, waited=2.0)
    log_line = "step 110/1,000  loss 1.5000  lr 1.00e-01  500 tokens/s  input-bound (30% waiting for input)  89 s left"
    assert log_line in capsys.readouterr().err
    clock[0] += 1
    log.line(1000, loss=1.0, learning_rate=0.1, waited=0.0)  # the last step is said, however soon it comes
    assert "compute-bound (0% waiting for input)  0 s left" in capsys.readouterr().err
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [
        {"step": 110, "tokens_per_second": 500.0, "waiting_for_input": pytest.approx(0.3)},
        {"step": 1000, "tokens_per_second": 44500.0, "waiting_for_input": 0.0},
    ]


def test_a_measured_matrix_peak_makes_a_share_of_it(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    # The products of a step take 0.05 s at the least; ten steps in ten seconds are one a second.
    log = RunLog(str(tmp_path), step=0, steps=10, tokens_per_step=50.0, peak_per_step=0.05, tensorboard=False)
    clock[0] += 10
    log.line(10, loss=2.0, learning_rate=0.1, waited=0.0)
    assert "  50 tokens/s  5% of the matrix peak  compute-bound" in capsys.readouterr().err
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["share_of_peak"] == pytest.approx(0.05)


def test_what_came_after_the_restored_step_is_dropped(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    for step in (1, 2, 3):
        log.record(step, {"loss": 1.0 / step}, prefix="")
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "lo')
    log_in(tmp_path, step=2).record(3, {"loss": 7.0}, prefix="validation_")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5}, {"step": 3, "validation_loss": 7.0}]


def test_curves_are_resumed_as_the_lines_are(tmp_path: Path) -> None:
    """A kill came after the evaluation's numbers, before its checkpoint knew of them, and another one after that."""
    log = log_in(tmp_path, tensorboard=True)
    for step in (1, 2, 3):
        log.record(step, {"loss": 1.0 / step}, prefix="")
        log.record(step, {"loss": 2.0}, prefix="validation_")
    log.flush()
    (events,) = (tmp_path / "tensorboard").glob("events*")
    events.write_bytes(events.read_bytes()[:-7])
    for _ in range(2):
        log = log_in(tmp_path, step=2, tensorboard=True, evaluated="validation_")
        log.record(2, {"loss": 2.0}, prefix="validation_")
        log.record(3, {"loss": 0.3}, prefix="")
        log.flush()
    expected = [(1, "loss"), (1, "validation_loss"), (2, "loss"), (2, "validation_loss"), (3, "loss")]
    assert [point[:2] for point in toy_runs.points(tmp_path)] == expected
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert sorted((line["step"], name) for line in lines for name in line if name != "step") == expected
    log_in(tmp_path, tensorboard=True).record(1, {"loss": 9.0}, prefix="")  # without a checkpoint: another training
    assert toy_runs.points(tmp_path) == [(1, "loss", 9.0)]


def test_curves_that_cannot_be_written_do_not_end_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "{{function_node x}} events; No space left on device")

    run = log_in(tmp_path, tensorboard=True)
    monkeypatch.setattr(tf.summary, "scalar", full)
    for step in (1, 2):
        run.record(step, {"loss": 1.0}, prefix="")
    assert capsys.readouterr().err.count("TensorBoard's curves") == 1
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2

"""Runs in processes of their own: killed with -9 at random moments, on several replicas, with gradients accumulated."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked_commands
import pytest
import toy_runs
from click.testing import CliRunner

from t5prep import cli
from t5prep.training.run import checkpoints

pytestmark = pytest.mark.slow

KILLS = 3
SPEED = {"tokens_per_second", "waiting_for_input"}  # of the clock, not of the step


def _command(data: str, shape: str, out: Path, **settings: object) -> list[str]:
    values = {
        **{"weights": "random", "batch": 8, "steps": 40, "learning_rate": 0.01, "eval_every": 10, "save_every": 2},
        **{"log_every": 1, "tensorboard": "false", "dropout": 0.1},
        **settings,
    }
    replicas = str(values.pop("replicas", 1))
    options = [f"--set={key}={value}" for key, value in values.items()]
    return ["train", "--data", data, "--model", shape, "--out", str(out), "--replicas", replicas, *options]


def _run(data: str, shape: str, out: Path, **settings: object) -> dict[int, float]:
    """Train in this process, which has TensorFlow already, and return the losses."""
    result = CliRunner().invoke(cli.main, _command(data, shape, out, **settings), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return toy_runs.losses(out)


def _kill(command: list[str], is_reached: Callable[[], bool], *, later: float) -> None:
    """Start a training in a process of its own, and kill it with -9 some seconds after `is_reached` holds."""
    process = forked_commands.start_command(*command)
    deadline = time.monotonic() + 600
    try:
        while not is_reached() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(later)
    finally:
        process.kill()
        error_output = process.communicate()[1]
    assert is_reached() or process.returncode == 0, error_output.decode(errors="replace")[-2000:]


def _events(out: Path) -> bytes:
    """Return all bytes of TensorBoard's files."""
    return b"".join(path.read_bytes() for path in (out / "tensorboard").glob("events*"))


def _logged(out: Path) -> tuple[list[dict[str, Any]], list[tuple[int, str, float]]]:
    """Return a run's lines and its points of TensorBoard's curves, both without the speed."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return (
        [line for line in lines if not SPEED & line.keys()],
        [point for point in toy_runs.points(out) if point[1] not in SPEED],
    )


def test_killed_at_random_moments_the_lines_and_the_curves_are_the_same(toys: Path, data: str, shape: str) -> None:
    """Dropout on, so its masks are a function of the step, too. Half of the kills fall where steps are made.

    The first start is another training: it dies before its first checkpoint, with points that must not stay.
    """
    out = toys / "killed"
    other_command = _command(
        data, shape, out, tensorboard="true", steps=10**6, eval_every=10**6, save_every=10**6, seed=1
    )
    _kill(other_command, lambda: len(_events(out)) > 1000, later=0)
    assert checkpoints.last(str(out)) is None
    moments = random.Random(0)
    for kill in range(1, KILLS):
        previous_checkpoint = checkpoints.last(str(out))
        at_steps = kill % 2 == 1
        _kill(
            _command(data, shape, out, tensorboard="true"),
            lambda previous_checkpoint=previous_checkpoint, at_steps=at_steps: (
                not at_steps or checkpoints.last(str(out)) != previous_checkpoint
            ),
            later=moments.uniform(0, 0.05 if at_steps else 3.0),
        )
    _run(data, shape, out, tensorboard="true")
    undisturbed = toys / "undisturbed"
    losses = _run(data, shape, undisturbed, tensorboard="true")
    assert losses.keys() == set(range(1, 41))
    lines, points = _logged(out)
    assert (lines, points) == _logged(undisturbed)
    # Each number of a line is a point, rounded to float32.
    numbers = [(line["step"], name, value) for line in lines for name, value in line.items() if name != "step"]
    assert [point[:2] for point in points] == sorted(number[:2] for number in numbers)


@pytest.mark.parametrize(("setting", "value"), [("replicas", 4), ("accumulate", 4)])
def test_replicas_and_accumulation_change_no_loss(toys: Path, data: str, shape: str, setting: str, value: int) -> None:
    """By the command, with its reader: the tests of steps feed batches themselves."""
    alone = toys / "alone"
    expected = toy_runs.losses(alone) if alone.exists() else _run(data, shape, alone, dropout=0, steps=10)
    losses = _run(data, shape, toys / f"{setting}{value}", dropout=0, steps=10, **{setting: value})
    assert losses == pytest.approx(expected, abs=3e-6)

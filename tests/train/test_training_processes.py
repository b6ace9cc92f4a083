"""Runs in processes of their own: killed with -9 at random moments, on several replicas, with gradients accumulated."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import training
from click.testing import CliRunner

from t5prep import cli
from t5prep.train.run import checkpoint as checkpoints

pytestmark = pytest.mark.slow

KILLS = 4


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
    done = CliRunner().invoke(cli.main, _command(data, shape, out, **settings), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return training.losses(out)


@pytest.fixture(scope="module")
def undisturbed(toys: Path, data: str, shape: str) -> dict[int, float]:
    return _run(data, shape, toys / "undisturbed")


def test_killed_at_random_moments_the_losses_are_the_same(
    toys: Path, data: str, shape: str, undisturbed: dict[int, float]
) -> None:
    """Dropout on, so its masks are a function of the step, too. Half of the kills fall where steps are made."""
    out = toys / "killed"
    moments = random.Random(0)
    for kill in range(KILLS):
        command = [sys.executable, "-m", "t5prep.cli", *_command(data, shape, out)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        before = checkpoints.last(str(out))
        deadline = time.monotonic() + 300
        while kill % 2 and checkpoints.last(str(out)) == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.05 if kill % 2 else 3.0))
        process.kill()
        process.wait()
    assert _run(data, shape, out) == undisturbed


@pytest.mark.parametrize(("setting", "value"), [("replicas", 4), ("accumulate", 4)])
def test_replicas_and_accumulation_change_no_loss(toys: Path, data: str, shape: str, setting: str, value: int) -> None:
    alone = toys / "alone"
    expected = training.losses(alone) if alone.exists() else _run(data, shape, alone, dropout=0, steps=10)
    found = _run(data, shape, toys / f"{setting}{value}", dropout=0, steps=10, **{setting: value})
    assert found == pytest.approx(expected, abs=1e-5)

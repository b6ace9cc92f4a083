"""One step on the CPU and on an accelerator, for which several CPU devices stand."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from t5prep.cli import main
from t5prep.training import check_step
from t5prep.training.runtime.state import Variables


def _checked(data: str, shape: str, out: Path, *more: str) -> Result:
    settings = [f"--set={one}" for one in ("weights=random", "batch=8", "steps=4", "learning_rate=0.01")]
    command = ["train", "--check-step", "--data", data, "--model", shape, "--out", str(out), *settings, *more]
    return CliRunner().invoke(main, command, catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize("more", [["--replicas=4"], ["--replicas=2", "--set=shard=2", "--set=optimizer=adamw"]])
def test_devices_that_compute_the_same_differ_by_rounding(
    data: str, shape: str, tmp_path: Path, more: list[str]
) -> None:
    """`--check-step` finds nothing where nothing is wrong."""
    out = tmp_path / "run"
    done = _checked(data, shape, out, "--json", *more)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["finite"]
    assert said["cpu"] == "1 × cpu, float32"
    assert said["accelerator"] == "4 × cpu, float32"
    assert said["accelerator_metrics"] == pytest.approx(said["cpu_metrics"], rel=1e-5)
    assert {"shared", "encoder.q", "decoder.wo", "lm_head"} <= {one["name"] for one in said["variables"]}
    assert all(one["state"] < 1e-4 and one["not_finite"] == 0 for one in said["variables"])
    assert sum(one["update"] > 0 for one in said["variables"]) == len(said["variables"])
    assert not out.exists()  # no run is begun


@pytest.mark.slow
def test_another_arithmetic_is_seen_and_named(data: str, shape: str, tmp_path: Path) -> None:
    """`--check-step` finds bfloat16 beside float32."""
    done = _checked(data, shape, tmp_path / "run", "--replicas=2", "--set=dtype=bfloat16")
    assert done.exit_code == 0, done.output
    head, loss, *_, variables, worst = done.stdout.splitlines()[:7]
    assert head.split() == ["1", "×", "cpu,", "float32", "2", "×", "cpu,", "bfloat16"]
    assert loss.startswith("loss ")
    assert variables.startswith("variable")
    assert 1e-4 < float(worst.split()[-1]) < 0.5  # of a relative difference


def test_numbers_that_are_not_finite_come_first_then_the_largest_difference() -> None:
    before = {name: np.zeros(2, np.float32) for name in "abc"}

    def after(a: float, b: float, c: float) -> Variables:
        given = {"a": a, "b": b, "c": c}
        return Variables(
            {name: np.array([1.0, value], np.float32) for name, value in given.items()},
            {name: {"squares": np.array([3.0, 4 * value], np.float32)} for name, value in given.items()},
            0,
        )

    found = check_step.differences(before, after(1, 1, 1), after(1, 1.5, np.inf))
    assert [(one.name, one.not_finite) for one in found] == [("c", 2), ("b", 0), ("a", 0)]
    assert (found[1].weights, found[1].state) == (0.5, pytest.approx(2 / 5))
    assert (found[2].update, found[2].weights, found[2].state) == (pytest.approx(2**0.5), 0, 0)


def test_without_an_accelerator_it_is_one_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["train", "--check-step", "--data", "d", "--model", "tiny", "--out", str(tmp_path / "r")]
    )
    assert done.exit_code == 1
    assert done.stderr.strip().endswith("and none was named: add --tpu local, or --gpus.")

"""One step on the CPU and on an accelerator, for which several CPU devices stand."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from raised import refused

from t5prep.cli import main
from t5prep.training import check_step
from t5prep.training.runtime.state import Variables


def _checked(data: str, shape: str, out: Path, *arguments: str) -> Result:
    settings = [f"--set={setting}" for setting in ("weights=random", "batch=8", "steps=4", "optimizer=adamw")]
    command = ["train", "--check-step", "--data", data, "--model", shape, "--out", str(out), *settings, *arguments]
    return CliRunner().invoke(main, command, catch_exceptions=False)


@pytest.mark.slow
def test_devices_that_compute_the_same_differ_by_rounding(data: str, shape: str, tmp_path: Path) -> None:
    """`--check-step` finds nothing where nothing is wrong."""
    out = tmp_path / "run"
    result = _checked(data, shape, out, "--json", "--replicas=2", "--set=shard=2")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["finite"]
    assert report["cpu"] == "1 × cpu, float32"
    assert report["accelerator"] == "4 × cpu, float32"
    assert report["accelerator_metrics"] == pytest.approx(report["cpu_metrics"], rel=1e-5)
    assert {"shared", "encoder.q", "decoder.wo", "lm_head"} <= {variable["name"] for variable in report["variables"]}
    assert all(variable["state"] < 1e-4 and variable["not_finite"] == 0 for variable in report["variables"])
    assert sum(variable["update"] > 0 for variable in report["variables"]) == len(report["variables"])
    assert not out.exists()  # no run is begun


@pytest.mark.slow
def test_another_arithmetic_is_seen_and_named(data: str, shape: str, tmp_path: Path) -> None:
    """`--check-step` finds bfloat16 beside float32."""
    result = _checked(data, shape, tmp_path / "run", "--replicas=2", "--set=dtype=bfloat16")
    assert result.exit_code == 0, result.output
    head, loss, *_, variables, worst = result.stdout.splitlines()[:7]
    assert head.split() == ["1", "×", "cpu,", "float32", "2", "×", "cpu,", "bfloat16"]
    assert loss.startswith("loss ")
    assert variables.startswith("variable")
    assert 1e-4 < float(worst.split()[-1]) < 0.5  # of a relative difference


def test_numbers_that_are_not_finite_come_first_then_the_largest_difference() -> None:
    initial_weights = {name: np.zeros(2, np.float32) for name in "abc"}

    def make_variables(a: float, b: float, c: float) -> Variables:
        values = {"a": a, "b": b, "c": c}
        return Variables(
            {name: np.array([1.0, value], np.float32) for name, value in values.items()},
            {name: {"squares": np.array([3.0, 4 * value], np.float32)} for name, value in values.items()},
            0,
        )

    differences = check_step.differences(initial_weights, make_variables(1, 1, 1), make_variables(1, 1.5, np.inf))
    assert [(difference.name, difference.not_finite) for difference in differences] == [("c", 2), ("b", 0), ("a", 0)]
    assert (differences[1].weights, differences[1].state) == (0.5, pytest.approx(2 / 5))
    assert (differences[2].update, differences[2].weights, differences[2].state) == (pytest.approx(2**0.5), 0, 0)


def test_without_an_accelerator_it_is_one_sentence(tmp_path: Path) -> None:
    command = ("train", "--check-step", "--data", "d", "--model", "tiny", "--out", tmp_path / "r")
    refused("option.missing", "--check-step", "--tpu local", "--gpus", command=command)

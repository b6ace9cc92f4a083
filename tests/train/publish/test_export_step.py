"""The exported step, run by the page's own lines in an environment without TensorFlow, makes the trainer's own steps."""

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import readme
import xla_flags
from click.testing import CliRunner

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep import cli
from t5prep.plan.chips import parse
from t5prep.plan.question import Question, ask
from t5prep.train import trainer
from t5prep.train.data import train_arrays
from t5prep.train.data.opening import open_all
from t5prep.train.run import checkpoint as checkpoints
from t5prep.train.run import checkpoint_tensors, run
from t5prep.train.runtime import compiling
from t5prep.train.runtime.devices import open_layout
from t5prep.train.runtime.programs import step_program
from t5prep.train.runtime.state import Variables, put_rows, with_copies
from t5prep.train.settings import config as configs
from t5prep.train.settings.padding import Padding
from t5prep.train.step.step import shape_of

RATE, STEPS = 1e-2, 3
PAGE = "test_export_step.py"
(LINES,) = (code.text for code in readme.codes("python") if PAGE in code.text.partition("\n")[0])
(COMMAND,) = (
    command for code in readme.codes("sh") if PAGE in code.text.partition("\n")[0] for command in readme.commands(code)
)
THEIRS = f"""
import sys
sys.modules["tensorflow"] = sys.modules["t5prep"] = None  # neither can be imported
import numpy as np
import jax
jax.config.update("jax_num_cpu_devices", 2)
kept = np.load("batches.npz")
batches, rate = [{{name: kept[f"{{n}} {{name}}"] for name in ("input_ids", "labels")}} for n in range({STEPS})], {RATE}
{LINES}
found = {{f"weights/{{name}}": np.asarray(value) for name, value in state[0].items()}}
found |= {{f"slots/{{name}}/{{slot}}": np.asarray(one) for name, own in state[1].items() for slot, one in own.items()}}
np.savez("theirs.npz", step=state[2], metrics=metrics, logits=logits, **found)
"""


def batches(data: str) -> list[dict[str, np.ndarray]]:
    opened = open_all([data], split="train")
    return list(itertools.islice(train_arrays(opened, split="train", global_batch=8, seed=0), STEPS))


def ours(done: trainer.Result, data: str, *, devices: int, dtype: str) -> tuple[Variables, Any]:
    """Go on from the checkpoint with the step that `train` compiles, and return what it holds, and its metrics."""
    opened, layout = run.open_model(done.run), open_layout(replicas=devices)
    assert opened.state
    config = dataclasses.replace(configs.build(opened.state.config), dtype=dtype)
    shape = shape_of(config, opened.config)
    lengths, padding = {"input_length": 32, "target_length": 2}, Padding.of_dataset(opened.manifests[0])
    step = step_program(shape, config, layout=layout, padding=padding, **lengths)
    state = with_copies(checkpoint_tensors.restore(opened.name, step.variables), step.variables)
    compiled = compiling.compile_now(step.program)
    for batch in batches(data):
        *held, metrics = compiled(*state, put_rows(batch, layout), np.float32(RATE))
        state = Variables(*held)
    return state, metrics


def exported(done: trainer.Result, out: Path, *options: str) -> None:
    """Run the page's command with another model, place and options."""
    arguments = ["export", "--model", done.run, "--format", "step", "--out", str(out), *options]
    given = dict(itertools.pairwise(COMMAND.arguments))
    assert {"--model", "--format", "--out", "--platform", "--devices", "--dtype"} <= given.keys()
    ran = CliRunner().invoke(cli.main, arguments)
    assert ran.exit_code == 0, ran.output
    assert done.best in ran.output


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the three packages that the page names."""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if uv is None:
        pytest.skip("uv is not installed")
    folder = tmp_path_factory.mktemp("alone") / "environment"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    pins = readme.ROOT / ".ci" / "pins.txt"
    packages = ["jax", "flatbuffers", "safetensors"]
    subprocess.run([uv, "pip", "install", "--quiet", "--python", folder, "-c", pins, *packages], check=True)
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "dtype"), [(1, "float32"), (2, "bfloat16")])
def test_without_tensorflow_the_step_is_the_trainers(
    done: trainer.Result, data: str, alone: Path, tmp_path: Path, devices: int, dtype: str
) -> None:
    exported(done, tmp_path / "models" / "mine-step", "--devices", str(devices), "--dtype", dtype)
    rows = {f"{number} {name}": value for number, one in enumerate(batches(data)) for name, value in one.items()}
    np.savez(tmp_path / "batches.npz", **rows)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["XLA_FLAGS"] = xla_flags.QUICK
    ran = subprocess.run(
        [alone, "-c", THEIRS], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    theirs = np.load(tmp_path / "theirs.npz")
    state, metrics = ours(done, data, devices=devices, dtype=dtype)
    assert int(theirs["step"]) == int(state.step) == checkpoints.best(done.run)[1].step + STEPS
    # The compiler of the same jax makes the same program, save for options of ours (`compiling.OPTIONS`).
    exact = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-2, "atol": 1e-3}
    np.testing.assert_allclose(theirs["metrics"], metrics, **exact)
    for name, value in state.weights.items():
        np.testing.assert_allclose(theirs[f"weights/{name}"], value, err_msg=name, **exact)
    for name, slots in state.slots.items():
        for slot, value in slots.items():
            np.testing.assert_allclose(theirs[f"slots/{name}/{slot}"], value, err_msg=name, **exact)
    assert theirs["logits"].shape == (8, 2, run.open_model(done.run).config.vocab_size)


def test_a_step_is_exported_for_devices_that_are_not_here(done: trainer.Result, tmp_path: Path) -> None:
    import jax.export

    out = tmp_path / "step"
    exported(done, out, "--platform", "tpu", "--devices", "4", "--dtype", "bfloat16")
    said = json.loads((out / "step.json").read_text())
    assert (said["platform"], said["mesh"]) == ("tpu", {"data": 4, "shard": 1})
    step = jax.export.deserialize((out / "train_step.jax").read_bytes())
    assert (step.platforms, step.nr_devices) == (("tpu",), 4)
    assert said["arguments"]["batch"]["labels"] == {"shape": [8, 2], "dtype": "int32", "sharding": ["data"]}
    assert {one["dtype"] for one in said["arguments"]["copies"].values()} == {"bfloat16"}


@pytest.mark.slow
def test_an_exported_step_is_planned_from_its_files(done: trainer.Result, tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="needs the extra plan")
    out = tmp_path / "step"
    exported(done, out, "--platform", "tpu", "--devices", "4", "--dtype", "bfloat16")
    ran = CliRunner().invoke(cli.main, ["plan", "--program", str(out), "--tpu", "v5e-4", "--json"])
    assert ran.exit_code == 0, ran.output
    answer = json.loads(ran.output)
    assert answer["fits"]
    opened = run.open_model(done.run)
    assert opened.state
    config = dataclasses.replace(configs.build(opened.state.config), dtype="bfloat16")
    padding = Padding.of_dataset(opened.manifests[0])
    own = ask(Question(opened.config, config, parse("v5e-4"), input_length=32, target_length=2, padding=padding))
    assert answer["estimated_cycles"] == own.compiled.estimated_cycles > 0  # it is the trainer's own program


def test_what_has_no_step_is_refused_in_a_sentence(done: trainer.Result, shape: str, tmp_path: Path) -> None:
    hf = tmp_path / "hf"
    assert CliRunner().invoke(cli.main, ["export", "--model", done.run, "--out", str(hf)]).exit_code == 0
    for model, devices, sentence in ((str(hf), "1", "is no run, so it has no step"), (done.run, "3", "A batch of 8")):
        command = ["export", "--model", model, "--format", "step", "--out", str(tmp_path / "out"), "--devices", devices]
        ran = CliRunner().invoke(cli.main, command)
        assert (ran.exit_code, ran.output.count("\n")) == (1, 1)
        assert sentence in ran.output

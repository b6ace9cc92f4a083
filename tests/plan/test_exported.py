"""A step that was exported is planned from its files alone, and what is no such step is refused in a sentence."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from t5prep import cli

os.environ.setdefault("JAX_PLATFORMS", "cpu")
pytest.importorskip("jax", reason="needs the extra plan")
pytest.importorskip("libtpu", reason="needs the extra plan")
import jax.export

SIZE = 512


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A step of the form that `export --format step` writes, for one device: weights of SIZE x SIZE get a gradient."""
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))

    def train_step(weights, slots, number, copies, batch, rate):
        loss, gradient = jax.value_and_grad(lambda one: (batch["rows"] @ one["w"]).sum())(weights)
        return {"w": weights["w"] - rate * gradient["w"]}, slots, number + 1, copies, loss

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "shard"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def shaped(*shape: int, dtype: str = "float32") -> object:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=whole)

    arguments = ({"w": shaped(SIZE, SIZE)}, {}, shaped(dtype="int32"), {}, {"rows": shaped(8, SIZE)}, shaped())
    written = jax.export.export(jax.jit(train_step), platforms=("tpu",))(*arguments)
    folder = tmp_path / "step"
    folder.mkdir()
    (folder / "train_step.jax").write_bytes(written.serialize())
    (folder / "step.json").write_text(json.dumps({"platform": "tpu", "mesh": {"data": 1, "shard": 1}}))
    return folder


def planned(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(cli.main, ["plan", *arguments])
    return ran.exit_code, ran.output


def test_a_file_is_compiled_for_the_chip_that_it_was_exported_for(step: Path) -> None:
    code, said = planned("--program", str(step), "--tpu", "v5e-1", "--json")
    assert code == 0, said
    answer = json.loads(said)
    assert answer["fits"]
    # The weights are read and written at least once, and they are updated in place.
    assert SIZE * SIZE * 4 < answer["hbm_bytes"] < 2.5 * SIZE * SIZE * 4
    assert answer["estimated_cycles"] > 0
    assert answer["estimated_step_seconds"] == answer["estimated_cycles"] / 1.5e9
    code, said = planned("--program", str(step), "--tpu", "v5e-1")
    assert code == 0, said
    assert said.startswith(f"{step} on v5e-1: the exported step\n  fits ")


@pytest.mark.parametrize(
    "said",
    [
        *(f'{{"platform": "tpu", "mesh": {{"data": {size}}}}}' for size in ("Infinity", "1.5", "-4", "0")),
        f'{{"platform": "tpu", "mesh": {{"a": {"9" * 4000}, "b": {"9" * 4000}}}}}',
        "[" * 100_000,
    ],
)
def test_a_description_that_is_none_is_refused(tmp_path: Path, said: str) -> None:
    (tmp_path / "step.json").write_text(said)
    code, answer = planned("--program", str(tmp_path), "--tpu", "v5e-1")
    assert (code, answer.count("\n"), "is no step that was exported" in answer) == (1, 1, True), answer


def test_a_pipe_or_a_device_is_no_step(tmp_path: Path) -> None:
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        make(tmp_path / "step.json")
        code, answer = planned("--program", str(tmp_path), "--tpu", "v5e-1")
        assert (code, "it is a pipe or a device" in answer) == (1, True), answer
        (tmp_path / "step.json").unlink()


def test_what_does_not_belong_to_a_file_is_refused(step: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (("--program", str(tmp_path)), "is no step that was exported"),
        (("--program", str(step), "--tpu", "v5e-8"), "has a step for 1 devices of tpu, and v5e-8 has 8 of tpu"),
        (("--program", str(step), "--batch", "8"), "leave --batch out"),
        (("--program", str(step), "--tpu", "v5e-1", "--tpu", "v5e-8"), "--tpu names 2"),
    ):
        code, said = planned(*arguments)
        assert (code, said.count("\n")) == (1, 1), said
        assert words in said
    (step / "train_step.jax").write_bytes(b"no artifact")
    code, said = planned("--program", str(step), "--tpu", "v5e-1")
    assert (code, said.count("\n")) == (1, 1), said

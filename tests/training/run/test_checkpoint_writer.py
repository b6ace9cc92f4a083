"""Checkpoints are written while training goes on: a copy of that step, whole or absent, and errors come out."""

import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from raised import raises

from t5prep.errors import OutputError
from t5prep.training.model.weight_layout import WeightLayout
from t5prep.training.run import checkpoint_tensors, checkpoints
from t5prep.training.run.checkpoint_tensors import CheckpointWriter
from t5prep.training.run.checkpoints import State
from t5prep.training.runtime.state import Variables

LAYOUTS = {"a": WeightLayout((4, 4), stacked_axes=0, stddev=1.0, tensors=("a",))}  # of `variables`


def state(step: int) -> State:
    return State(step=step, config={}, data=[], tokenizer="", metric="loss")


def variables(value: float) -> Variables:
    return Variables({"a": jax.numpy.full((4, 4), value)}, {"a": {}}, jax.numpy.int32(0))


add_one = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_started, go_on = threading.Event(), threading.Event()
    write = checkpoint_tensors.write

    def slow(*arguments, **options) -> None:
        write_started.set()
        assert go_on.wait(600)
        write(*arguments, **options)

    monkeypatch.setattr(checkpoint_tensors, "write", slow)
    now = variables(1.0)
    with CheckpointWriter(str(tmp_path), keep=3) as writer:
        writer.save(now, state=state(1))
        assert write_started.wait(600)
        now = add_one(now)  # the step reuses the memory of the variables that are being written
        assert checkpoints.list_checkpoints(str(tmp_path)) == []  # not whole yet, so not there
        writer.check()
        go_on.set()
        writer.save(now, state=state(2))  # waits for the first
        assert [saved_state.step for _, saved_state in checkpoints.list_checkpoints(str(tmp_path))][:1] == [1]
    first, second = (path for path, _ in checkpoints.list_checkpoints(str(tmp_path)))
    assert np.array_equal(checkpoint_tensors.read_weights(first, LAYOUTS)["a"], np.full((4, 4), 1.0))
    assert np.array_equal(checkpoint_tensors.read_weights(second, LAYOUTS)["a"], np.full((4, 4), 2.0))


def _full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def _noticed(run: str, action: str) -> None:
    """Save one checkpoint, and then do what should notice that it could not be written."""
    with CheckpointWriter(run, keep=3) as writer:
        writer.save(variables(1.0), state=state(1))
        if action == "save":
            writer.save(variables(2.0), state=state(2))
        if action == "describe":
            writer.describe(state(1))
        while action == "check":
            writer.check()
        if action == "nothing":
            raise KeyboardInterrupt


@pytest.mark.parametrize("action", ["check", "save", "describe", "end"])
def test_an_error_of_the_thread_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    monkeypatch.setattr(checkpoint_tensors, "write", _full)
    with raises(OutputError, "output.unwritable", "checkpoints/00000001"):
        _noticed(str(tmp_path), action)
    assert checkpoints.list_checkpoints(str(tmp_path)) == []


def test_another_error_is_not_hidden_by_that_of_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_tensors, "write", _full)
    with pytest.raises(KeyboardInterrupt):
        _noticed(str(tmp_path), "nothing")

"""Toy data and models that the tests of training share."""

import pickle
from pathlib import Path
from typing import Any

import filelock
import pytest
import torch_process


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("toys")


@pytest.fixture(scope="session", autouse=True)
def _lowered_once(lowered_once: None) -> None:
    """Many of these tests train the same toy."""


@pytest.fixture(scope="session")
def data(shared: Path) -> str:
    import toy_runs  # needs TensorFlow

    with filelock.FileLock(shared / "data.lock"):
        folder = shared / "classes"
        return str(folder) if (folder / "manifest.json").exists() else toy_runs.classes(folder)


@pytest.fixture(scope="session")
def shape(shared: Path) -> str:
    import toy_runs  # needs TensorFlow

    with filelock.FileLock(shared / "shape.lock"):
        folder = shared / "shape"
        return str(folder) if (folder / "config.json").exists() else toy_runs.shape(folder)


@pytest.fixture(scope="session")
def finished_run(shared: Path, data: str, shape: str) -> Any:
    """A run of twelve steps that nothing disturbed: a `trainer.Result`."""
    import toy_runs  # needs TensorFlow

    from t5prep.training import trainer

    result = shared / "finished_run.pickle"
    with filelock.FileLock(shared / "finished_run.lock"):
        if not result.exists():
            result.write_bytes(pickle.dumps(trainer.train(toy_runs.config(data, shape, shared / "done"))))
    return pickle.loads(result.read_bytes())


@pytest.fixture(scope="module")
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What PyTorch's PROGRAM of a module of tests writes: models, and what comes of them."""
    folder = tmp_path_factory.mktemp("published")
    torch_process.pytorch(request.module.PROGRAM, folder)
    return folder


@pytest.fixture(scope="session")
def torch_t5(shared: Path) -> Path:
    """What tests/torch_t5.py writes: PyTorch's T5s of each family."""
    folder = shared / "torch_t5"
    with filelock.FileLock(shared / "torch_t5.lock"):
        if not (folder / "golden_t5.json").exists():  # it is written last
            torch_process.pytorch("torch_t5.py", folder)
    return folder

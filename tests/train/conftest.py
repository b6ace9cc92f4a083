"""Toy data and models that the tests of training share."""

from pathlib import Path

import beside
import pytest


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("toys")


@pytest.fixture(scope="module")
def data(toys: Path) -> str:
    import training  # needs TensorFlow

    return training.classes(toys / "classes")


@pytest.fixture(scope="module")
def shape(toys: Path) -> str:
    import training  # needs TensorFlow

    return training.shape(toys / "shape")


@pytest.fixture(scope="module")
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What PyTorch's PROGRAM of a module of tests writes: models, and what comes of them."""
    folder = tmp_path_factory.mktemp("published")
    beside.pytorch(request.module.PROGRAM, folder)
    return folder

"""Toy data and models that the tests of training share."""

from pathlib import Path

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

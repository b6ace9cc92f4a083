"""TensorFlow starts without Keras, and a program that uses Keras has it."""

import subprocess
import sys

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

CODE = """
import sys
import t5prep.train.loss
print("tensorflow" in sys.modules, "keras" in sys.modules, "matplotlib" in sys.modules)
import tensorflow as tf
print(tf.keras.optimizers.Adam.__name__, "keras.src.optimizers" in sys.modules)
"""


def test_tensorflow_starts_without_keras_and_has_it_where_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["True False False", "Adam True"]

"""Train a T5 or an encoder: from a prepared dataset to a run with checkpoints, metrics and an exported model."""

import importlib.util
import os
import sys

from t5prep import make_callable
from t5prep.errors import UsageError
from t5prep.io.installation import install_command

# TensorFlow's messages about its own build: errors are raised, its log is about GPUs. Set before anything imports it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

make_callable(__name__)


def need_tensorflow() -> None:
    """Raise UsageError, with the install command, where TensorFlow is missing.

    The error says so where TensorFlow has no release for this Python.
    """
    if importlib.util.find_spec("tensorflow") is None:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if sys.version_info >= (3, 14):
            raise UsageError(
                f"TensorFlow is not installed, and there is none for Python {here}: `make train` in the clone of t5prep "
                "makes an environment that has one."
            )
        raise UsageError(f"TensorFlow is not installed here. Install it with the trainer: {install_command('train')}")

"""Check that what training needs is installed, before it is imported."""

import importlib.util
import sys

from t5prep.errors import UsageError
from t5prep.io.installation import install_command


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

"""Train a T5 or an encoder: from a prepared dataset to a run with checkpoints, metrics and an exported model."""

import contextlib
import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from t5prep.errors import UsageError
from t5prep.io import address_space
from t5prep.io.installation import TENSORFLOW_FITS, install_command

# TensorFlow logs warnings about missing GPU libraries, which this trainer never uses; its errors are raised all the same.
# The variable works only if it is set before the first import of TensorFlow.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _load_triton() -> None:
    """Load PyTorch's Triton, if it is installed, before its LLVM can clash with TensorFlow's LLVM.

    TensorFlow exports its symbols to every library that is loaded later. `transformers` loads Triton together with a T5.
    Triton then registers the options of its LLVM a second time, in TensorFlow's copy, and the process ends: "LLVM ERROR:
    inconsistency in registered CommandLine options". Triton finds its own symbols if it is loaded before TensorFlow, or
    after it with RTLD_DEEPBIND. Loading takes 0.1 s of processor time (Triton 3.9, November 2026).
    """
    spec = importlib.util.find_spec("triton") if sys.platform == "linux" else None
    late = getattr(os, "RTLD_DEEPBIND", 0) if "tensorflow" in sys.modules else 0
    for folder in (spec and spec.submodule_search_locations) or ():
        for library in Path(folder).glob("_C/libtriton*.so"):
            with contextlib.suppress(OSError):  # PyTorch reports a missing library itself, if it is ever imported
                ctypes.CDLL(str(library), os.RTLD_NOW | late)


_load_triton()


def need_tensorflow() -> None:
    """Raise UsageError if TensorFlow is missing, has no release for this Python, or cannot run within `ulimit -v`."""
    if importlib.util.find_spec("tensorflow") is None:
        python_version = f"{sys.version_info.major}.{sys.version_info.minor}"
        if not TENSORFLOW_FITS:
            raise UsageError(
                f"TensorFlow is not installed and has no release for Python {python_version}. Create an "
                "environment with TensorFlow: run `make train` in the clone of t5prep.",
                code="install.unsupported-python",
            )
        raise UsageError(
            f"TensorFlow is not installed here. Install it with the trainer: {install_command('train')}",
            code="install.extra-missing",
        )
    address_space.check(address_space.TRAINING_BYTES)

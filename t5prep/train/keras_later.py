"""Have TensorFlow start without Keras, which nothing in t5prep uses.

TensorFlow imports Keras at the end of its own import, to register optimizers, and Keras imports matplotlib: together a
quarter of the processor time that TensorFlow takes to start. A program that uses `tf.keras` imports it then.
"""

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

# What tensorflow/__init__.py imports at its end, and goes on without where that raises ImportError.
_EAGERLY = "keras.src.optimizers"


class _KerasLater(importlib.abc.MetaPathFinder):
    """Find TensorFlow as Python does, and let it be executed by `_execute`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of TensorFlow; None for every other module, which the next finder looks for."""
        if fullname != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = functools.partial(_execute, spec.loader.exec_module)
            spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Have the next `import tensorflow` of this process leave Keras out."""
    if not any(isinstance(finder, _KerasLater) for finder in sys.meta_path):
        sys.meta_path.insert(0, _KerasLater())


def _execute(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute TensorFlow's module while its import of Keras raises ImportError."""
    if _EAGERLY in sys.modules:
        execute(module)
        return
    sys.modules[_EAGERLY] = None  # type: ignore[assignment]  # Python's own mark of a module that must not be imported
    try:
        execute(module)
    finally:
        del sys.modules[_EAGERLY]

"""Turn text from Kaggle, Zenodo, the Hugging Face Hub or a disk into a trained T5, by way of verified TFRecord shards.

    import t5prep

    manifest = t5prep.prepare("so_quality", source="sample:", tokenizer="sample:", out="data/sample")
    result = t5prep.train(data="data/sample", out="runs/sample", recipe="tiny")
    scores = t5prep.evaluate("runs/sample", split="validation")

Large packages are imported only when one of these functions is called. `t5prep.prepare`, `t5prep.train` and
`t5prep.plan` are also the folders of these names: calling the folder calls its function.
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from t5prep.version import __version__ as __version__

if TYPE_CHECKING:
    import inspect

    from pipelines.prepare import prepare as prepare
    from t5prep.dataset.manifest import load as load
    from t5prep.errors import T5prepError as T5prepError
    from t5prep.plan.interface import plan as plan
    from t5prep.plan.interface import plan_lengths as plan_lengths
    from t5prep.plan.interface import plan_sweep as plan_sweep
    from t5prep.report.table import table as table
    from t5prep.report.why import why as why
    from t5prep.train.api import embed as embed
    from t5prep.train.api import evaluate as evaluate
    from t5prep.train.api import predict as predict
    from t5prep.train.api import train as train
    from t5prep.train.data import train_batches as train_batches

__all__ = [
    *("T5prepError", "embed", "evaluate", "load", "plan", "plan_lengths", "plan_sweep"),
    *("predict", "prepare", "table", "train", "train_batches", "why"),
]

# Public name → the module that defines it.
_DEFINED_IN = {
    "T5prepError": "t5prep.errors",
    "embed": "t5prep.train.api",
    "evaluate": "t5prep.train.api",
    "load": "t5prep.dataset.manifest",
    "plan": "t5prep.plan.interface",
    "plan_lengths": "t5prep.plan.interface",
    "plan_sweep": "t5prep.plan.interface",
    "predict": "t5prep.train.api",
    "prepare": "pipelines.prepare",
    "table": "t5prep.report.table",
    "train": "t5prep.train.api",
    "train_batches": "t5prep.train.data",
    "why": "t5prep.report.why",
}


class _CallableFolder(types.ModuleType):
    """Make a package callable: `t5prep.train(...)` is the function `train`, `t5prep.train.settings` its module."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _function(self.__name__.rpartition(".")[2])(*arguments, **options)

    @property
    def __signature__(self) -> "inspect.Signature":
        """Return the signature of the function, for `help` and editors."""
        import inspect

        return inspect.signature(_function(self.__name__.rpartition(".")[2]))


def _function(name: str) -> Any:
    """Return a public object, importing the module that defines it."""
    return getattr(importlib.import_module(_DEFINED_IN[name]), name)


def make_callable(folder: str) -> None:
    """Make a package callable, given its full name: calling it calls the public function of the same name."""
    sys.modules[folder].__class__ = _CallableFolder


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 't5prep' has no attribute {name!r}")
    if name in ("plan", "prepare", "train"):
        return importlib.import_module(f"t5prep.{name}")
    return _function(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

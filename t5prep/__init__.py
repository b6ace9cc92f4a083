"""Prepare text from Kaggle, Zenodo, the Hugging Face Hub or a disk as verified TFRecord shards, and train T5 on them.

    import t5prep

    manifest = t5prep.prepare("so_quality", source="sample:", tokenizer="sample:", out="data/sample")
    result = t5prep.train(data="data/sample", out="runs/sample", recipe="tiny")
    scores = t5prep.evaluate("runs/sample", split="validation")

Importing `t5prep` is quick. The first use of a function imports its module and the large packages that it needs.
"""

import importlib
from typing import TYPE_CHECKING, Any

from t5prep.version import __version__ as __version__

if TYPE_CHECKING:
    from pipelines.prepare import prepare as prepare
    from t5prep.dataset.manifest import load as load
    from t5prep.errors import T5prepError as T5prepError
    from t5prep.planning.interface import plan as plan
    from t5prep.planning.interface import plan_lengths as plan_lengths
    from t5prep.planning.interface import plan_sweep as plan_sweep
    from t5prep.report.table import table as table
    from t5prep.report.why import why as why
    from t5prep.training.api import embed as embed
    from t5prep.training.api import evaluate as evaluate
    from t5prep.training.api import predict as predict
    from t5prep.training.api import train as train
    from t5prep.training.data import train_batches as train_batches

__all__ = [
    *("T5prepError", "embed", "evaluate", "load", "plan", "plan_lengths", "plan_sweep"),
    *("predict", "prepare", "table", "train", "train_batches", "why"),
]

# Public name → the module that defines it.
_DEFINED_IN = {
    "T5prepError": "t5prep.errors",
    "embed": "t5prep.training.api",
    "evaluate": "t5prep.training.api",
    "load": "t5prep.dataset.manifest",
    "plan": "t5prep.planning.interface",
    "plan_lengths": "t5prep.planning.interface",
    "plan_sweep": "t5prep.planning.interface",
    "predict": "t5prep.training.api",
    "prepare": "pipelines.prepare",
    "table": "t5prep.report.table",
    "train": "t5prep.training.api",
    "train_batches": "t5prep.training.data",
    "why": "t5prep.report.why",
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 't5prep' has no attribute {name!r}")
    return getattr(importlib.import_module(_DEFINED_IN[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

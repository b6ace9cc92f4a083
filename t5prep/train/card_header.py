"""Write the header of a model card, as the Hub reads it: base model, licence, datasets, metrics and their values."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from t5prep.train.metrics.table import NUMBERS
from t5prep.train.model.encoder_config import EncoderConfig
from t5prep.train.run import Model

# Names of the Hub's first T5 models, which may be given without their owner.
OWN = re.compile(r"t5-(small|base|large|3b|11b)")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
# The licence of each publisher's T5 models, from their cards. For other models the user names the licence.
LICENCES = {"google-t5": "apache-2.0", "google": "apache-2.0"}
TASK, CLASS_TASK = "text2text-generation", "text-classification"


def header(model: Model, *, name: str, licence: str = "") -> str:
    """Return the YAML between two lines of dashes. `licence` is the Hub's name of one, such as apache-2.0."""
    base = base_model(model)
    numbers = _numbers(model.state.metrics if model.state else {})
    tasks = sorted({dataset.settings.task for dataset in model.manifests})
    data = ModelCardData(
        library_name="peft" if model.adapter else "transformers",
        pipeline_tag=CLASS_TASK if model.config.classes else "text-generation",
        base_model=base or None,
        license=licence or LICENCES.get(base.partition("/")[0]),
        datasets=datasets(model) or None,
        metrics=sorted({NUMBERS[key].hub for key in numbers}) or None,
        tags=[_kind(model), "t5prep", *(["lora"] if model.adapter else []), *tasks],
        model_name=name if numbers and tasks else None,
        eval_results=_results(model, numbers) if numbers and tasks else None,
        ignore_metadata_errors=False,
    )
    return f"---\n{data.to_yaml()}\n---"


def _kind(model: Model) -> str:
    return model.config.model_type if isinstance(model.config, EncoderConfig) else "t5"


def base_model(model: Model) -> str:
    """Return the Hub's name of the model that training began from; "" for random weights or a model not on the Hub."""
    settings = model.state.config if model.state else {}
    name = str(settings.get("model", ""))
    if settings.get("weights") == "random" or Path(name).exists():
        return ""
    if OWN.fullmatch(name):
        return f"google-t5/{name}"
    return name if REPOSITORY.fullmatch(name) else ""


def datasets(model: Model) -> list[str]:
    """Return the Hub's names of the datasets that the model was trained on; datasets of other hosts have none."""
    found = (re.match(r"hf:([\w.-]+/[\w.-]+)", dataset.source.uri) for dataset in model.manifests)
    return sorted({match[1] for match in found if match})


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that the Hub has a metric for."""
    reported = {name for name, number in NUMBERS.items() if number.hub}
    return {key: float(value) for key, value in metrics.items() if key in reported and isinstance(value, int | float)}


def _results(model: Model, numbers: Mapping[str, float]) -> list[EvalResult]:
    """Return each metric with the data that it was measured on; for a mixture, the first dataset's name."""
    dataset = model.manifests[0]
    split = str(model.state.config.get("eval_split", "validation")) if model.state else "validation"
    return [
        EvalResult(
            task_type=CLASS_TASK if model.config.classes else TASK,
            dataset_type=(datasets(model) or [dataset.settings.task])[0],
            dataset_name=dataset.settings.task,
            dataset_split=split,
            metric_type=NUMBERS[key].hub,
            metric_name=key,
            metric_value=value,
        )
        for key, value in numbers.items()
    ]

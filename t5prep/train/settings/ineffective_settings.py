"""Refuse settings that have no effect, given the other settings and the data: whoever sets one expects an effect."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t5prep.dataset.manifest import Manifest
from t5prep.errors import UsageError, did_you_mean
from t5prep.train.evaluate import metrics
from t5prep.train.step import schedules

# Setting → the setting that decides whether it has an effect, and the values with which it has.
EFFECTIVE_ONLY_WITH: dict[str, tuple[str, tuple[Any, ...]]] = {
    "parameter_scale": ("optimizer", ("adafactor",)),
    "decay_rate": ("optimizer", ("adafactor",)),
    **dict.fromkeys(("weight_decay", "beta1", "beta2", "epsilon"), ("optimizer", ("adamw",))),
    "warmup": ("schedule", tuple(name for name in schedules.NAMES if name != "constant")),
    **dict.fromkeys(("power", "end_rate"), ("schedule", ("polynomial",))),
    "beams": ("generate", (True,)),
}
# Settings of an evaluation; a dataset without the split is not evaluated.
OF_EVALUATION = ("patience", "generate", "metric", "eval_batch", "eval_rows")


def without_ineffective(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without those that `changed` makes ineffective: AdamW's settings, when a recipe for AdamW is run
    with Adafactor.
    """
    deciding = {key: EFFECTIVE_ONLY_WITH[key] for key in values if key in EFFECTIVE_ONLY_WITH}
    gone = {key for key, (by, counts) in deciding.items() if by in changed and changed[by] not in counts}
    return {key: value for key, value in values.items() if key not in gone}


def check(config: Any) -> None:
    """Raise UsageError for a value of a TrainConfig that differs from the default and has no effect."""
    for key in _set(config):
        by, counts = EFFECTIVE_ONLY_WITH.get(key, ("", ()))
        if by and getattr(config, by) not in counts:
            value = str(getattr(config, by)).lower()
            others = " or ".join(str(one).lower() for one in counts)
            raise UsageError(
                f"{key} is {getattr(config, key)}, and does nothing with {by}={value}. Leave it out, or --set {by}={others}."
            )
    if "lora_alpha" in _set(config) and not config.lora:
        raise UsageError(f"lora_alpha is {config.lora_alpha}, and does nothing without adapters: --set lora=8")
    for key in ("rates", "temperature", "cap"):
        if key in _set(config) and len(config.data) == 1:
            value = ", ".join(map(str, config.rates)) if key == "rates" else getattr(config, key)
            raise UsageError(f"{key} is {value}, and does nothing with a single dataset. Leave it out.")
        if key in _set(config) and key != "rates" and config.rates:
            raise UsageError(f"{key} is {getattr(config, key)}, and does nothing with rates=…. Leave one of them out.")


def check_data(config: Any, manifests: Sequence[Manifest]) -> None:
    """Raise UsageError for a setting that has no effect with these datasets, or that an evaluation cannot obey."""
    if any(dataset.class_names != manifests[0].class_names for dataset in manifests):
        raise UsageError("These datasets have different classes, or classes and texts, as targets: train one by one.")
    evaluated = [dataset for dataset in manifests if config.eval_split in dataset.splits]
    if not evaluated:
        _refuse_settings_of_evaluation(config, manifests)
    if config.metric != "auto":
        for dataset in evaluated:
            _check_metric(config, dataset)
    if config.generate and all(dataset.settings.layout == "packed" for dataset in manifests):
        raise UsageError("generate does nothing with packed data, whose answers are not apart: --set generate=false")
    if config.generate and all(dataset.settings.target_length <= 2 for dataset in manifests):
        raise UsageError(
            "generate does nothing where targets are one token: each evaluation has the answers already."
            " Leave it out: --set generate=false"
        )


def _refuse_settings_of_evaluation(config: Any, manifests: Sequence[Manifest]) -> None:
    """Raise UsageError for an evaluation split that was asked for, or a setting that needs one: no dataset has it."""
    splits = sorted({split for dataset in manifests for split in dataset.splits})
    has = f"it has {', '.join(splits)}"
    if "eval_split" in _set(config):
        raise UsageError(
            f'eval_split is "{config.eval_split}", and the data has no such split ({has}).'
            f"{did_you_mean(config.eval_split, splits)} Name one with --set eval_split=…, or leave it out."
        )
    for key in OF_EVALUATION:
        if key in _set(config):
            raise UsageError(
                f"{key} is {getattr(config, key)}, and does nothing: the data has no split"
                f' "{config.eval_split}" to evaluate ({has}). Name one with --set eval_split=…, or leave it out.'
            )


def _check_metric(config: Any, dataset: Manifest) -> None:
    """Raise UsageError where an evaluation of the dataset will not have the number that selects the best checkpoint."""
    has = metrics.possible(dataset, split=config.eval_split, generate=config.generate)
    if config.metric in has:
        return
    generated = metrics.possible(dataset, split=config.eval_split, generate=True)
    way = "Generate answers: --set generate=true" if config.metric in generated else "Choose one of these, or auto."
    raise UsageError(
        f"metric is {config.metric}, and an evaluation of {dataset.settings.task} has only {', '.join(has)}. {way}"
    )


def _set(config: Any) -> list[str]:
    """Return the settings that differ from their defaults."""
    return [field.name for field in dataclasses.fields(config) if getattr(config, field.name) != field.default]

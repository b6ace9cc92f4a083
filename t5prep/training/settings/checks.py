"""Check settings against the data (each must have an effect), and against an earlier start (some may not change)."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from t5prep.dataset.manifest import Manifest
from t5prep.errors import UsageError, did_you_mean
from t5prep.training import objectives
from t5prep.training.run.checkpoints import start_anew
from t5prep.training.settings import train_config
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.step import schedule_of


def check_data(config: TrainConfig, manifests: Sequence[Manifest]) -> None:
    """Raise UsageError if a setting has no effect with these datasets, or if no evaluation can compute its metric."""
    objective = objectives.of(manifests[0].target)
    if any(manifest.target != objective.target for manifest in manifests):
        raise UsageError(
            "The targets of these datasets differ in kind or in classes. Train on one dataset at a time.",
            code="dataset.mixed-targets",
        )
    if objective.target.is_aligned and any(
        input_length != target_length for input_length, target_length in train_config.parse_buckets(config.buckets)
    ):
        raise UsageError(
            "Each label belongs to one token, so both sides of a bucket must be equal. Example: --set "
            "buckets=64x64,128x128",
            code="setting.unequal-bucket",
        )
    if not objective.has_softmax:
        for key in ("label_smoothing", "z_loss"):
            if key in train_config.find_changed(config) and getattr(config, key):
                raise UsageError(
                    f"{key} is {getattr(config, key)}, but has no effect where targets are "
                    f"{objective.target.name}. Remove {key}, or use --set {key}=0",
                    code="setting.inapplicable",
                )
    evaluated = [dataset for dataset in manifests if config.eval_split in dataset.splits]
    if not evaluated:
        _refuse_settings_of_evaluation(config, manifests)
    if config.metric != "auto":
        for dataset in evaluated:
            _check_metric(config, dataset)
    if config.generate and all(dataset.settings.is_packed for dataset in manifests):
        raise UsageError(
            "generate does not work with packed data, because one row holds several answers. Turn "
            "generate off: --set generate=false",
            code="setting.inapplicable",
        )
    if config.generate and (
        not objective.target.is_text or all(manifest.settings.target_length <= 2 for manifest in manifests)
    ):
        raise UsageError(
            "generate has no effect on targets that are classes, numbers or one token, because each "
            "evaluation already has the answers. Turn generate off: --set generate=false",
            code="setting.inapplicable",
        )


def _refuse_settings_of_evaluation(config: TrainConfig, manifests: Sequence[Manifest]) -> None:
    """Raise UsageError if `eval_split` or a setting that needs it was set. No dataset has the evaluation split."""
    splits = sorted({split for dataset in manifests for split in dataset.splits})
    has = f"it has {', '.join(splits)}"
    if "eval_split" in train_config.find_changed(config):
        raise UsageError(
            f'eval_split is "{config.eval_split}", but the data has no such split '
            f"({has}).{did_you_mean(config.eval_split, splits)} Name a split with --set eval_split=…, or "
            "remove eval_split.",
            code="split.unknown",
        )
    for key in train_config.OF_EVALUATION:
        if key in train_config.find_changed(config):
            raise UsageError(
                f"{key} is {getattr(config, key)}, but has no effect: the data has no split "
                f'"{config.eval_split}" to evaluate ({has}). Name a split with --set eval_split=…, or remove '
                f"{key}.",
                code="setting.inapplicable",
            )


def _check_metric(config: TrainConfig, dataset: Manifest) -> None:
    """Raise UsageError if evaluations of `dataset` cannot have the number `config.metric`."""
    possible = functools.partial(
        objectives.of(dataset.target).possible, dataset, split=config.eval_split, metric=config.metric
    )
    available_metrics = possible(generate=config.generate)
    if config.metric in available_metrics:
        return
    fix = (
        "Generate answers: --set generate=true"
        if config.metric in possible(generate=True)
        else "Choose one of these, or auto."
    )
    raise UsageError(
        f"metric is {config.metric}, but an evaluation of {dataset.settings.task} has only {', '.join(available_metrics)}. {fix}",
        code="setting.unavailable-metric",
    )


def steps_of(config: TrainConfig, *, in_epoch: int) -> int:
    """Return the number of steps of a run; `in_epoch` is that of an epoch. Raises UsageError if no length is set."""
    steps = config.steps or math.ceil(config.epochs * in_epoch)
    if not steps:
        raise UsageError(
            "The length of training is not set. Set it with --set epochs=3 or --set steps=10000.",
            code="setting.missing-length",
        )
    return steps


def describe_new_length(
    config: TrainConfig, stored: Mapping[str, Any], *, checkpoint_step: int, in_epoch: int, checkpoint_path: str
) -> str:
    """Return a message if the run's length differs from that of the `stored` settings, else "".

    `checkpoint_step`: the number of steps of the checkpoint `checkpoint_path`. Raises UsageError if one of these steps had
    another learning rate than in a run of the new length.
    """
    old_config = dataclasses.replace(config, steps=int(stored["steps"]), epochs=float(stored["epochs"]))
    old_steps = steps_of(old_config, in_epoch=in_epoch)
    now = steps_of(config, in_epoch=in_epoch)
    if old_steps == now:
        return ""
    old, new = schedule_of(config, steps=old_steps), schedule_of(config, steps=now)
    differing = next((step for step in range(min(checkpoint_step, now)) if old(step) != new(step)), None)
    if differing is not None:
        raise UsageError(
            f"{checkpoint_path} was trained for a run of {old_steps:,} steps, but the run now has "
            f"{now:,}. With schedule={config.schedule}, step {differing + 1:,} had a rate of "
            f"{old(differing):.3g} and now needs {new(differing):.3g}. Restore the earlier length, or "
            f"{start_anew(config)}.",
            code="checkpoint.schedule-mismatch",
        )
    if now <= checkpoint_step:
        return f"The run already has {checkpoint_step:,} steps, and {now:,} were requested. Only scoring it."
    return f"The run has {now:,} steps now, instead of {old_steps:,}."

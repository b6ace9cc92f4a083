"""Score splits of datasets with a model that is opened once, and find a run's own datasets from any folder."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from t5prep.dataset import manifest
from t5prep.dataset.prepared import Dataset
from t5prep.errors import T5prepError, UsageError
from t5prep.io import paths
from t5prep.options.fields import changed
from t5prep.options.models import EvaluateOptions, ModelOptions
from t5prep.training.data.open_datasets import open_split
from t5prep.training.evaluate.evaluator import Evaluation, Evaluator
from t5prep.training.log import say
from t5prep.training.model.weight_layout import weight_bytes
from t5prep.training.predict.device import check_generates
from t5prep.training.run import checkpoints, run
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.state import put_weights
from t5prep.training.step.step import dtype_of


class Loaded(NamedTuple):
    """A model that is opened once for several splits: the model, the devices, and its weights on the devices."""

    opened: run.Model
    layout: Layout
    weights: dict[str, jax.Array]


class Scored(NamedTuple):
    """One split of one dataset and its evaluation."""

    data: str
    split: str
    evaluation: Evaluation


def score_splits(model: str, options: EvaluateOptions) -> tuple[str, list[Scored]]:
    """Score each split of each dataset; return the checkpoint's name and the scores. Raises T5prepError.

    Without `options.data` a run is scored on all datasets that it was trained on. Model and datasets are opened once.
    """
    places = options.data or datasets_of(model, checkpoint_name=options.model.checkpoint)
    datasets = [Dataset(folder, tokenizer=options.model.tokenizer) for folder in places]
    loaded = load(model, options.model)
    _warn_of_unrelated(loaded.opened, datasets)
    scored = [
        Scored(dataset.folder, split, score_split(loaded, options, dataset, split=split))
        for dataset in datasets
        for split in options.split
    ]
    return loaded.opened.name, scored


def _warn_of_unrelated(opened: run.Model, datasets: Sequence[Dataset]) -> None:
    """Print a warning for each dataset whose task the run was not trained on."""
    learned = {run_manifest.settings.task for run_manifest in opened.manifests}
    for dataset in datasets if learned else ():
        task = dataset.manifest.settings.task
        if task not in learned:
            say(
                f"warning: {opened.name} was trained on {', '.join(sorted(learned))}, but {dataset.folder} is of the task "
                f"{task}. The scores show how well the model transfers to this task."
            )


def load(model: str, options: ModelOptions = ModelOptions()) -> Loaded:  # noqa: B008 - frozen
    """Open a run's checkpoint, a Hugging Face directory or a Hub model, and put it on the devices. Raises T5prepError."""
    opened = run.open_model(model, checkpoint=options.checkpoint)
    layout = open_layout(tpu=options.tpu, gpus=options.gpus, shard=None, weight_bytes=weight_bytes(opened.config))
    return Loaded(opened, layout, put_weights(opened.weights, layout.weights(opened.config)))


def score_split(loaded: Loaded, options: EvaluateOptions, dataset: Dataset, *, split: str) -> Evaluation:
    """Score a loaded model on one split of one dataset. Raises T5prepError, also if the loss is NaN.

    Each prediction has its own `scores` too, if the task's metrics are defined for single records.
    """
    opened, generation = loaded.opened, options.generation
    tokenizer = opened.tokenizer or dataset.tokenizer
    chosen = changed(generation)
    check_generates(opened, generation)
    evaluator = Evaluator(
        opened.config,
        layout=loaded.layout,
        opened=open_split(dataset, split, tokenizer=tokenizer.sha256),
        batch=options.batch,
        tokenizer=tokenizer,
        dtype=dtype_of(options.dtype, platform=loaded.layout.platform),
        limit=options.limit,
        metric_names=options.metric,
        generation=generation,
        metric="" if options.metric or opened.state is None else opened.state.metric,
        generates_single_tokens=bool(chosen),
        bootstrap=options.bootstrap,
    )
    if chosen and not evaluator.generates:
        say(
            f"warning: {' '.join(chosen)} has no effect, because no answers to {dataset.folder} are generated. "
            "To score generated answers: --metric rouge"
        )
    result = evaluator(loaded.weights, worst=options.worst, sample=options.random_wrong, score_each=True)
    if math.isnan(result.numbers()["loss"]):
        raise T5prepError(
            f"The loss of {opened.name} on {dataset.folder} is not a number (NaN): its weights or its "
            "config.json are damaged. Choose another checkpoint (--checkpoint), or export the model again.",
            code="weights.nonfinite",
        )
    return result


def datasets_of(model: str, *, checkpoint_name: str = "best") -> list[str]:
    """Return the paths of a run's training datasets. Raises UsageError if one is not found, or `model` is no run.

    A relative path is looked up from the current folder, then from each folder above the run.
    """
    if not run.is_run(model):
        if "://" not in model and not Path(model).exists():
            raise UsageError(
                f"The run {model} does not exist here.{paths.mistyped(model)} For a model of the Hub, name the data to "
                f"score it on: --data DIR. To train the run: t5prep train --out {model} ...",
                code="run.not-found",
            )
        raise UsageError(
            f"{model} is not a run of t5prep, so its data is unknown. Name the data: --data DIR", code="option.missing"
        )
    _, state = checkpoints.choose(model, checkpoint=checkpoint_name)
    return [place_of(str(entry["uri"]), model) for entry in state.data]


def place_of(uri: str, model: str) -> str:
    """Return the path of a dataset that the run `model` was trained on as `uri`. Raises UsageError if it is not found."""
    if "://" in uri:
        return uri
    candidates = [Path(uri), *(folder / uri for folder in Path(model).resolve().parents)]
    path = next((path for path in candidates if (path / manifest.NAME).is_file()), None)
    if path is None:
        raise UsageError(
            f"{model} was trained on {uri}, which does not exist here. Name the current folder of the data: --data DIR",
            code="run.missing-data",
        )
    return str(path)

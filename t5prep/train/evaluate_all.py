"""Score several splits of several datasets in one call, and find a run's own datasets from any folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t5prep.dataset import manifest
from t5prep.errors import UsageError
from t5prep.io import suggestions
from t5prep.train import checkpoint, mixture_metrics, run
from t5prep.train.evaluate import Evaluation, evaluate, load


class Scored(NamedTuple):
    """Hold one split of one dataset and its evaluation."""

    data: str
    split: str
    evaluation: Evaluation


def evaluate_all(
    model: str,
    *,
    data: Sequence[str] = (),
    splits: Sequence[str] = ("validation",),
    which: str = "best",
    tpu: str | None = None,
    gpus: bool = False,
    **options: Any,
) -> tuple[str, list[Scored]]:
    """Score each split of each dataset (for a run: of all it was trained on); return the checkpoint and the scores.

    The model is opened once. The `options` are those of `evaluate`. Raises T5prepError.
    """
    places = list(data) or datasets_of(model, which=which)
    loaded = load(model, which=which, tpu=tpu, gpus=gpus)
    scored = [
        Scored(place, split, evaluate(loaded, data=place, split=split, **options))
        for place in places
        for split in splits
    ]
    return loaded.opened.name, scored


def mean_of(scored: Sequence[Scored]) -> dict[str, Any]:
    """Return the metrics of a single evaluation unchanged; of several, the mean of each number that all have.

    Records are added up.
    """
    if len(scored) == 1:
        return scored[0].evaluation.metrics
    return dict(mixture_metrics.mean([one.evaluation.numbers() for one in scored]))


def datasets_of(model: str, *, which: str = "best") -> list[str]:
    """Return the places of a run's training datasets. Raises UsageError where one is not found, or none is known.

    A relative path is looked up from the current folder, then from each folder above the run.
    """
    if not run.is_run(model):
        if "://" not in model and not Path(model).exists():
            raise UsageError(
                f"There is no run {model} here.{suggestions.mistyped(model)} Train it: t5prep train --out {model} ...; or, "
                "for a model of the Hub, say which data to score it on: --data DIR"
            )
        raise UsageError(f"{model} is not a run of t5prep, so its data is not known: --data DIR")
    _, state = checkpoint.choose(model, which=which)
    return [_found(str(one["uri"]), model) for one in state.data]


def _found(uri: str, model: str) -> str:
    if "://" in uri:
        return uri
    candidates = [Path(uri), *(folder / uri for folder in Path(model).resolve().parents)]
    place = next((place for place in candidates if (place / manifest.NAME).is_file()), None)
    if place is None:
        raise UsageError(f"{model} was trained on {uri}, which is not here. Say where it lies now: --data DIR")
    return str(place)

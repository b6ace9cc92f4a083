"""Say before a run which numbers its evaluations can have, from the manifest alone."""

from collections.abc import Iterable

from t5prep.dataset.manifest import Manifest
from t5prep.train.metrics.table import DEFAULT_METRICS, METRICS, OF_TOKENS

OF_CLASSES = METRICS["classification"].numbers


def possible(dataset: Manifest, *, split: str, generate: bool) -> tuple[str, ...]:
    """Return the names of all numbers that an evaluation of this split may have, by what the manifest says of it.

    The manifest knows target lengths in steps of four tokens: a split whose targets may be single tokens or longer
    counts as both.
    """
    names = dict.fromkeys(OF_TOKENS)
    packed = dataset.settings.layout == "packed"
    if may_be_single_tokens(dataset, split=split):
        names |= dict.fromkeys((*OF_CLASSES, *_of_metrics(_wanted(dataset) or DEFAULT_METRICS)))
    has_answers = bool(_wanted(dataset)) or not dataset.task.metrics
    if generate and has_answers and not packed and dataset.settings.target_length > 2:
        names |= dict.fromkeys(_of_metrics(_wanted(dataset) or DEFAULT_METRICS))
        names |= dict.fromkeys(OF_CLASSES if dataset.splits[split].labels else ())
    return tuple(names)


def may_be_single_tokens(dataset: Manifest, *, split: str) -> bool:
    """Check whether all targets of a split may be one token and EOS, so that one forward pass gives the answers."""
    if dataset.settings.layout == "packed":
        return False
    if dataset.settings.target_length <= 2:
        return True
    lengths = dataset.splits[split].lengths
    step = lengths.get("step", (16, 4))[1]
    return all(targets <= max(step, 2) for _, targets, _ in lengths.get("joint", ()))


def _wanted(dataset: Manifest) -> list[str]:
    """Return the metrics of the task that score answers; a task such as span corruption has none."""
    return [name for name in dataset.task.metrics if name in METRICS]


def _of_metrics(wanted: Iterable[str]) -> list[str]:
    return [name for metric in wanted for name in METRICS[metric].numbers]

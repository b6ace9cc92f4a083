"""Say before a run which numbers its evaluations can have, from the manifest alone."""

from collections.abc import Iterable

from t5prep.dataset.manifest import Manifest

OF_EACH_TOKEN = ("loss", "perplexity", "token_accuracy")
OF_CLASSES = (
    "accuracy",
    *(f"{mean}_{name}" for mean in ("macro", "weighted") for name in ("precision", "recall", "f1")),
)
_ROUGE = ("rouge1_f1", "rouge2_f1", "rougeL_f1", "rougeL_precision", "rougeL_recall")
OF_METRIC = {
    "squad": ("em", "f1"),
    "rouge": _ROUGE,
    "normalized_rouge": _ROUGE,
    "bleu": ("bleu",),
    "classification": OF_CLASSES,
    "diacritics": ("word_accuracy", "char_accuracy"),
}
DEFAULT_METRICS = ("squad", "rouge")  # of a task that names none
ALL = tuple(dict.fromkeys((*OF_EACH_TOKEN, *OF_CLASSES, *(name for own in OF_METRIC.values() for name in own))))


def possible(dataset: Manifest, *, split: str, generate: bool) -> tuple[str, ...]:
    """Return the names of all numbers that an evaluation of this split may have, by what the manifest says of it.

    The manifest knows target lengths in steps of four tokens: a split whose targets may be single tokens or longer
    counts as both.
    """
    names = dict.fromkeys(OF_EACH_TOKEN)
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
    return [name for name in dataset.task.metrics if name in OF_METRIC]


def _of_metrics(wanted: Iterable[str]) -> list[str]:
    return [name for metric in wanted for name in OF_METRIC[metric]]

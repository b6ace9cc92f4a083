"""List every metric with the numbers that it gives: the one place where a metric is added."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from t5prep.errors import UsageError, did_you_mean
from t5prep.train.metrics.answers import References
from t5prep.train.metrics.bleu import bleu
from t5prep.train.metrics.classification import classification
from t5prep.train.metrics.diacritics import diacritics
from t5prep.train.metrics.rouge import rouge
from t5prep.train.metrics.squad import squad


@dataclasses.dataclass(frozen=True)
class Number:
    """Describe one number. `hub`: the name of its metric on the Hub, where a model card reports it."""

    hub: str = ""
    lower_is_better: bool = False


@dataclasses.dataclass(frozen=True)
class Metric:
    """Describe a metric on texts. `compute`: `(references, predictions)` → `{name: value}`, with `numbers` among them.

    `of_each_item`: it is a mean over items, so each item has a value of its own (BLEU needs the whole corpus).
    """

    compute: Callable[..., Mapping[str, Any]]
    numbers: Mapping[str, Number]
    of_each_item: bool = True
    takes_classes: bool = False


_ROUGE = {
    **{f"rouge{kind}_f1": Number(hub="rouge") for kind in ("1", "2", "L")},
    "rougeL_precision": Number(),
    "rougeL_recall": Number(),
}
_OF_CLASSES = {
    "accuracy": Number(hub="accuracy"),
    **{f"{mean}_{name}": Number() for mean in ("macro", "weighted") for name in ("precision", "recall", "f1")},
    "macro_f1": Number(hub="f1"),
}
# The metrics that a task may name.
METRICS: Mapping[str, Metric] = {
    "squad": Metric(squad, {"em": Number(hub="exact_match"), "f1": Number(hub="f1")}),
    "rouge": Metric(rouge, _ROUGE),
    "normalized_rouge": Metric(functools.partial(rouge, normalize=True), _ROUGE),
    "bleu": Metric(bleu, {"bleu": Number(hub="sacrebleu")}, of_each_item=False),
    "classification": Metric(classification, _OF_CLASSES, of_each_item=False, takes_classes=True),
    "diacritics": Metric(diacritics, {"word_accuracy": Number(), "char_accuracy": Number()}),
}
DEFAULT_METRICS = ("squad", "rouge")  # of a task that names none
# What every evaluation has, without an answer (see `of_tokens`).
OF_TOKENS: Mapping[str, Number] = {
    "loss": Number(lower_is_better=True),
    "perplexity": Number(hub="perplexity", lower_is_better=True),
    "token_accuracy": Number(),
}
# Every number that there is.
NUMBERS: Mapping[str, Number] = {
    **OF_TOKENS,
    **_OF_CLASSES,
    **{name: number for metric in METRICS.values() for name, number in metric.numbers.items()},
}


def lower_is_better(number: str) -> bool:
    """Check whether less of this number is better; of a number that is not in the table, more is."""
    return number in NUMBERS and NUMBERS[number].lower_is_better


def compute(
    names: Iterable[str],
    *,
    references: Sequence[References],
    predictions: Sequence[str],
    classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the values of these metrics in one dictionary; `classes` are the words of a classification, in order.

    Raises UsageError for an unknown metric.
    """
    values: dict[str, Any] = {}
    for name in names:
        if name not in METRICS:
            raise UsageError(f'there is no metric "{name}".{did_you_mean(name, METRICS)} All: {", ".join(METRICS)}.')
        metric = METRICS[name]
        ordered = {"classes": classes} if metric.takes_classes else {}
        values |= metric.compute(references, predictions, **ordered)
    return values


def of_each(
    names: Iterable[str], *, references: Sequence[References], predictions: Sequence[str]
) -> list[dict[str, float]]:
    """Return the values of these metrics for each item alone, for the metrics that are means over items.

    >>> of_each(["squad", "bleu"], references=["the tape", "a head"], predictions=["Tape.", "no"])
    [{'em': 1.0, 'f1': 1.0}, {'em': 0.0, 'f1': 0.0}]
    """
    own = [name for name in names if METRICS[name].of_each_item]
    return [
        compute(own, references=[right], predictions=[predicted])
        for right, predicted in zip(references, predictions, strict=True)
    ]

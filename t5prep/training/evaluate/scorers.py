"""Score the answers to targets of one kind: what each record's answer and right answers are, and the metrics of all."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from t5prep.tasks.targets import HeadTarget
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.evaluate import metrics, target_metrics

Decode = Callable[[Sequence[int] | np.ndarray], str]


@dataclasses.dataclass(frozen=True)
class Scored:
    """Hold the metrics of a split, each record's answer and right answers, and the metrics that score a record alone."""

    values: dict[str, Any]
    answers: list[str]
    references: list[list[str]]
    metrics: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Results:
    """Hold what the devices gave for the records of a split, in their order.

    `labels` and `predicted`: int32[rows, length]. `references`: the right texts of each record, none where the labels are the
    one. `queries`: the ids of each record's first text, where texts are ranked. `generated`: the ids of each generated answer.
    """

    labels: np.ndarray
    predicted: np.ndarray
    references: Sequence[Sequence[str]] = ()
    queries: Sequence[bytes] = ()
    generated: Sequence[np.ndarray] = ()


class Scorer(Protocol):
    """Score the answers to one kind of target; `generates`: whether they are generated, token by token."""

    generates: ClassVar[bool] = False

    @property
    def unfit(self) -> Sequence[str]:
        """Return the metrics of tokens that say nothing of these targets."""
        return ()

    def score(self, results: Results) -> Scored:
        """Return the answers of a split with their metrics."""


@dataclasses.dataclass(frozen=True)
class TextMetrics:
    """Compute metrics of texts, of some `classes` or none; `bootstrap` adds intervals to ROUGE."""

    names: list[str]
    classes: Sequence[str]
    bootstrap: bool = False

    def compute(self, references: list[list[str]], answers: list[str]) -> dict[str, Any]:
        """Return the metrics of answers to records with these right answers."""
        values = metrics.compute(self.names, references=references, predictions=answers, classes=self.classes)
        if self.bootstrap:
            for name in [name for name in self.names if "rouge" in name] or ["rouge"]:
                values |= metrics.METRICS[name].compute(references, answers, bootstrap=True)
        return values


@dataclasses.dataclass(frozen=True)
class NumberScorer(Scorer):
    """Score targets that a head tells and that are not one class: tags of words, sets of labels, or numbers."""

    target: HeadTarget

    @property
    def unfit(self) -> Sequence[str]:
        """Return the metrics of tokens that say nothing of these targets."""
        return metrics.UNFIT.get(self.target.name, ())

    def score(self, results: Results) -> Scored:
        """Return the answers as texts, with the metrics of this kind of target."""
        values, right, answers = target_metrics.score(
            self.target, results.labels, results.predicted, queries=results.queries
        )
        return Scored(values, answers, [[one] for one in right])


@dataclasses.dataclass(frozen=True)
class OneTokenScorer(Scorer):
    """Score targets that one forward pass answers: the number of a class, or one token and EOS.

    `classes` are those of a head's numbers; none where labels are tokens. `texts` are the metrics of short answers that are no
    classes, or that were asked for (`is_asked`).
    """

    classes: Sequence[str]
    texts: TextMetrics
    tokenizer: Tokenizer
    is_asked: bool

    def score(self, results: Results) -> Scored:
        """Return the answers as words, with the metrics of classes, or of short texts."""
        labels, predicted = results.labels[:, 0], results.predicted[:, 0]
        if self.classes:
            answers, right = ([self.classes[int(number)] for number in side] for side in (predicted, labels))
        else:
            text = words_of(labels, tokenizer=self.tokenizer)
            answers, right = ([text(token) for token in side] for side in (predicted, labels))
        references = [[one] for one in right]
        if len(set(right)) > metrics.MOST_CLASSES or self.is_asked:
            return Scored(self.texts.compute(references, answers), answers, references, self.texts.names)
        values = metrics.classification(right, answers, classes=self.texts.classes)
        return Scored(values, answers, references, ["classification"])


@dataclasses.dataclass(frozen=True)
class TextScorer(Scorer):
    """Score generated answers by metrics of texts; `is_labelled`: the names of classes that are several tokens each."""

    texts: TextMetrics
    decode: Decode
    is_labelled: bool
    generates = True

    def score(self, results: Results) -> Scored:
        """Return the generated texts with their metrics."""
        answers = [self.decode(ids) for ids in results.generated]
        references = [
            list(given) or [self.decode(ids)] for given, ids in zip(results.references, results.labels, strict=True)
        ]
        values, names = self.texts.compute(references, answers), self.texts.names
        if self.is_labelled and "classification" not in names and all(len(given) == 1 for given in references):
            names = [*names, "classification"]
            values |= metrics.classification([given[0] for given in references], answers, classes=self.texts.classes)
        return Scored(values, answers, references, names)


def words_of(labels: np.ndarray, *, tokenizer: Tokenizer) -> Callable[[int], str]:
    """Return how single tokens are decoded: a label to its word, and any other token to a text that equals no label."""
    words = {int(token): tokenizer.decode([int(token)]) for token in np.unique(labels)}

    def text(token: int) -> str:
        if (number := int(token)) in words:
            return words[number]
        word = tokenizer.decode([number])
        return tokenizer.piece(number) if word in words.values() or not word else word

    return text

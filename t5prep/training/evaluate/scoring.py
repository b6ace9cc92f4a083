"""Hold what an evaluation asks of the answers to a split, and what comes of them; each kind of target scores in objectives.py."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from t5prep.json_values import JSON
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.evaluate import metrics


@dataclasses.dataclass(frozen=True)
class Scored:
    """Hold the metrics of a split, each record's answer and right answers, and the metrics that score a record alone."""

    values: Mapping[str, JSON]
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


@dataclasses.dataclass(frozen=True)
class Scoring:
    """Hold what is asked of the answers to a split, and how they are read.

    `names` are metrics of texts, those of the task if none were asked for (`is_asked`); `bootstrap` adds intervals to ROUGE.
    `classes` are the words of a classification; `is_labelled`: records are counted by their targets. `is_single`: all targets are
    one token and EOS, which one forward pass answers. `generates`: answers are generated, token by token.
    """

    names: list[str]
    classes: Sequence[str]
    tokenizer: Tokenizer
    decode: Callable[[Sequence[int] | np.ndarray], str]
    is_asked: bool
    is_labelled: bool
    is_single: bool
    generates: bool
    bootstrap: bool

    def score_texts(self, references: list[list[str]], answers: list[str]) -> Scored:
        """Return the metrics of texts."""
        values = metrics.compute(self.names, references=references, predictions=answers, classes=self.classes)
        if self.bootstrap:
            for name in [name for name in self.names if "rouge" in name] or ["rouge"]:
                values |= metrics.METRICS[name].compute(references, answers, bootstrap=True)
        return Scored(values, answers, references, self.names)

    def score_words(self, right: list[str], answers: list[str]) -> Scored:
        """Return the metrics of classes, or of short texts: where they are no classes, or where metrics were asked for."""
        references = [[word] for word in right]
        if len(set(right)) > metrics.MOST_CLASSES or self.is_asked:
            return self.score_texts(references, answers)
        values = metrics.classification(right, answers, classes=self.classes)
        return Scored(values, answers, references, ["classification"])


def words_of(labels: np.ndarray, *, tokenizer: Tokenizer) -> Callable[[int], str]:
    """Return how single tokens are decoded: a label to its word, and any other token to a text that equals no label."""
    words = {int(token): tokenizer.decode([int(token)]) for token in np.unique(labels)}

    def text(token: int) -> str:
        if (number := int(token)) in words:
            return words[number]
        word = tokenizer.decode([number])
        return tokenizer.piece(number) if word in words.values() or not word else word

    return text

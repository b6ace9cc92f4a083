"""Define the data of scoring: the results from the devices, the choices of an evaluation, and the scores.

Each kind of target computes its scores in objectives.py.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from t5prep.json_values import JSON
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.evaluate import metrics


@dataclasses.dataclass(frozen=True)
class Scored:
    """The scores of a split: metrics (`values`), each record's answer and right answers, and the names of the metrics."""

    values: Mapping[str, JSON]
    answers: list[str]
    references: list[list[str]]
    metrics: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Results:
    """The results that the devices computed for the records of a split, in the records' order.

    `labels` and `predicted`: int32[rows, length]. `references`: the right texts of each record; empty if the labels are the
    only right answer. `queries`: the ids of each record's first text, if texts are ranked. `generated`: the ids of each
    generated answer.
    """

    labels: np.ndarray
    predicted: np.ndarray
    references: Sequence[Sequence[str]] = ()
    queries: Sequence[bytes] = ()
    generated: Sequence[np.ndarray] = ()


@dataclasses.dataclass(frozen=True)
class Scoring:
    """The choices of an evaluation: which metrics score the answers, and how ids are decoded.

    `names`: metrics of texts, chosen by the user (`is_asked`) or by the task. `classes`: the words of a classification.
    `decode`: returns the text of ids. `is_labelled`: the manifest counts records by their targets. `is_single`: all targets
    are one token and EOS, which one forward pass answers. `generates`: answers are generated token by token. `bootstrap`: add
    intervals to ROUGE.
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
        """Return the metrics of texts; `references` holds the right texts of each of `answers`."""
        values = metrics.compute(self.names, references=references, predictions=answers, classes=self.classes)
        if self.bootstrap:
            for name in [name for name in self.names if "rouge" in name] or ["rouge"]:
                values |= metrics.METRICS[name].compute(references, answers, bootstrap=True)
        return Scored(values, answers, references, self.names)

    def score_words(self, right: list[str], answers: list[str]) -> Scored:
        """Return the metrics of classes. If `right` has too many different words, or the user chose metrics, those of texts."""
        references = [[word] for word in right]
        if len(set(right)) > metrics.MOST_CLASSES or self.is_asked:
            return self.score_texts(references, answers)
        values = metrics.classification(right, answers, classes=self.classes)
        return Scored(values, answers, references, ["classification"])


def words_of(labels: np.ndarray, *, tokenizer: Tokenizer) -> Callable[[int], str]:
    """Return a function that decodes a token id: a label to its word, any other token to a text that equals no label.

    Two tokens may decode to one text, such as "▁high" and "high". The token that is no label then becomes its piece, so that
    a wrong token is not counted as right.
    """
    words = {int(token): tokenizer.decode([int(token)]) for token in np.unique(labels)}

    def text(token: int) -> str:
        if (number := int(token)) in words:
            return words[number]
        word = tokenizer.decode([number])
        return tokenizer.piece(number) if word in words.values() or not word else word

    return text

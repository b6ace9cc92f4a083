"""Define the loss, the answers and the metrics of each kind of target.

An objective is to training what a target (tasks/targets.py) is to preparing: that module turns texts into labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t5prep.dataset.manifest import Manifest
from t5prep.tasks.targets import IGNORED, HeadTarget, Target, numbers_of
from t5prep.training.evaluate import metrics, target_metrics
from t5prep.training.evaluate.metrics import Number
from t5prep.training.evaluate.scoring import Results, Scored, Scoring, words_of

if TYPE_CHECKING:  # at run time it is imported where tensors are computed: settings and reports need none of it
    import tensorflow as tf

Answers = tuple[tuple[str, ...], tuple[float, ...]]


@dataclasses.dataclass(frozen=True)
class Objective:
    """Define how targets of one kind are learned: by default, by the cross-entropy at each label.

    Logits are float32[rows, positions, classes], labels int32[rows, length], and -100 (`IGNORED`) is no label.
    """

    target: Target

    head: ClassVar[str] = ""  # the end of the name of a model's class in transformers, such as "SequenceClassification"
    problem: ClassVar[str] = ""  # the `problem_type` in a config.json of transformers
    title: ClassVar[str] = ""  # the name of the job in a model card
    hub_task: ClassVar[str] = ""  # the name of the job on the Hub
    # The numbers of an evaluation besides those of tokens; None: the metrics of texts or classes (`metrics.METRICS`).
    numbers: ClassVar[Mapping[str, Number] | None] = None
    unfit: ClassVar[Sequence[str]] = ()  # numbers of tokens that mean nothing for these targets
    best: ClassVar[str] = "accuracy"  # the number that picks the best checkpoint, if an evaluation has it
    has_softmax: ClassVar[bool] = True  # whether label smoothing and z-loss change the loss

    def losses(
        self, logits: tf.Tensor, labels: tf.Tensor, **smoothing: float
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the loss at each position, whether the likeliest label is right, and whether the position has a label.

        smoothing: `label_smoothing` and `z_loss` of `losses.token_losses`.
        """
        from t5prep.training.step.losses import token_losses

        return *token_losses(logits, labels, **smoothing), labels >= 0

    def likeliest(self, logits: tf.Tensor) -> tf.Tensor:
        """Return the likeliest labels, int32[rows, length]."""
        import tensorflow as tf

        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    def possible(self, dataset: Manifest, *, split: str, generate: bool, metric: str = "") -> tuple[str, ...]:
        """Return the names of all numbers that an evaluation of `split` may have, according to the manifest `dataset`.

        `generate`: whether answers are generated. `metric`: the number that picks the best checkpoint; the metric that
        computes it is added if the task does not name one.
        """
        if self.numbers is None:
            return metrics.possible(dataset, split=split, generate=generate, metric=metric)
        return (*(name for name in metrics.TOKEN_NUMBERS if name not in self.unfit), *self.numbers)

    def ranks(self, dataset: Manifest) -> bool:
        """Check whether the targets rank the texts of a query, as relevance scores do."""
        return False

    def score(self, results: Results, scoring: Scoring) -> Scored | None:
        """Return the answers to a split with their metrics; None if only the loss of each token is known."""
        return None


class TextObjective(Objective):
    """Learn texts, token by token. Answers are generated, unless all targets are one token."""

    hub_task = "text-generation"

    def score(self, results: Results, scoring: Scoring) -> Scored | None:
        if scoring.is_single:
            text = words_of(results.labels[:, 0], tokenizer=scoring.tokenizer)
            right, answers = ([text(ids[0]) for ids in side] for side in (results.labels, results.predicted))
            return scoring.score_words(right, answers)
        if not scoring.generates:
            return None
        references = [
            list(row_references) or [scoring.decode(ids)]
            for row_references, ids in zip(results.references, results.labels, strict=True)
        ]
        scored = scoring.score_texts(references, [scoring.decode(ids) for ids in results.generated])
        if (
            not scoring.is_labelled
            or "classification" in scored.metrics
            or any(len(row_references) > 1 for row_references in references)
        ):
            return scored
        # Names of classes that are several tokens each.
        values = metrics.classification(
            [row_references[0] for row_references in references], scored.answers, classes=scoring.classes
        )
        return dataclasses.replace(
            scored, values={**scored.values, **values}, metrics=[*scored.metrics, "classification"]
        )


class HiddenTokensObjective(Objective):
    """Learn hidden tokens: an encoder scores the vocabulary at each position."""

    hub_task = "fill-mask"
    numbers: ClassVar[Mapping[str, Number]] = {}


@dataclasses.dataclass(frozen=True)
class HeadObjective(Objective):
    """Learn targets that a head on an encoder predicts."""

    target: HeadTarget

    head = "SequenceClassification"
    hub_task = "text-classification"

    def answers(self, logits: tf.Tensor, *, count: int) -> dict[str, tf.Tensor]:
        """Return at most `count` answers to each row: `ids`, int32[rows, answers, length], encoded as labels, and `scores`."""
        return {"ids": self.likeliest(logits)[:, None], "scores": self.log_likelihoods(logits)}

    def log_likelihoods(self, logits: tf.Tensor) -> tf.Tensor:
        """Return the score of the likeliest answer: float32[rows, 1], or for tags float32[rows, 1, positions]."""
        raise NotImplementedError

    def read(self, ids: np.ndarray, scores: np.ndarray, *, words: np.ndarray | None, count: int) -> Answers:
        """Return the texts of a row's answers and their scores, best first.

        ids, scores: one row of the result of `answers`. words: the number of the word that begins at each position of the
        input, or IGNORED. count: the number of words in the input.
        """
        return (self.target.text(ids[0]),), (float(scores[0]),)

    def score(self, results: Results, scoring: Scoring) -> Scored:
        answers, right = (
            [self.target.text(row.tolist()) for row in _with_label(side, results.labels)]
            for side in (results.predicted, results.labels)
        )
        return Scored(self.values(results), answers, [[label] for label in right])

    def values(self, results: Results) -> dict[str, float]:
        """Return the metrics of the answers `results`."""
        raise NotImplementedError


class ClassObjective(HeadObjective):
    """Learn one class."""

    problem = "single_label_classification"
    title = "classification"

    def answers(self, logits: tf.Tensor, *, count: int) -> dict[str, tf.Tensor]:
        import tensorflow as tf

        best = tf.math.top_k(tf.nn.log_softmax(logits[:, 0]), k=min(count, len(self.target.classes)))
        return {"ids": best.indices[..., None], "scores": best.values}

    def read(self, ids: np.ndarray, scores: np.ndarray, *, words: np.ndarray | None, count: int) -> Answers:
        return tuple(self.target.text(answer) for answer in ids), tuple(map(float, scores))

    def score(self, results: Results, scoring: Scoring) -> Scored:
        right, answers = ([self.target.text(ids) for ids in side] for side in (results.labels, results.predicted))
        return scoring.score_words(right, answers)


class TagsObjective(HeadObjective):
    """Learn a tag for each word. Tags that mark spans (`B-PER`) are scored by spans, other tags by tokens alone."""

    head = "TokenClassification"
    title = "tagging"
    hub_task = "token-classification"
    numbers: ClassVar[Mapping[str, Number]] = {name: Number(hub=name) for name in ("precision", "recall", "f1")}
    best = "f1"

    def log_likelihoods(self, logits: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return tf.reduce_max(tf.nn.log_softmax(logits), axis=-1)[:, None]

    def read(self, ids: np.ndarray, scores: np.ndarray, *, words: np.ndarray | None, count: int) -> Answers:
        """Return the tags of all words. A word that was cut off or has no token gets the tag "O", or the first class."""
        assert words is not None
        classes, first = self.target.classes, np.flatnonzero(words != IGNORED)
        tags = ["O" if "O" in classes else classes[0]] * count
        for position in first.tolist():
            tags[words[position]] = classes[ids[0, position]]
        return (self.target.separator.join(tags),), (float(scores[0, first].sum()),)

    def values(self, results: Results) -> dict[str, float]:
        classes = self.target.classes
        if not all(map(target_metrics.SPAN_TAG.fullmatch, classes)):
            return {}
        sides = (results.labels, results.predicted)
        tags = [[[classes[tag] for tag in row] for row in _with_label(side, results.labels)] for side in sides]
        return target_metrics.of_spans(*tags)


class LogitObjective(HeadObjective):
    """Learn targets whose labels each have a separate logit, without a softmax over them."""

    has_softmax = False

    def losses(
        self, logits: tf.Tensor, labels: tf.Tensor, **smoothing: float
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        import tensorflow as tf

        is_target = labels != IGNORED
        losses = self.logit_losses(logits[:, 0], tf.where(is_target, labels, 0))
        return losses, self.likeliest(logits) == labels, is_target

    def logit_losses(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Return the loss of each logit, float32[rows, labels]."""
        raise NotImplementedError


class LabelsObjective(LogitObjective):
    """Learn any number of labels: the loss is the binary cross-entropy of each label."""

    problem = "multi_label_classification"
    title = "multi-label classification"
    numbers: ClassVar[Mapping[str, Number]] = {
        "micro_f1": Number(hub="f1"),
        "macro_f1": Number(),
        "exact_match": Number(hub="exact_match"),
    }
    unfit = ("perplexity",)
    best = "micro_f1"

    def logit_losses(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32), logits=logits)

    def likeliest(self, logits: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return tf.cast(logits[:, 0] > 0, tf.int32)

    def log_likelihoods(self, logits: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return tf.reduce_sum(tf.math.log_sigmoid(tf.abs(logits[:, 0])), axis=1)[:, None]

    def values(self, results: Results) -> dict[str, float]:
        return target_metrics.of_labels(results.labels, results.predicted)


class NumberObjective(LogitObjective):
    """Learn a number by the squared error. Its label is the bits of a float32, because labels are int32."""

    problem = "regression"
    title = "regression"
    numbers: ClassVar[Mapping[str, Number]] = {
        "mse": Number(hub="mse", lower_is_better=True),
        "pearson": Number(hub="pearsonr"),
        "spearman": Number(hub="spearmanr"),
    }
    unfit = ("perplexity", "token_accuracy")
    # Numbers that are added if pairs are prepared in groups (`--group-column`), such as a query with its documents.
    rankings: ClassVar[Mapping[str, Number]] = {"mrr_at_10": Number(), "ndcg_at_10": Number()}

    def logit_losses(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return tf.math.squared_difference(logits, tf.bitcast(labels, tf.float32))

    def likeliest(self, logits: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return tf.bitcast(logits[:, 0], tf.int32)

    def log_likelihoods(self, logits: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        return tf.zeros_like(logits[:, 0])

    def possible(self, dataset: Manifest, *, split: str, generate: bool, metric: str = "") -> tuple[str, ...]:
        of_numbers = super().possible(dataset, split=split, generate=generate, metric=metric)
        return (*of_numbers, *(self.rankings if self.ranks(dataset) else ()))

    def ranks(self, dataset: Manifest) -> bool:
        return bool(dataset.settings.group_column)

    def values(self, results: Results) -> dict[str, float]:
        both = [numbers_of(side[:, 0]).astype(np.float64) for side in (results.labels, results.predicted)]
        ranked = target_metrics.of_rankings(results.queries, *both) if results.queries else {}
        return target_metrics.of_numbers(*both) | ranked


OBJECTIVES: Mapping[str, type[Objective]] = {
    "text": TextObjective,
    "class": ClassObjective,
    "tags": TagsObjective,
    "labels": LabelsObjective,
    "number": NumberObjective,
    "tokens": HiddenTokensObjective,
}
# Every number that an evaluation can have.
NUMBERS: Mapping[str, Number] = {
    **metrics.TOKEN_NUMBERS,
    **{name: number for kind in OBJECTIVES.values() for name, number in (kind.numbers or {}).items()},
    **NumberObjective.rankings,
    **metrics.OF_CLASSES,
    **{name: number for metric in metrics.METRICS.values() for name, number in metric.numbers.items()},
}


def of(target: Target) -> Objective:
    """Return the objective that learns `target`."""
    return OBJECTIVES[target.name](target)


def lower_is_better(number: str) -> bool:
    """Check whether a lower value of `number` is better. A number that is not in NUMBERS is better if higher."""
    return number in NUMBERS and NUMBERS[number].lower_is_better


def _with_label(rows: Iterable[np.ndarray], labels: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the values of each row at the positions that have a label."""
    return (row[label != IGNORED] for row, label in zip(rows, labels, strict=True))

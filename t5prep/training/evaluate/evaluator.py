"""Score every record of a split once: loss, token accuracy, and the metrics that the task names for its answers.

If every target is one token (and EOS), one forward pass gives the answer: the argmax of the first position over the whole
vocabulary, computed on the device. The Stack Overflow tutorial (pedro-r-marques/tutorial-t5-fine-tune) scores answers in the
same way. Otherwise answers are generated. Only ids and one loss for each row are transferred from the device.
"""

import dataclasses
import functools
import hashlib
import heapq
from collections.abc import Mapping, Sequence
from typing import TypedDict, TypeVar

import jax
import numpy as np
import tensorflow as tf

from t5prep.dataset.prepared import DatasetSplit
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.errors import UsageError
from t5prep.json_values import JSON
from t5prep.options.fields import without_effect
from t5prep.options.generation import Generation
from t5prep.tasks.targets import HiddenTokensTarget, Target
from t5prep.tokens import newlines
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training import objectives
from t5prep.training.data import batches, eval_batches
from t5prep.training.evaluate import metrics
from t5prep.training.evaluate.scoring import Results, Scoring
from t5prep.training.model.architecture import Config, ModelConfig
from t5prep.training.model.entries import class_order
from t5prep.training.model.forward import forward, with_mask
from t5prep.training.predict.device import answers_on_rows, uniform
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.row_programs import Rows, on_rows, run_batches
from t5prep.training.settings.padding import Padding

_Entry = TypeVar("_Entry", bound=tuple[float, int, list[int]])


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A wrong answer, with the model's input and the loss of the target."""

    id: str
    input: str
    target: str
    prediction: str
    loss: float


class Prediction(TypedDict, total=False):
    """A record's answer, its right answers (`references`), the loss of the first of these, and the answer's own scores."""

    id: str
    prediction: str
    references: list[str]
    loss: float
    scores: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """An evaluation's numbers (for classes also `labels` and `confusion`), and each record's id and answer.

    `worst` holds the wrong answers with the highest losses, `sample` random wrong answers to each class.
    """

    metrics: dict[str, JSON]
    predictions: list[Prediction]
    worst: list[Wrong]
    sample: list[Wrong] = dataclasses.field(default_factory=list)

    def numbers(self) -> dict[str, float]:
        """Return the metrics that are single numbers, without lists such as `confusion`."""
        return {name: float(value) for name, value in self.metrics.items() if isinstance(value, int | float)}


class Evaluator:
    """Score one split of one dataset with the given weights. The programs are compiled once, for any number of calls.

    Args:
        config: The model's config.
        layout: The devices.
        opened: The split.
        batch: Rows of a batch over all replicas.
        tokenizer: The tokenizer of the model.
        dtype: The dtype of matrix products and activations.
        limit: Score only the first `limit` records; 0 scores all.
        metric_names: Metrics to compute instead of the task's.
        generating: Whether to generate answers if targets are longer than one token.
        generation: Options of generation; the best of its `answers` is scored.
        generates_single_tokens: Generate single tokens too. One forward pass gives the same tokens, unless they are
            sampled or some are forbidden.
        metric: A number that must be computed even if the task's metrics do not give it.
        bootstrap: Whether ROUGE gets intervals.
        cache_path: The folder of compiled programs; "" for none.

    Raises:
        UsageError: The batch cannot be divided by the replicas, or model and dataset do not fit together.
    """

    def __init__(
        self,
        config: Config,
        *,
        layout: Layout,
        opened: DatasetSplit,
        batch: int,
        tokenizer: Tokenizer,
        dtype: tf.DType,
        limit: int = 0,
        metric_names: Sequence[str] = (),
        generating: bool = True,
        generation: Generation = Generation(),  # noqa: B008 - frozen
        generates_single_tokens: bool = False,
        metric: str = "",
        bootstrap: bool = False,
        cache_path: str = "",
    ) -> None:
        replicas = layout.replicas
        if batch % replicas:
            raise UsageError(
                f"An evaluation batch of {batch} rows cannot be divided among {replicas} replicas. Choose a "
                f"multiple of {replicas}: --set eval_batch=… in t5prep train, --batch in t5prep eval.",
                code="device.indivisible-batch",
            )
        self._opened, dataset = opened, opened.manifest
        batch = min(batch, -(-opened.records // replicas) * replicas)  # no more rows than the split has
        self._tokenizer = tokenizer
        # A tokenizer may change a word, in its spaces for example. So class names pass through it, like targets and answers.
        words = [tokenizer.decode(tokenizer.encode(word)) for word in dataset.task.classes]
        requested_names = metrics.check(metric_names)
        of_task = metrics.of_answers(dataset)
        names = (requested_names or of_task or list(metrics.DEFAULT_METRICS)) + metrics.also_scored(metric, of_task)
        has_answers = bool(requested_names or of_task)  # a task such as span corruption has none to score
        generates = generating and has_answers and not opened.settings.is_packed and dataset.target.is_text
        is_single = not (generates and generates_single_tokens) and _are_single_tokens(opened, limit=limit)
        self.generates = generates and not is_single
        is_labelled = bool(opened.facts.labels)
        self._by_class = is_labelled or bool(dataset.target.classes)
        if bootstrap and not requested_names and (self._by_class or not dataset.target.is_text):
            raise without_effect("--bootstrap", ["--metric rouge"])
        self._objective = objectives.of(dataset.target)
        self._scoring = Scoring(
            names,
            dataset.target.classes or words,
            tokenizer,
            self._decode,
            is_asked=bool(requested_names),
            is_labelled=is_labelled,
            is_single=is_single,
            generates=self.generates,
            bootstrap=bootstrap,
        )
        padding = Padding.of_dataset(dataset)
        self._separator = padding.separator if self._objective.ranks(dataset) else None
        self._batches = functools.partial(eval_batches, opened, batch=batch, limit=limit)
        order = logits_order(config, dataset.target, data=opened.folder)
        score = functools.partial(_score, config=config, dtype=dtype, order=order, padding=padding)
        longest = generation.max_length or max(opened.lengths[1], generation.min_length)
        self._generation = dataclasses.replace(generation, max_length=longest)
        self._score = on_rows("score", score, shape=config, layout=layout, dtype=dtype, cache_path=cache_path)
        if self.generates and isinstance(config, ModelConfig) and not config.classes:
            self._generate = answers_on_rows(
                config, self._generation, layout=layout, dtype=dtype, cache_path=cache_path, padding=padding
            )

    def __call__(
        self, weights: Mapping[str, jax.Array], *, worst: int = 0, sample: int = 0, score_each: bool = False
    ) -> Evaluation:
        """Score every record with `weights`, which are on the devices.

        `worst`: the maximum number of wrong answers with the highest losses to return. `sample`: the maximum number of random
        wrong answers to each class. With `score_each`, each prediction has its own `scores`.
        """
        rows = ScoredRows(worst, sample, by_class=self._by_class, separator=self._separator)
        program = self._score_and_generate if self.generates else self._score
        for batch, of_batch in run_batches(program, weights, self._batches()):
            rows.add(batch, of_batch)
        results = rows.results()
        values: dict[str, JSON] = {**metrics.perplexity(rows.losses, (results.labels != IGNORED_LABEL).sum(axis=1))}
        values |= metrics.token_accuracy(results.labels, results.predicted) | {"records": len(results.labels)}
        scored = self._objective.score(results, self._scoring)
        if scored is None:
            return Evaluation(values, [], [])
        values = {name: value for name, value in values.items() if name not in self._objective.unfit}
        values |= scored.values
        answers, references = scored.answers, scored.references
        predictions: list[Prediction] = [
            {"id": id, "prediction": answer, "references": row_references, "loss": loss}
            for id, answer, row_references, loss in zip(rows.ids, answers, references, rows.losses, strict=True)
        ]
        if score_each:
            scores = metrics.of_each(scored.metrics, references=references, predictions=answers)
            predictions = [
                {**prediction, "scores": row_scores} for prediction, row_scores in zip(predictions, scores, strict=True)
            ]

        def wrong(candidates: Sequence[tuple[float, int, list[int]]]) -> list[Wrong]:
            return [
                Wrong(rows.ids[row], self._input(inputs), references[row][0], answers[row], rows.losses[row])
                for _, row, inputs in candidates
                if answers[row] not in references[row]
            ]

        return Evaluation(values, predictions, wrong(sorted(rows.highest, reverse=True)), wrong(rows.sample()))

    def _score_and_generate(self, weights: Mapping[str, jax.Array], batch: Rows) -> dict[str, jax.Array]:
        """Return the scores of a batch and the ids of its generated `answers`; its rows are transferred only once."""
        questions = {"input_ids": batch["input_ids"]}
        if self._generation.sample:
            questions["uniform"] = uniform(questions["input_ids"], self._generation, pad_id=self._tokenizer.pad_id)
        return {**self._score(weights, batch), "answers": self._generate(weights, questions)["ids"][:, 0]}

    def _decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of a target, without its EOS and padding."""
        eos, pad = self._tokenizer.eos_id, self._tokenizer.pad_id
        tokens = [int(token) for token in ids if token not in (eos, pad, IGNORED_LABEL)]
        keep_newlines = self._opened.manifest.settings.keep_newlines
        return newlines.decode(tokens, tokenizer=self._tokenizer, keep_newlines=keep_newlines)

    def _input(self, ids: Sequence[int]) -> str:
        keep_newlines = self._opened.manifest.settings.keep_newlines
        return newlines.decode_input(ids, tokenizer=self._tokenizer, keep_newlines=keep_newlines)


def _are_single_tokens(opened: DatasetSplit, *, limit: int) -> bool:
    """Check whether all target texts of a split, or of its first `limit` records, are one token and EOS.

    The lengths in the dataset's file of lengths decide.
    """
    if opened.settings.is_packed or not opened.manifest.target.is_text:
        return False
    if opened.lengths[1] <= 2:
        return True
    if not limit and not metrics.may_be_single_tokens(opened.manifest, split=opened.name):
        return False
    return bool((batches.lengths_of(opened)[: limit or None, 1] <= 2).all())


class ScoredRows:
    """The results of all scored records, in the split's order.

    `highest` holds (loss, row, input ids) of the `worst` wrong rows with the highest losses. Also `sample_size` wrong rows of every
    class (of all rows without `by_class`) are sampled by the hash of their ids, which no batch size changes. With a
    `separator`, `queries` holds the ids of the first text of each row. `generated` holds the ids of each generated answer.
    """

    def __init__(
        self, worst: int, sample_size: int = 0, *, by_class: bool = False, separator: int | None = None
    ) -> None:
        self._worst, self._sample_size, self._by_class = worst, sample_size, by_class
        self.ids: list[str] = []
        self.references: list[list[str]] = []
        self.labels: list[np.ndarray] = []
        self.predicted: list[np.ndarray] = []
        self.losses: list[float] = []
        self._separator = separator
        self.queries: list[bytes] = []
        self.generated: list[np.ndarray] = []
        self.highest: list[tuple[float, int, list[int]]] = []  # a heap
        self._sample_heaps: dict[
            bytes, list[tuple[int, int, list[int]]]
        ] = {}  # by the label: a heap of (hash, row, input ids)

    def add(self, batch: Mapping[str, np.ndarray], scored: Mapping[str, np.ndarray]) -> None:
        """Add the records of a batch. `scored` holds `ids`, `loss` and perhaps `answers`, for each row of the batch."""
        mask = is_record(batch)
        labels, predicted = batch["labels"][mask], scored["ids"][mask]
        first = len(self.losses)
        self.labels.append(labels)
        self.predicted.append(predicted)
        self.losses += [float(loss) for loss in scored["loss"][mask]]
        if "id" in batch:
            self.ids += [id.decode() for id in batch["id"][mask]]
        texts = batch["references"][mask] if "references" in batch else [[]] * len(labels)
        if self._separator is not None:
            # Search from the second token on: a EuroBERT also has its separator in front of the first text.
            firsts = (row[: 1 + np.argmax(row[1:] == self._separator)] for row in batch["input_ids"][mask])
            self.queries += [first.tobytes() for first in firsts]
        self.references += [[text.decode() for text in row_texts if text] for row_texts in texts]
        self.generated += list(scored["answers"][mask]) if "answers" in scored else []
        if not self._worst and not self._sample_size:
            return
        wrong = ((predicted != labels) & (labels != IGNORED_LABEL)).any(axis=1)
        inputs = batch["input_ids"][mask]
        for row in np.flatnonzero(wrong):
            index, ids = first + int(row), [int(token) for token in inputs[row]]
            if self._worst:
                _keep(self.highest, (self.losses[index], index, ids), max_size=self._worst)
            if self._sample_size and self.ids:
                digest = hashlib.blake2b(self.ids[index].encode(), digest_size=8).digest()
                heap = self._sample_heaps.setdefault(labels[row].tobytes() if self._by_class else b"", [])
                _keep(heap, (int.from_bytes(digest, "big"), index, ids), max_size=self._sample_size)

    def results(self) -> Results:
        """Return labels, predictions, references, queries and generated answers as one object for scoring."""
        labels, predicted = np.concatenate(self.labels), np.concatenate(self.predicted)
        return Results(labels, predicted, self.references, self.queries, self.generated)

    def sample(self) -> list[tuple[int, int, list[int]]]:
        """Return (hash, row, input ids) of the sampled wrong rows, class by class."""
        return [row for _, heap in sorted(self._sample_heaps.items()) for row in sorted(heap)]


def _keep(heap: list[_Entry], entry: _Entry, *, max_size: int) -> None:
    """Add an entry to a heap that holds the `max_size` highest entries."""
    (heapq.heappush if len(heap) < max_size else heapq.heappushpop)(heap, entry)


def is_record(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return bool[batch]: true for records, false for the rows without labels that fill up the last batch."""
    mask: np.ndarray = (batch["labels"] != IGNORED_LABEL).any(axis=1)
    return mask


def logits_order(config: Config, target: Target, *, data: str) -> list[int]:
    """Return the index of the model's logit for each class of `target`; an empty list without classes.

    If model and dataset have the same class names, apart from case, the names decide. Otherwise class n is logit n. `data`
    names the dataset in errors. Raises UsageError if the model was trained for other targets.
    """
    learned, classes = config.objective.target, target.classes
    if HiddenTokensTarget() in (learned, target) and learned != target:
        has, not_ = ("has no", "fills masks") if learned == HiddenTokensTarget() else ("has", "does not fill masks")
        raise UsageError(
            f"{data} {has} hidden tokens as targets, but the model {not_}. Use a dataset that the model "
            "was trained for.",
            code="dataset.target-mismatch",
        )
    if classes and not learned.classes:
        raise UsageError(
            f"{data} has classes or numbers as targets, but the model generates text. Prepare the data "
            "with --target text.",
            code="dataset.target-mismatch",
        )
    if target.name != learned.name:
        raise UsageError(
            f"{data} has targets of the kind {target.name}, but the model predicts {learned.name}. "
            "Prepare the dataset that the model was trained for.",
            code="dataset.target-mismatch",
        )
    if len(classes) != len(learned.classes):
        raise UsageError(
            f"{data} has {len(classes)} classes ({', '.join(classes[:8])}), but the model has {len(learned.classes)} "
            f"({', '.join(learned.classes[:8])}). Prepare the dataset that the model was trained for.",
            code="dataset.class-mismatch",
        )
    order = class_order(learned.classes, classes)
    return list(range(len(classes))) if order is None else order


def _score(
    weights: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
    *,
    config: Config,
    dtype: tf.DType,
    order: Sequence[int],
    padding: Padding,
) -> dict[str, tf.Tensor]:
    """Return each row's `loss`, float32[rows], summed over its labels, and the likeliest `ids`, int32[rows, length].

    order: the logit of each class, from `logits_order`.
    """
    scores = forward(weights, config, with_mask(batch, padding), dtype=dtype)
    if order:
        scores = tf.gather(scores, order, axis=-1)
    losses, _, is_target = config.objective.losses(scores, batch["labels"])
    summed = tf.reduce_sum(tf.where(is_target, losses, 0.0), axis=1)
    return {"loss": summed, "ids": config.objective.likeliest(scores)}

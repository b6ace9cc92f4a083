"""Score every record of a split once: loss, token accuracy, and the metrics that the task names for its answers.

Where every target is one token (and EOS), one forward pass gives the answer: the argmax of the first position over the
whole vocabulary, taken on the device, as the Stack Overflow tutorial (pedro-r-marques/tutorial-t5-fine-tune) scores it.
Otherwise answers are generated. Only ids and one loss for each row leave the device.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t5prep.dataset import manifest
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.errors import UsageError
from t5prep.tokens import newlines
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.train import random_draws, run
from t5prep.train.class_names import ClassNames, logits_order
from t5prep.train.data import eval_batches, opening
from t5prep.train.data.read_errors import arrays
from t5prep.train.generating import answers_on_rows
from t5prep.train.loss import token_losses
from t5prep.train.metrics import of_tokens, table
from t5prep.train.metrics.classification import classification
from t5prep.train.metrics.rouge import rouge
from t5prep.train.model.architecture import Config
from t5prep.train.model.forward import forward
from t5prep.train.model.generation import Generation
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.token_mask import with_mask
from t5prep.train.padding import Padding
from t5prep.train.runtime.devices import open_layout
from t5prep.train.runtime.layout import Layout
from t5prep.train.runtime.rows import Rows, each, on_rows
from t5prep.train.runtime.state import put_weights
from t5prep.train.scored_rows import OneToken, ScoredRows, is_record
from t5prep.train.step_parts import dtype_of

MOST_CLASSES = 100  # with more different words than this, a confusion matrix is no help


@dataclasses.dataclass(frozen=True)
class Worst:
    """Describe a wrong answer with one of the highest losses of a split."""

    id: str
    input: str
    target: str
    prediction: str
    loss: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Hold an evaluation's numbers (for classes also `labels` and `confusion`), and each record's id and answer."""

    metrics: dict[str, Any]
    predictions: list[dict[str, Any]]
    worst: list[Worst]

    def numbers(self) -> dict[str, float]:
        """Return the metrics that can be drawn as curves."""
        return {name: float(value) for name, value in self.metrics.items() if isinstance(value, int | float)}


class Evaluator:
    """Score one split of one dataset with the current weights; compiled once, and can be called many times.

    `generating`: generate answers where targets are longer than one token, by the options `generation`, of whose
    `answers` the best is scored. `batch` is over all replicas.
    `limit`: score only that many records, the first ones; 0 is all. `place`: the folder of the compiled programs.
    Raises DatasetError where the split is missing, UsageError where the batch does not divide.
    """

    def __init__(
        self,
        config: Config,
        *,
        layout: Layout,
        data: str | opening.Opened,
        split: str,
        batch: int,
        tokenizer: Tokenizer,
        dtype: tf.DType,
        limit: int = 0,
        generating: bool = True,
        generation: Generation = Generation(),  # noqa: B008 - frozen
        bootstrap: bool = False,
        place: str = "",
    ) -> None:
        replicas = layout.replicas
        if batch % replicas:
            raise UsageError(
                f"An evaluation batch of {batch} rows cannot be dealt to {replicas} replicas: take a multiple of {replicas} "
                "(of a run: --set eval_batch=…; of eval: --batch)."
            )
        self._opened = opening.open_split(data, split=split, tokenizer=tokenizer.sha256)
        batch = min(batch, -(-sum(self._opened.counts) // replicas) * replicas)  # no more rows than the split has
        self._packed = self._opened.manifest.settings.layout == "packed"
        self._labels = self._opened.manifest.splits[split].labels
        self._tokenizer, self._bootstrap = tokenizer, bootstrap
        wanted = self._opened.manifest.task.metrics
        # Encoded and decoded by the tokenizer, so that they compare equal to decoded targets and answers.
        own_words = [tokenizer.decode(tokenizer.encode(word)) for word in self._opened.manifest.task.classes]
        self._names = self._opened.manifest.class_names  # of an encoder's targets, which are numbers
        self._classes = self._names or own_words
        self.wanted = [metric for metric in wanted if metric in table.METRICS] or list(table.DEFAULT_METRICS)
        # A task that names only loss and token accuracy (span corruption) has no answers to score.
        of_answers = not wanted or any(metric in table.METRICS for metric in wanted)
        self._generating = generating and of_answers and not self._packed
        # With targets of one token nothing is generated: one forward pass has the answers.
        single = self._opened.target_length <= 2 or (
            self._labels and all(len(tokenizer.encode(label)) == 1 for label in self._labels)
        )
        self._searching = self._generating and not single
        batches = functools.partial(eval_batches, self._opened, split=split, batch=batch, limit=limit, masks=False)
        padding = Padding.of_dataset(self._opened.manifest)
        self._batches: Callable[[], Iterator[Rows]] = lambda: arrays(batches(with_ids=True, with_references=True))
        order = logits_order(config, self._names, data=self._opened.data)
        score = functools.partial(_score, config=config, dtype=dtype, order=order, padding=padding)
        longest = generation.max_length or max(self._opened.target_length, generation.min_length)
        self._generation = dataclasses.replace(generation, max_length=longest)
        self._score = on_rows("score", score, shape=config, layout=layout, place=place)
        if isinstance(config, ModelConfig) and not config.classes:
            self._generate = answers_on_rows(
                config, self._generation, layout=layout, dtype=dtype, place=place, padding=padding
            )

    def __call__(self, weights: Mapping[str, Any], *, worst: int = 0) -> Evaluation:
        """Score every record with these weights on the devices. `worst`: how many of the wrong answers to keep."""
        rows, generated = ScoredRows(worst), []
        for batch, scored in each(self._score_and_search if self._searching else self._score, weights, self._batches()):
            rows.add(batch, scored)
            if self._searching:
                generated += list(scored["answers"][is_record(batch)])
        labels, ids = np.concatenate(rows.labels), np.concatenate(rows.predicted)
        values: dict[str, Any] = of_tokens.perplexity(rows.losses, (labels != IGNORED_LABEL).sum(axis=1))
        values |= of_tokens.token_accuracy(labels, ids) | {"records": len(labels)}
        one_token = bool(((labels != IGNORED_LABEL).sum(axis=1) <= 2).all()) and not self._packed
        if not one_token and not self._generating:
            return Evaluation(values, [], [])
        if one_token:
            speller = ClassNames(self._names) if self._names else OneToken(self._tokenizer, labels)
            answers = [speller.text(token) for token in ids[:, 0]]
            right = [speller.text(token) for token in labels[:, 0]]
            if len(set(right)) <= MOST_CLASSES:
                values |= classification(right, answers, classes=self._classes)
            else:  # short answers, but no classes
                values |= self._of_texts([[text] for text in right], answers)
            references: list[list[str]] = [[text] for text in right]
        elif not self._searching:  # a label's text is one token, and a record has it in several
            self._searching = True
            return self(weights, worst=worst)
        else:
            answers = [self._decode(row) for row in generated]
            references = [own or [self._decode(row)] for own, row in zip(rows.references, labels, strict=True)]
            values |= self._of_texts(references, answers)
            if self._labels and all(len(own) == 1 for own in references):  # classes whose names are several tokens
                values |= classification([own[0] for own in references], answers, classes=self._classes)
        predictions = [
            {"id": id, "prediction": answer, "references": own}
            for id, answer, own in zip(rows.ids, answers, references, strict=True)
        ]
        wrong = [
            Worst(rows.ids[at], self._text(inputs), references[at][0], answers[at], loss)
            for loss, at, inputs in sorted(rows.highest, reverse=True)
            if answers[at] not in references[at]
        ]
        return Evaluation(values, predictions, wrong)

    def _score_and_search(self, weights: Mapping[str, Any], batch: Rows) -> dict[str, Any]:
        """Return the scores of a batch, and the ids of its generated `answers`, from one transfer of its rows."""
        questions = {"input_ids": batch["input_ids"]}
        if self._generation.sample:
            questions["uniform"] = random_draws.uniform(
                questions["input_ids"], self._generation, pad_id=self._tokenizer.pad_id
            )
        return {**self._score(weights, batch), "answers": self._generate(weights, questions)["ids"][:, 0]}

    def _decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of a target, without its EOS and padding."""
        eos, pad = self._tokenizer.eos_id, self._tokenizer.pad_id
        return self._text([int(token) for token in ids if token not in (eos, pad, IGNORED_LABEL)])

    def _text(self, ids: Sequence[int]) -> str:
        return newlines.decode(
            ids, tokenizer=self._tokenizer, keep_newlines=self._opened.manifest.settings.keep_newlines
        )

    def _of_texts(self, references: list[list[str]], answers: list[str]) -> dict[str, Any]:
        values = table.compute(self.wanted, references=references, predictions=answers, classes=self._classes)
        if self._bootstrap:
            values |= rouge(references, answers, normalize="normalized_rouge" in self.wanted, bootstrap=True)
        return values


def _score(
    weights: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
    *,
    config: Config,
    dtype: tf.DType,
    order: Sequence[int],
    padding: Padding,
) -> dict[str, tf.Tensor]:
    """Return each row's `loss`, float32[rows], summed over targets, and the likeliest `ids`, int32[rows, length].

    order: see `class_names.logits_order`.
    """
    scores = forward(weights, config, with_mask(batch, padding), dtype=dtype)
    if order:
        scores = tf.gather(scores, order, axis=-1)
    losses, _ = token_losses(scores, batch["labels"])
    summed = tf.reduce_sum(tf.where(batch["labels"] >= 0, losses, 0.0), axis=1)
    return {"loss": summed, "ids": tf.argmax(scores, axis=-1, output_type=tf.int32)}


class Loaded(NamedTuple):
    """Hold a model that is opened once for several evaluations: what it is, the devices, and its weights on them."""

    opened: run.Model
    layout: Layout
    weights: dict[str, Any]


def load(model: str, *, which: str = "best", tpu: str | None = None, gpus: bool = False) -> Loaded:
    """Open a run's checkpoint, a Hugging Face directory or a Hub model, and put it on the devices. Raises T5prepError."""
    opened = run.open_model(model, which=which)
    layout = open_layout(tpu=tpu, gpus=gpus, shard=None, weight_bytes=run.weight_bytes(opened))
    return Loaded(opened, layout, put_weights(opened.weights, opened.config, layout))


def evaluate(
    loaded: Loaded,
    *,
    data: str = "",
    split: str = "validation",
    batch: int = 32,
    limit: int = 0,
    tokenizer: str = "",
    bootstrap: bool = False,
    worst: int = 0,
    dtype: str = "auto",
    generation: Generation = Generation(),  # noqa: B008 - frozen
) -> Evaluation:
    """Score a loaded model on one split, or on its first `limit` records.

    Each prediction has its own `scores` too, where the task's metrics are means over records.
    `data` may be left out for a run: its first training dataset is then used. Raises T5prepError.
    """
    opened = loaded.opened
    if not data and not opened.state:
        raise UsageError(f"{opened.name} is not a run of t5prep, so its data is not known: --data DIR")
    data = data or str(opened.state.data[0]["uri"] if opened.state else "")
    words = opened.tokenizer or run.open_tokenizer(manifest.load(data), name=tokenizer)
    evaluator = Evaluator(
        opened.config,
        layout=loaded.layout,
        data=data,
        split=split,
        batch=batch,
        tokenizer=words,
        dtype=dtype_of(dtype, platform=loaded.layout.platform),
        limit=limit,
        generation=generation,
        bootstrap=bootstrap,
    )
    result = evaluator(loaded.weights, worst=worst)
    of_each = table.of_each(
        evaluator.wanted,
        references=[one["references"] for one in result.predictions],
        predictions=[one["prediction"] for one in result.predictions],
    )
    scored = [
        one | ({"scores": scores} if scores else {}) for one, scores in zip(result.predictions, of_each, strict=True)
    ]
    return dataclasses.replace(result, predictions=scored)

"""Answer rows in order: tokenize and cut them like the run's data, and batch rows of similar length."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from t5prep.dataset import conversion
from t5prep.dataset.manifest import Manifest
from t5prep.errors import Reject, UsageError
from t5prep.options.models import PredictOptions
from t5prep.reading.rows import Record
from t5prep.tasks.example import Example
from t5prep.tokens import loading, newlines
from t5prep.tokens.featurizer import OneInput
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.model.architecture import EncoderConfig
from t5prep.training.objectives import HeadObjective
from t5prep.training.predict import long_texts
from t5prep.training.predict.device import Device, check_generates
from t5prep.training.predict.long_texts import Parts
from t5prep.training.predict.prediction_inputs import Question, QuestionBuilder
from t5prep.training.run import run

# Batches in a window. The rows of a window are sorted by length, and its answers are written together. A killed run resumes at
# the beginning of a window.
WINDOW = 16
# Inputs are padded to one of these lengths (16, 24, 32, 48, …). Thus few programs are compiled, and padding is at most a third.
BUCKETS = tuple(size for power in range(4, 20) for size in (1 << power, 3 << (power - 1)))
_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True)
class Answer:
    """The model's answer to one row: `prediction`, or None and the `reason`.

    `alternatives`: further answers with their scores, best first. `tokens`: the input's tokens before it was cut.
    `tokens_lost`: the tokens that were cut off. `parts`: the number of parts that the input was split into. `unfinished`: an
    answer reached the maximum length without EOS. `row`: the columns of the input.
    """

    id: str
    input: str
    prediction: str | None
    reason: str = ""
    score: float = 0.0
    alternatives: tuple[tuple[str, float], ...] = ()
    tokens: int = 0
    tokens_lost: int = 0
    parts: int = 1
    unfinished: bool = False
    row: Record = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Request:
    """A tokenized question: the ids of each of its parts, or the reason why there are none."""

    question: Question
    ids: tuple[np.ndarray, ...] = ()
    words: np.ndarray | None = None  # for tags: the word that begins at each token (`OneInput.words`)
    parts: Parts | None = None
    tokens: int = 0
    tokens_lost: int = 0
    reason: str = ""


class Predictor:
    """Answer questions with one opened model. Raises UsageError, OutputError or TokenizerError.

    `writes_texts`: whether answers are texts, which can be joined after `--long split`. `limit`: the maximum tokens of an input.
    """

    def __init__(
        self,
        opened: run.Model,
        options: PredictOptions = PredictOptions(),  # noqa: B008 - frozen
        *,
        question_builder: QuestionBuilder,
        manifest: Manifest | None = None,
    ) -> None:
        if isinstance(opened.config, EncoderConfig) and opened.config.masked:
            raise UsageError(
                f"{opened.name} predicts masked tokens and cannot answer. Train it on classes (--model "
                f"{opened.name}), or write its vectors with t5prep embed.",
                code="answer.pretrained-encoder",
            )
        generation, tokenizer = options.generation, options.model.tokenizer
        check_generates(opened, generation)
        self.tokenizer = (
            opened.tokenizer if opened.tokenizer and not tokenizer else loading.load(tokenizer or opened.name)
        )
        chosen = manifest.settings if manifest else run.settings_without_data(opened.config)
        self._objective = opened.config.objective
        self._keep_newlines = chosen.keep_newlines
        self.limit = chosen.input_length
        self._featurize = conversion.featurizer_of(chosen, self.tokenizer, classes=opened.config.classes)
        length = generation.max_length or answer_length(chosen.target_length)
        self.generation = dataclasses.replace(generation, max_length=length)
        self.long = options.long or ("split" if question_builder.requires_uncut else "cut")
        self.writes_texts = not (question_builder.classes or opened.config.classes)
        if self.long == "split" and not self.writes_texts:
            name = question_builder.name or "this model"
            raise UsageError(
                f"--long split joins texts, but {name} predicts classes or numbers. Use --long cut or --long refuse.",
                code="option.inapplicable",
            )
        if self.long == "split" and generation.answers > 1:
            raise UsageError(
                "--long split supports only one answer for each part. Remove --answers, or use --long cut.",
                code="option.conflict",
            )
        # A part of a split text is at most this long. If answers may be half as long as inputs or longer (restored or translated
        # texts), parts are shorter, so that an answer may have a third more tokens than its part.
        self._room = min(self.limit, length * 3 // 4) if 2 * length >= self.limit else self.limit
        self.rows = options.batch
        self._device = Device(
            opened, generation=self.generation, rows=self.rows, tokenizer=self.tokenizer, options=options.model
        )

    def stream(self, questions: Iterable[Question]) -> Iterator[list[Answer]]:
        """Yield the answers to one window of questions after the other, in order; memory holds one window."""
        for window in _batched(questions, WINDOW * self.rows):
            yield self.answer(window)

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return an answer to each question, in order."""
        requests = self._ask(questions)
        ids = [part for request in requests for part in request.ids]
        of = [request for request in requests for _ in request.ids]
        generated_parts: list[_Generated] = [_Generated((), (), False)] * len(ids)
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]), reverse=True)
        for batch in _batched(order, self._device.rows):
            length = bucket(len(ids[batch[0]]), limit=self.limit)
            tokens, scores = self._device([ids[index] for index in batch], length)
            for index, answer_ids, score in zip(batch, tokens, scores, strict=True):
                generated_parts[index] = self._read(answer_ids, score, of[index])
        answers = iter(generated_parts)
        return [self._answered(request, list(itertools.islice(answers, len(request.ids)))) for request in requests]

    def _ask(self, questions: Sequence[Question]) -> list[_Request]:
        """Return the tokenized questions; too long ones are cut, split or refused according to `long`."""
        encoded = iter(self._featurize.inputs_of([question.example for question in questions if question.example]))
        return [
            self._fitted(question, question.example, next(encoded))
            if question.example
            else _Request(question, reason=question.reason)
            for question in questions
        ]

    def _fitted(self, question: Question, example: Example, features: OneInput | Reject) -> _Request:
        if isinstance(features, Reject):
            return _Request(question, reason=str(features))
        ids = features.ids
        too_long = features.tokens > self.limit
        if self.long == "refuse" and too_long:
            return _Request(question, reason=f"too long: {features.tokens} tokens, the limit is {self.limit}")
        if self.long == "split" and features.tokens > self._room:
            return self._split(question, example, features.tokens)
        # A marker stands for the cut text, and is not a token of the input. No text contains one.
        markers = int((ids == self.tokenizer.sentinel(1)).sum())
        tokens_lost = features.tokens - len(ids) + markers if too_long else 0
        return _Request(question, (ids,), features.words, tokens=features.tokens, tokens_lost=tokens_lost)

    def _split(self, question: Question, example: Example, tokens: int) -> _Request:
        try:
            parts = long_texts.split(example, tokenizer=self.tokenizer, room=self._room, limit=self.limit)
        except Reject as reject:
            return _Request(question, tokens=tokens, reason=str(reject))
        features = self._featurize.inputs_of(parts.examples)
        for part_features in features:
            if isinstance(part_features, Reject) or part_features.tokens > self.limit:
                return _Request(question, tokens=tokens, reason=f"too long to split: {tokens} tokens")
        ids = tuple(part_features.ids for part_features in features if isinstance(part_features, OneInput))
        return _Request(question, ids, parts=parts, tokens=tokens)

    def _read(self, ids: np.ndarray, scores: np.ndarray, request: _Request) -> "_Generated":
        """Return the texts of one part's answers. ids: int32[answers, length]; scores: float32[answers]."""
        if isinstance(self._objective, HeadObjective):
            count = len(request.question.text.split(" "))
            return _Generated(*self._objective.read(ids, scores, words=request.words, count=count), False)
        unfinished = self.generation.max_length > 1 and bool((ids[0] != self.tokenizer.eos_id).all())
        texts = tuple(answer(answer_ids, self.tokenizer, keep_newlines=self._keep_newlines) for answer_ids in ids)
        return _Generated(texts, tuple(map(float, scores)), unfinished and bool(ids[0].any()))

    def _answered(self, request: _Request, answers: "list[_Generated]") -> Answer:
        question = request.question
        if request.reason:
            return Answer(question.id, question.text, None, request.reason, tokens=request.tokens, row=question.row)
        texts = [part_answer.texts[0] for part_answer in answers]
        return Answer(
            question.id,
            question.text,
            request.parts.join(texts) if request.parts else texts[0],
            score=sum(part_answer.scores[0] for part_answer in answers),
            alternatives=tuple(zip(answers[0].texts[1:], answers[0].scores[1:], strict=True)),
            tokens=request.tokens,
            tokens_lost=request.tokens_lost,
            parts=len(answers),
            unfinished=any(part_answer.unfinished for part_answer in answers),
            row=question.row,
        )


@dataclasses.dataclass(frozen=True)
class _Generated:
    """The answers to one part, best first, and whether the best one is unfinished."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    unfinished: bool


def _batched(items: Iterable[_Item], count: int) -> Iterator[tuple[_Item, ...]]:
    """Yield tuples of `count` items, and at last a shorter tuple of the remaining items."""
    iterator = iter(items)
    while batch := tuple(itertools.islice(iterator, count)):
        yield batch


def bucket(length: int, *, limit: int) -> int:
    """Return the length to which inputs of at most `length` tokens are padded: the next of BUCKETS, but at most `limit`.

    >>> bucket(17, limit=512), bucket(400, limit=500)
    (24, 500)
    """
    return min(limit, next(size for size in BUCKETS if size >= length))


def answer_length(target_length: int) -> int:
    """Return the number of tokens to generate. For targets of one token and EOS only the first is needed, as in evaluation."""
    return 1 if target_length == 2 else target_length


def answer(ids: Sequence[int] | np.ndarray, words: Tokenizer, *, keep_newlines: bool = False) -> str:
    """Return the text of generated `ids` without EOS and padding, decoded by the tokenizer `words`.

    With `keep_newlines`, the data's tokens for newlines become newlines again.
    """
    plain = [int(token) for token in ids if token not in (words.eos_id, words.pad_id)]
    return newlines.decode(plain, tokenizer=words, keep_newlines=keep_newlines)

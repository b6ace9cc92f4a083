"""Describe a task: the columns that it reads, how the rows of one corpus become text-to-text examples, and its options."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from t5prep.errors import Reject, TaskError, did_you_mean
from t5prep.options import fields as task_options
from t5prep.reading import rows
from t5prep.reading.rows import Column, Record
from t5prep.tasks import labels
from t5prep.tasks.example import EOS, Example, Part, Protected, _Eos

OF_TOKENS = ("loss", "perplexity", "token_accuracy")
# What a task may name as its metrics: what `training/evaluate/metrics.py` computes of answers, and of their tokens.
METRICS = (
    *(
        "bleu",
        "bleu_intl",
        "bleu_zh",
        "bleu_ja_mecab",
        "bleu_ko_mecab",
        "bleu_char",
        "bleu_flores101",
        "bleu_flores200",
    ),
    *("classification", "diacritics", "normalized_rouge", "normalized_rouge_ascii", "rouge", "rouge_ascii"),
    *("squad", *OF_TOKENS),
)


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of inputs, those that only targets need, and the one with a unique id ("" for none)."""

    inputs: Sequence[Column]
    targets: Sequence[Column] = ()
    id: Column = ""

    def __post_init__(self) -> None:
        """Raise TypeError for one name where a list of them belongs, and for what is no name."""
        for name in ("inputs", "targets"):
            if isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} of Columns is a list of names: write {name}=[{value!r}]")
            if not isinstance(value, Sequence):
                raise TypeError(f"{name} of Columns is a {type(value).__name__}, and not a list of names")
        for column in self.all:
            if not (_is_texts(rows.alternatives(column)) and column):
                raise TypeError(f"a column is {column!r}, and not a name")

    @property
    def all(self) -> tuple[Column, ...]:
        """Return every column, the id's first."""
        return (*((self.id,) if self.id else ()), *self.inputs, *self.targets)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names that the columns may have."""
        return rows.names_of(self.all)

    def found_in(self, column_names: Sequence[str]) -> dict[str, str] | None:
        """Return the first name of each column with the name that is there; None if a column has none there.

        >>> Columns([("sentence", "text")], ["label"]).found_in(["label", "text"])
        {'sentence': 'text', 'label': 'label'}
        """
        actual_names = {}
        for alternatives in map(rows.alternatives, self.all):
            name = next((name for name in alternatives if name in column_names), None)
            if name is None:
                return None
            actual_names[alternatives[0]] = name
        return actual_names

    @property
    def id_name(self) -> str:
        """Return the first name of the id's column, "" if there is none."""
        return next(iter(rows.names_of([self.id])), "")


def _is_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(text, str) for text in value)


# Describe a task by its columns, so that thousands of rows become examples at once (example_table.py).


@dataclasses.dataclass(frozen=True)
class ColumnText:
    """Name a column whose text is used, as it is or after a `change`.

    `others` are its names in other editions of a corpus, and "" at the end where a row may lack it: JSON lines leave out what
    others write as null.
    """

    name: str
    others: tuple[str, ...] = ()
    change: Callable[[str], str] | None = None


# Texts and columns, to be joined without a space.
Words = tuple[str | ColumnText, ...]


@dataclasses.dataclass(frozen=True)
class TemplatePart:
    """One part of an input, as Example has it: the text of some words, which may be protected from cutting."""

    words: Words
    protected: bool = False


@dataclasses.dataclass(frozen=True)
class Template:
    """Describe examples by columns: the parts of an input, EOS among them, a `target` (documents have none), an id.

    Where there are `labels`, the target stands for one of them (labels.find), and their values are the targets' texts.
    `example_table.fill` makes the examples of thousands of rows: of those whose columns are texts, with a visible character
    in at least one column of `inputs`; whose id, where there is an `id` column, is not empty; and whose target has a visible
    character or a label. Other rows go to the task's `to_example`, which is `example_of` here if the task is `of_template`.
    """

    inputs: tuple[TemplatePart | _Eos, ...]
    target: Words = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    id: str = ""
    empty: str = "empty input"  # the reason for rejecting a row without a text
    # Values of the target that are no labels → the reasons for rejecting them; and what to do about an unknown value, {}.
    hidden: Mapping[str, str] = dataclasses.field(default_factory=dict)
    advice: str = ""

    @functools.cached_property
    def input_columns(self) -> list[ColumnText]:
        """Return the columns of the input."""
        return [
            word
            for part in self.inputs
            if isinstance(part, TemplatePart)
            for word in part.words
            if isinstance(word, ColumnText)
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the name of every column once."""
        targets = [word.name for word in self.target if isinstance(word, ColumnText)]
        inputs = [column.name for column in self.input_columns]
        return tuple(dict.fromkeys([*inputs, *targets, *([self.id] if self.id else [])]))

    def input_of(self, record: Record) -> Example:
        """Return the example of a row without its target. Raises Reject for a row without a text."""
        if not any(rows.text(record, column.name, *column.others).strip() for column in self.input_columns):
            raise Reject(self.empty)
        parts: list[Part] = []
        for part in self.inputs:
            if isinstance(part, TemplatePart):
                text = filled(part.words, record)
                parts.append(Protected(text) if part.protected else text)
            else:
                parts.append(EOS)
        id = rows.text(record, self.id, "") if self.id else ""
        only = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else ""
        return Example(id or None, only or tuple(parts), targets="")

    def example_of(self, record: Record) -> Example:
        """Return the example of a row. Raises Reject for one without a text, a known label or an id."""
        example, target = self.input_of(record), filled(self.target, record)
        if self.labels:
            if target.strip() in self.hidden:
                raise Reject(self.hidden[target.strip()])
            if (label := labels.find(target, self.labels)) is None:
                value = next(record[word.name] for word in self.target if isinstance(word, ColumnText))
                advice = self.advice.format(target)
                raise Reject(f"unknown label: {value!r} is not one of {', '.join(self.labels)}{advice}")
            target = label
        if self.id and not example.id:
            rows.text(record, self.id)  # raises KeyError for a missing column
            raise Reject("empty id")
        return Example(example.id, example.inputs, target)


def filled(words: Words, record: Record) -> str:
    """Return the text of some words and columns in a row. Raises Reject for what is no text, KeyError for a missing column."""
    texts = []
    for word in words:
        text = word if isinstance(word, str) else rows.text(record, word.name, *word.others)
        texts.append(word.change(text) if isinstance(word, ColumnText) and word.change else text)
    return "".join(texts)


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The options of a task that has none of its own."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Describe the source of a corpus, which of its files are read, and its licence and citation.

    `source` is read where --source is not given. `files` are patterns of the files that are read; `{name}` in one is
    replaced by an option's value. `pairs` are endings of files that belong together line by line (columns source and
    target) and may be a function of the options, and `format` is the format of files whose names do not tell it.
    """

    source: str = ""
    files: tuple[str, ...] = ()
    pairs: Sequence[tuple[str, str]] | Callable[[Any], Sequence[tuple[str, str]]] = ()
    format: str = ""
    licence: str = ""
    citation: str = ""


class Spans(NamedTuple):
    """The share of tokens that is hidden, and the mean number of tokens in a hidden span."""

    density: float
    mean_span: float


class Denoiser(NamedTuple):
    """One of several ways to hide spans, and the words before an input that name it.

    `mean_span` 0: one span, the end of the text, and no sentinels.
    """

    mode: str
    density: float
    mean_span: float


class Mixture(NamedTuple):
    """Ways to hide spans, of which each row gets one, all equally likely."""

    denoisers: tuple[Denoiser, ...]


class Masks(NamedTuple):
    """The share of tokens that is hidden, each by itself, for an encoder."""

    rate: float


@dataclasses.dataclass(frozen=True)
class Task:
    """Describe how one corpus is prepared; only the first two fields are required.

    `to_example(record, options)` returns an example or raises Reject, and `columns` names the columns that it reads.
    Fields marked with (options) may be functions of the options instead of values.
    """

    to_example: Callable[[Record, Any], Example]
    columns: Columns | Callable[[Any], Columns]  # (options)
    # The same as to_example for most rows, as columns, which is much faster; None if no template can describe it.
    template: Callable[[Any], Template | None] | None = None
    # The same example without its target, for a row to predict; None: such a row needs a target too.
    to_inputs: Callable[[Record, Any], Example] | None = None
    options: type = NoOptions  # a frozen dataclass whose fields (`option`) are command line options
    corpus: Corpus = Corpus()
    input_length: int = 512
    target_length: int = 128
    metrics: tuple[str, ...] = ()
    classes: Sequence[str] | Callable[[Any], Sequence[str]] = ()  # (options): a classification's words, in their order
    # (options): what the texts of targets are, where --target does not say it. "tags": the names of tags with a space between
    # them, one for each word of the input, which have a space between them too; "labels": some names with commas; "number".
    target: str | Callable[[Any], str] = ""
    # For examples that are plain texts: they are concatenated and cut into rows, with spans hidden as given here.
    spans: Callable[[Any], Spans | Mixture | Masks] | None = None
    # Rows with one id are correct answers to one input: one training example each, and one evaluation example with all
    # of them as references.
    several_answers: bool = False
    # The target follows the input word by word, so an example that does not fit whole is split (--long): a cut would make
    # its two sides differ.
    never_cut: bool = False

    @classmethod
    def of_template(
        cls, template: Callable[[Any], Template], columns: Columns | Callable[[Any], Columns], **fields: Any
    ) -> "Task":
        """Return a task whose template makes the examples of all rows; `fields` are its other ones."""
        make = functools.cache(template)
        return cls(
            lambda record, options: make(options).example_of(record),
            columns,
            template=make,
            to_inputs=lambda record, options: make(options).input_of(record),
            **fields,
        )

    def __post_init__(self) -> None:
        """Raise TypeError for a field that is something else than it should be: the file of a task is anyone's own."""
        for name, (is_right, advice) in _FIELDS.items():
            if not is_right(value := getattr(self, name)):
                raise TypeError(f"{name} is a {type(value).__name__}: {advice}")
        for metric in self.metrics:
            if metric not in METRICS:
                raise TypeError(
                    f'there is no metric "{metric}".{did_you_mean(metric, METRICS)} All: {", ".join(METRICS)}'
                )


def _is_function(value: object) -> bool:
    return value is None or callable(value)


def _is_length(value: object) -> bool:
    return type(value) is int and value > 0


# Field of a Task → whether a value is one of its kind, and what to write.
_FIELDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "to_example": (callable, "name a function of a record and options"),
    "columns": (lambda value: isinstance(value, Columns) or callable(value), "write columns=Columns(inputs=[...])"),
    "template": (_is_function, "name a function of options"),
    "to_inputs": (_is_function, "name a function of a record and options"),
    "options": (lambda value: isinstance(value, type) and dataclasses.is_dataclass(value), "name a frozen dataclass"),
    "corpus": (lambda value: isinstance(value, Corpus), "write corpus=Corpus(...)"),
    "input_length": (_is_length, "write a whole number from 1 on"),
    "target_length": (_is_length, "write a whole number from 1 on"),
    "metrics": (_is_texts, 'write a list of names: metrics=["rouge"]'),
    "classes": (
        lambda value: _is_texts(value) or callable(value),
        "write a list of words, or name a function of options",
    ),
    "spans": (_is_function, "name a function of options"),
}


@dataclasses.dataclass(frozen=True)
class ChosenTask:
    """A task, the name it is known by, and its options."""

    name: str
    task: Task
    options: Any

    def to_example(self, record: Record) -> Example:
        """Return the example of a row. Raises Reject."""
        return self.task.to_example(record, self.options)

    @functools.cached_property
    def columns(self) -> Columns:
        """Return the columns that are read. Raises UsageError for options that name none, TaskError for something else."""
        columns = self.task.columns
        chosen = columns if isinstance(columns, Columns) else columns(self.options)
        if not isinstance(chosen, Columns):
            raise TaskError(
                f"the task {self.name} fails: its columns are a {type(chosen).__name__}, and not Columns(inputs=[...])."
            )
        return chosen

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the endings of files that belong together line by line. Raises UsageError for options that are not endings."""
        pairs = self.task.corpus.pairs
        return tuple(pairs(self.options) if callable(pairs) else pairs)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the words of a classification, in the order of a confusion matrix."""
        classes = self.task.classes
        return tuple(classes(self.options) if callable(classes) else classes)

    @property
    def target(self) -> str:
        """Return what the texts of targets are; "" for one text, or one of the classes."""
        target = self.task.target
        return target(self.options) if callable(target) else target

    @property
    def spans(self) -> Spans | Mixture | Masks | None:
        """Return how spans of texts are hidden; None for a task with targets of its own."""
        return self.task.spans(self.options) if self.task.spans else None

    @property
    def template(self) -> Template | None:
        """Return how columns make most examples; None if there is no template."""
        return self.task.template(self.options) if self.task.template else None

    @property
    def files(self) -> tuple[str, ...]:
        """Return the patterns of the files that are read."""
        values = dataclasses.asdict(self.options)
        return tuple(pattern.format(**values) for pattern in self.task.corpus.files)

    @property
    def without_markup(self) -> str:
        """Return the option that removes HTML tags from the texts, as the user types it; "" if there is none."""
        for field in dataclasses.fields(self.options):
            if value := field.metadata["removes_markup"]:
                return task_options.as_cli_option(field.name, value)
        return ""


def choose(name: str, task: Task, options: Mapping[str, object]) -> ChosenTask:
    """Return a task with the given options; those not given have their defaults. Raises UsageError."""
    return ChosenTask(name, task, task_options.build(task.options, options))

"""Define a task: the columns that it reads, how rows of a corpus become text-to-text examples, and the task's options."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from t5prep.errors import Reject, TaskError, did_you_mean
from t5prep.options import fields
from t5prep.reading import rows
from t5prep.reading.rows import Column, Record
from t5prep.tasks import labels
from t5prep.tasks.example import EOS, Example, Part, Protected, _Eos

TOKEN_METRICS = ("loss", "perplexity", "token_accuracy")
# The metrics that a task may name: those of `training/evaluate/metrics.py`, and the numbers of tokens. They are listed here
# because preparing never imports training.
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
    *("squad", *TOKEN_METRICS),
)


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of inputs, those that only targets need, and the column with a unique id ("" for none)."""

    inputs: Sequence[Column]
    targets: Sequence[Column] = ()
    id: Column = ""

    def __post_init__(self) -> None:
        """Raise TypeError if `inputs` or `targets` is no list of names."""
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
        """Return all columns; the id's comes first."""
        return (*((self.id,) if self.id else ()), *self.inputs, *self.targets)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names of the columns, including alternative names."""
        return rows.names_of(self.all)

    def found_in(self, column_names: Sequence[str]) -> dict[str, str] | None:
        """Return the first name of each column → its name among `column_names`; None if a column is missing.

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
        """Return the first name of the id's column; "" if there is none."""
        return next(iter(rows.names_of([self.id])), "")


def _is_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(text, str) for text in value)


# The following classes describe a task by columns, so that thousands of rows become examples at once (example_table.py).


@dataclasses.dataclass(frozen=True)
class ColumnText:
    """A column whose text is used unchanged, or after the function `change`.

    `alternative_names` holds its names in other editions of a corpus. A last "" means that a row may lack the column: JSON lines
    often leave out a field instead of writing null.
    """

    name: str
    alternative_names: tuple[str, ...] = ()
    change: Callable[[str], str] | None = None


# Texts and columns, which are joined without a space.
Words = tuple[str | ColumnText, ...]


@dataclasses.dataclass(frozen=True)
class TemplatePart:
    """One part of an input (`Example.inputs`): the text of `words`, perhaps protected from truncation."""

    words: Words
    protected: bool = False


@dataclasses.dataclass(frozen=True)
class Template:
    """A description of examples by columns: the parts of an input, a `target` (documents have none), and an `id`.

    `labels` maps a label (`labels.find`) to the text of the target. `empty` is the reason for a row without a text, `hidden` maps
    a value of the target that is no label to a reason, and `advice` is added to the reason for an unknown value, which replaces {}.

    `example_table.fill` makes the examples of thousands of rows at once. It skips rows with columns that are no text, without a
    visible character in the input, with an empty id, or without a target or known label. These rows go to the task's
    `to_example`, which is `example_of` if the task was made by `Task.of_template`.
    """

    inputs: tuple[TemplatePart | _Eos, ...]
    target: Words = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    id: str = ""
    empty: str = "empty input"
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
        """Return the names of all columns, each once."""
        targets = [word.name for word in self.target if isinstance(word, ColumnText)]
        inputs = [column.name for column in self.input_columns]
        return tuple(dict.fromkeys([*inputs, *targets, *([self.id] if self.id else [])]))

    def input_of(self, record: Record) -> Example:
        """Return the example of a row without its target. Raises Reject if the row has no text."""
        if not any(rows.text(record, column.name, *column.alternative_names).strip() for column in self.input_columns):
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
        """Return the example of a row. Raises Reject if the row has no text, no known label or no id."""
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
    """Return the text of `words` for a row. Raises Reject if a column holds no text, and KeyError if it is missing."""
    texts = []
    for word in words:
        text = word if isinstance(word, str) else rows.text(record, word.name, *word.alternative_names)
        texts.append(word.change(text) if isinstance(word, ColumnText) and word.change else text)
    return "".join(texts)


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The options of a task without options."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The source of a corpus, the files that are read from it, and its licence and citation.

    `source`: the default of --source. `files`: patterns of the files that are read, in which `{name}` stands for the value of an
    option. `pairs`: the endings of two files that belong together line by line, as columns `source` and `target`; perhaps a
    function of the options. `format`: the format of files whose names do not tell it.
    """

    source: str = ""
    files: tuple[str, ...] = ()
    pairs: Sequence[tuple[str, str]] | Callable[[Any], Sequence[tuple[str, str]]] = ()
    format: str = ""
    licence: str = ""
    citation: str = ""


class Spans(NamedTuple):
    """The share of tokens that are hidden, and the mean length of a hidden span in tokens."""

    density: float
    mean_span: float


class Denoiser(NamedTuple):
    """One of several ways to hide spans. `mode` is a text put before the input that names the way.

    A `mean_span` of 0 hides a single span, the end of the text, without sentinels.
    """

    mode: str
    density: float
    mean_span: float


class Mixture(NamedTuple):
    """Several ways to hide spans. Each row gets one of them at random, with equal probability."""

    denoisers: tuple[Denoiser, ...]


class Masks(NamedTuple):
    """The share of tokens that are hidden independently, for an encoder."""

    rate: float


@dataclasses.dataclass(frozen=True)
class Task:
    """The preparation of one corpus; only the first two fields are required.

    `to_example(record, options)` returns an example or raises Reject, and `columns` names the columns that it reads. Fields
    marked with (options) may be functions of the options instead of values.
    """

    to_example: Callable[[Record, Any], Example]
    columns: Columns | Callable[[Any], Columns]  # (options)
    # A description by columns of the same examples for most rows, which is much faster; None if no template can describe them.
    template: Callable[[Any], Template | None] | None = None
    # Returns the example without its target, for rows to predict; None: such rows need a target too.
    to_inputs: Callable[[Record, Any], Example] | None = None
    options: type = NoOptions  # a frozen dataclass whose fields (`option`) are command-line options
    corpus: Corpus = Corpus()
    input_length: int = 512
    target_length: int = 128
    metrics: tuple[str, ...] = ()
    classes: Sequence[str] | Callable[[Any], Sequence[str]] = ()  # (options): the words of a classification, in order
    # (options): the default of --target. "tags": target texts are tags separated by spaces, one for each word of the input;
    # words are separated by spaces too. "labels": names separated by commas. "number": a number.
    target: str | Callable[[Any], str] = ""
    # For examples that are plain texts. They are concatenated, cut into rows, and spans are hidden in this way.
    spans: Callable[[Any], Spans | Mixture | Masks] | None = None
    # Rows with the same id are correct answers to one input. In training each is an example; in evaluation they are one
    # example with several references.
    several_answers: bool = False
    # The target follows the input word by word. An example that is too long is split (--long), because a cut would make its
    # two sides differ.
    never_cut: bool = False

    @classmethod
    def of_template(
        cls, template: Callable[[Any], Template], columns: Columns | Callable[[Any], Columns], **further_fields: Any
    ) -> "Task":
        """Return a task whose template makes the examples of all rows. `further_fields` are other fields of the task."""
        make = functools.cache(template)
        return cls(
            lambda record, options: make(options).example_of(record),
            columns,
            template=make,
            to_inputs=lambda record, options: make(options).input_of(record),
            **further_fields,
        )

    def unused_settings(self) -> list[str]:
        """Return the fields of Settings that no dataset of this task depends on. `--help` leaves them out.

        Texts that are concatenated are never cut, their rows are full, and the hidden tokens are the targets.
        """
        unused = [] if self.classes or callable(self.target) else ["target"]
        if self.spans:
            unused += ["truncation", "long", "marker", "keep_newlines"]
            spans = self.spans(self.options())
            unused += [] if isinstance(spans, Mixture) else ["layout"]
            unused += ["target_length"] if isinstance(spans, Masks) else []
        return unused

    def __post_init__(self) -> None:
        """Raise TypeError if a field has a wrong type. A user wrote the file of a task, so every field is checked."""
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


# Field of a Task → a check of its value, and advice on what to write.
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
    """A task with its name and the chosen options."""

    name: str
    task: Task
    options: Any

    def to_example(self, record: Record) -> Example:
        """Return the example of a row. Raises Reject."""
        return self.task.to_example(record, self.options)

    @functools.cached_property
    def columns(self) -> Columns:
        """Return the task's columns. Raises UsageError if the options name none, and TaskError if they are no Columns."""
        columns = self.task.columns
        chosen = columns if isinstance(columns, Columns) else columns(self.options)
        if not isinstance(chosen, Columns):
            raise TaskError(
                f"The columns of the task {self.name} have the wrong type {type(chosen).__name__}. Return "
                "Columns(inputs=[...]) instead.",
                code="task.invalid-columns",
            )
        return chosen

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the endings of two files that belong together line by line. Raises UsageError if options hold no endings."""
        pairs = self.task.corpus.pairs
        return tuple(pairs(self.options) if callable(pairs) else pairs)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the words of a classification, in the order of a confusion matrix."""
        classes = self.task.classes
        return tuple(classes(self.options) if callable(classes) else classes)

    @property
    def target(self) -> str:
        """Return the kind of the targets' texts: "tags", "labels" or "number"; "" for plain texts and classes."""
        target = self.task.target
        return target(self.options) if callable(target) else target

    @property
    def spans(self) -> Spans | Mixture | Masks | None:
        """Return the way in which spans of texts are hidden; None for a task with targets."""
        return self.task.spans(self.options) if self.task.spans else None

    @property
    def template(self) -> Template | None:
        """Return the template of most examples; None if the task has none."""
        return self.task.template(self.options) if self.task.template else None

    @property
    def files(self) -> tuple[str, ...]:
        """Return the patterns of the files that are read, with the values of options filled in."""
        values = dataclasses.asdict(self.options)
        return tuple(pattern.format(**values) for pattern in self.task.corpus.files)

    @property
    def without_markup(self) -> str:
        """Return the command-line option of the task that removes HTML tags from texts; "" if there is none."""
        for field in dataclasses.fields(self.options):
            if value := field.metadata["removes_markup"]:
                return fields.as_cli_option(field.name, value)
        return ""


def choose(name: str, task: Task, options: Mapping[str, object]) -> ChosenTask:
    """Return `task` with `options`; missing ones have their defaults. Raises UsageError."""
    return ChosenTask(name, task, fields.build(task.options, options))

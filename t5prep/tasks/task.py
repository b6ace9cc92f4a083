"""Describe a task: how the rows of one corpus become text-to-text examples, and which options it has."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from t5prep.reading.rows import Record
from t5prep.tasks import options as task_options
from t5prep.tasks.columns import Columns
from t5prep.tasks.example import Example
from t5prep.tasks.template import Template


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


@dataclasses.dataclass(frozen=True)
class Task:
    """Describe how one corpus is prepared; only the first two fields are required.

    `to_example(record, options)` returns an example or raises Reject, and `columns` names the columns that it reads.
    Fields marked with (options) may be functions of the options instead of values.
    """

    to_example: Callable[[Record, Any], Example]
    columns: Columns | Callable[[Any], Columns]  # (options)
    # The same as to_example for most rows, as columns, which is much faster; None where no template can describe it.
    template: Callable[[Any], Template | None] | None = None
    # The same example without its target, for a row to predict; None: such a row needs a target too.
    to_inputs: Callable[[Record, Any], Example] | None = None
    options: type = NoOptions  # a frozen dataclass whose fields (`option`) are command line options
    corpus: Corpus = Corpus()
    input_length: int = 512
    target_length: int = 128
    metrics: tuple[str, ...] = ()
    classes: Sequence[str] | Callable[[Any], Sequence[str]] = ()  # (options): a classification's words, in their order
    # For examples that are plain texts: they are concatenated and cut into rows, with spans hidden as given here.
    spans: Callable[[Any], Spans] | None = None
    # Rows with one id are correct answers to one input: one training example each, and one evaluation example with all
    # of them as references.
    several_answers: bool = False
    # The target follows the input word by word, so an example that does not fit whole is rejected (--long): a cut would
    # make its two sides differ.
    never_cut: bool = False

    def __post_init__(self) -> None:
        """Raise TypeError for columns or a function that are something else."""
        if not isinstance(self.columns, Columns) and not callable(self.columns):
            raise TypeError(f"columns is a {type(self.columns).__name__}: write columns=Columns(inputs=[...])")
        if not callable(self.to_example):
            raise TypeError(
                f"to_example is a {type(self.to_example).__name__}: name a function of a record and options"
            )


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
        """Return the columns that are read. Raises UsageError for options that name none."""
        columns = self.task.columns
        return columns if isinstance(columns, Columns) else columns(self.options)

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
    def spans(self) -> Spans | None:
        """Return how spans of texts are hidden; None for a task with targets of its own."""
        return self.task.spans(self.options) if self.task.spans else None

    @property
    def template(self) -> Template | None:
        """Return how columns make most examples; None where there is no template."""
        return self.task.template(self.options) if self.task.template else None

    @property
    def files(self) -> tuple[str, ...]:
        """Return the patterns of the files that are read."""
        values = dataclasses.asdict(self.options)
        return tuple(pattern.format(**values) for pattern in self.task.corpus.files)

    @property
    def without_markup(self) -> str:
        """Return the option that removes HTML tags from the texts, as the user types it; "" where there is none."""
        for field in dataclasses.fields(self.options):
            if value := field.metadata["removes_markup"]:
                return task_options.spelled(field.name, value)
        return ""


def choose(name: str, task: Task, given: Mapping[str, Any]) -> ChosenTask:
    """Return a task with the given options; those not given have their defaults. Raises UsageError."""
    return ChosenTask(name, task, task_options.build(task.options, given))

"""A task: how the rows of one corpus become text-to-text examples, and which options it has."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5prep.errors import did_you_mean
from t5prep.reading.rows import Record
from t5prep.tasks import options as task_options
from t5prep.tasks.example import Example
from t5prep.tasks.template import Template

# A column that a task reads: its name, or the names it has in different editions of a corpus, the first of them that is
# there; "" at their end says that it may be missing.
Column = str | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """A task without options of its own."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What one corpus needs to be prepared.

    `to_example(record, options)` makes an example or raises Reject; `to_inputs(record, options)` makes the same example
    without its target, of a row that a trained model is asked about (None: such a row needs a target too). `options` is
    a frozen dataclass whose fields (`option`) become command line options; `columns(options)` are the columns it reads,
    `target_columns(options)` those of them that only targets need, `id_column(options)` the one with the id ("" where
    there is none). `template(options)` says as columns what `to_example` says of most rows, so that these are made much
    faster; None where it cannot be said. `source` is where the corpus lives, `files` which of its files are read.
    `classes(options)` are the words of a classification, in the order of a confusion matrix. `documents` says that its
    examples are plain texts, to be cut into rows with hidden spans (options `density` and `mean_span`). `several` says
    that rows with one id are no duplicates but right answers: as many examples to train, and to evaluate one with all
    of them as references. `pairs` are endings of files that belong together line by line (columns source and target).
    `whole` says that an example whose inputs or targets would be cut is rejected: its two sides must say the same.
    `format` is that of files whose names say none.
    """

    to_example: Callable[[Record, Any], Example]
    columns: Callable[[Any], Sequence[Column]]
    id_column: Callable[[Any], str] = lambda _: ""
    template: Callable[[Any], Template | None] = lambda _: None
    to_inputs: Callable[[Record, Any], Example] | None = None
    target_columns: Callable[[Any], Sequence[Column]] = lambda _: ()
    options: type = NoOptions
    source: str = ""
    files: tuple[str, ...] = ()
    licence: str = ""
    citation: str = ""
    input_length: int = 512
    target_length: int = 128
    classes: Callable[[Any], Sequence[str]] = lambda _: ()
    metrics: tuple[str, ...] = ()
    documents: bool = False
    several: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    whole: bool = False
    format: str = ""


def column_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """All names that columns may have.

    >>> column_names([("sentence", "text"), "label", ("idx", "")])
    ('sentence', 'text', 'label', 'idx')
    """
    return tuple(name for column in columns for name in ((column,) if isinstance(column, str) else column) if name)


def missing_column(columns: Sequence[Column], there: Sequence[str]) -> str:
    """The first column that is not there under any of its names, and what is there, as the end of an error's sentence.

    "" when none is missing.

    >>> missing_column([("sentence", "text"), "label", ("idx", "")], ["id", "label"])
    '"sentence" or "text"; it has id, label.'
    >>> missing_column(["catgory"], ["category", "text"])
    '"catgory"; it has category, text. Did you mean "category"?'
    """
    for column in columns:
        alternatives = (column,) if isinstance(column, str) else column
        if not any(name in ("", *there) for name in alternatives):
            names = " or ".join(f'"{name}"' for name in alternatives)
            return f"{names}; it has {', '.join(there)}.{did_you_mean(alternatives[0], there)}"
    return ""


def input_columns(task: Task, options: Any) -> tuple[Column, ...]:
    """Return the columns that a row must have to be asked about: all that the task reads but targets and the id."""
    targets, id = task.target_columns(options), task.id_column(options)
    return tuple(
        column
        for column in task.columns(options)
        if column not in targets and not (id and id in column_names([column]))
    )


def files(task: Task, chosen: Any) -> tuple[str, ...]:
    """Patterns of the files that a task reads with the chosen options: `{name}` in one stands for an option's value."""
    return tuple(pattern.format(**dataclasses.asdict(chosen)) for pattern in task.files)


def make_options(task: Task, given: Mapping[str, Any]) -> Any:
    """Return a task's options from plain values; those not given have their defaults. Raises UsageError."""
    return task_options.build(task.options, given)

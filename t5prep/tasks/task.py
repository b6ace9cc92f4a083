"""A task: how the rows of one corpus become text-to-text examples, and which options it has."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from t5prep.reading.rows import Record
from t5prep.tasks.columns import Columns
from t5prep.tasks.example import Example
from t5prep.tasks.template import Template


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """Hold the options of a task that has none of its own."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Say where a corpus lives, which of its files are read, and what one must know to use it.

    `source` is read where --source is not given. `files` are patterns of the files that are read; `{name}` in one stands for
    an option's value. `pairs` are endings of files that belong together line by line (columns source and target), and
    `format` is that of files whose names say none.
    """

    source: str = ""
    files: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    format: str = ""
    licence: str = ""
    citation: str = ""


class Spans(NamedTuple):
    """Say how much of a text is hidden: the share of its tokens, and how many tokens a hidden span has on average."""

    density: float
    mean_span: float


@dataclasses.dataclass(frozen=True)
class Task:
    """Say what one corpus needs to be prepared; only the first two fields are needed.

    `to_example(record, options)` returns an example or raises Reject, and `columns` names what it reads. Fields marked with
    (options) may be functions of the options instead of values.
    """

    to_example: Callable[[Record, Any], Example]
    columns: Columns | Callable[[Any], Columns]  # (options)
    # What to_example says of most rows, as columns, so that these are made much faster; None where it cannot be said.
    template: Callable[[Any], Template | None] | None = None
    # The same example without its target, of a row that a trained model is asked about; None: such a row needs a target too.
    to_inputs: Callable[[Record, Any], Example] | None = None
    options: type = NoOptions  # a frozen dataclass whose fields (`option`) are command line options
    corpus: Corpus = Corpus()
    input_length: int = 512
    target_length: int = 128
    metrics: tuple[str, ...] = ()
    classes: Sequence[str] | Callable[[Any], Sequence[str]] = ()  # (options): a classification's words, in their order
    # Its examples are plain texts, laid end to end and cut into rows with so much of them hidden.
    spans: Callable[[Any], Spans] | None = None
    # Rows with one id are right answers to one input: as many examples to train, and the references of one to evaluate.
    several_answers: bool = False
    # An example that does not fit whole is rejected: its two sides must say the same.
    never_cut: bool = False

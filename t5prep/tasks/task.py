"""Describe a task: how the rows of one corpus become text-to-text examples, and which options it has."""

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
    """Hold the share of tokens that is hidden, and the mean number of tokens in a hidden span."""

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
    # An example that does not fit whole is rejected, because a cut would make its two sides differ.
    never_cut: bool = False

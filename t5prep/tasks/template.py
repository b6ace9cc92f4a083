"""Describe a task by its columns, so that thousands of rows become examples at once (filling.py)."""

import dataclasses
from collections.abc import Mapping

from t5prep.tasks.example import _Eos


@dataclasses.dataclass(frozen=True)
class Column:
    """Name a column whose text is used as it is, or `stripped` of white space at both ends.

    Where the task's column has several names, it is the first of them.
    """

    name: str
    stripped: bool = False


# Texts and columns, to be joined without a space.
Words = tuple[str | Column, ...]


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of an input, as Example has it: the text of some words, which may be protected from cutting."""

    words: Words
    protected: bool = False


@dataclasses.dataclass(frozen=True)
class Template:
    """Describe the examples of most rows: the parts of an input, EOS among them, a `target` (documents have none), an id.

    It must give the same as `to_example` for every row whose columns are texts, with a visible character in at least
    one column of `inputs`; whose id, where there is an `id` column, is not empty; and whose target has a visible
    character or, where there are `labels`, is one of these (their values are then the targets' texts). Other rows go to
    `to_example`.
    """

    inputs: tuple[Part | _Eos, ...]
    target: Words = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    id: str = ""

    @property
    def input_columns(self) -> list[Column]:
        """Return the columns of the input."""
        return [
            word for part in self.inputs if isinstance(part, Part) for word in part.words if isinstance(word, Column)
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the name of every column once."""
        targets = [word.name for word in self.target if isinstance(word, Column)]
        inputs = [column.name for column in self.input_columns]
        return tuple(dict.fromkeys([*inputs, *targets, *([self.id] if self.id else [])]))

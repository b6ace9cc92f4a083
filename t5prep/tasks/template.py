"""Describe a task by its columns, so that thousands of rows become examples at once."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Column:
    """Name a column whose text is used as it is, or `stripped` of white space at both ends.

    Where the task's column has several names, it is the first of them.
    """

    name: str
    stripped: bool = False


# Texts and columns, to be joined without a space.
Field = tuple[str | Column, ...]


@dataclasses.dataclass(frozen=True)
class Template:
    """Describe the examples of most rows: `fields` with EOS between them, a `target` (documents have none), an id.

    It must give the same as `to_example` for every row whose columns are texts, with a visible character in at least
    one of `fields`; whose id, where there is an `id` column, is not empty; and whose target has a visible character or,
    where there are `words`, is one of these (their values are then the targets' texts). Other rows go to `to_example`.
    """

    fields: tuple[Field, ...]
    target: Field = ()
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    id: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the columns of the input."""
        return tuple(part.name for field in self.fields for part in field if isinstance(part, Column))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return every column once."""
        targets = (part.name for part in self.target if isinstance(part, Column))
        return tuple(dict.fromkeys([*self.inputs, *targets, *([self.id] if self.id else [])]))

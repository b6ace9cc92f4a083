"""A task said as columns: what its examples are made of, so that thousands of rows can be made into them at once."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Column:
    """The text of a column, as it stands in a row."""

    name: str


# Texts and columns, joined without a space.
Field = tuple[str | Column, ...]


@dataclasses.dataclass(frozen=True)
class Template:
    """Say what the examples of most rows are: `fields` with EOS between them, a `target` (documents have none), an id.

    It must say what `to_example` says of every row whose columns are texts, at least one of `fields` with a visible
    character in it; whose id, where there is an `id` column, is not empty; and whose target has a visible character or,
    where there are `words`, is one of these: then their values are the targets' texts. Other rows go to `to_example`.
    """

    fields: tuple[Field, ...]
    target: Field = ()
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    id: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the columns that the input is made of."""
        return tuple(part.name for field in self.fields for part in field if isinstance(part, Column))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return every column, each once."""
        targets = (part.name for part in self.target if isinstance(part, Column))
        return tuple(dict.fromkeys([*self.inputs, *targets, *([self.id] if self.id else [])]))

"""Describe the columns that a task reads, and find those that a source lacks."""

import dataclasses
from collections.abc import Sequence

from t5prep.errors import did_you_mean
from t5prep.reading import rows

# A column: its name, or its names in different editions of a corpus, of which the first present one is read; "" at the
# end means that the column may be missing.
Column = str | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of inputs, those that only targets need, and the one with a unique id ("" for none)."""

    inputs: Sequence[Column]
    targets: Sequence[Column] = ()
    id: Column = ""

    def __post_init__(self) -> None:
        """Raise TypeError for one name where a list of them belongs."""
        for name in ("inputs", "targets"):
            if isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} of Columns is a list of names: write {name}=[{value!r}]")

    @property
    def all(self) -> tuple[Column, ...]:
        """Return every column, the id's first."""
        return (*((self.id,) if self.id else ()), *self.inputs, *self.targets)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names that the columns may have."""
        return names(self.all)

    def found_in(self, there: Sequence[str]) -> dict[str, str] | None:
        """Return the first name of each column with the name that is there; None where a column has none there.

        >>> Columns([("sentence", "text")], ["label"]).found_in(["label", "text"])
        {'sentence': 'text', 'label': 'label'}
        """
        found = {}
        for alternatives in map(_alternatives, self.all):
            name = next((name for name in alternatives if name in there), None)
            if name is None:
                return None
            found[alternatives[0]] = name
        return found

    @property
    def id_name(self) -> str:
        """Return the first name of the id's column, "" where there is none."""
        return next(iter(names([self.id])), "")


def _alternatives(column: Column) -> tuple[str, ...]:
    return (column,) if isinstance(column, str) else column


def names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return all names that columns may have.

    >>> names([("sentence", "text"), "label", ("idx", "")])
    ('sentence', 'text', 'label', 'idx')
    """
    return tuple(name for column in columns for name in _alternatives(column) if name)


def missing(columns: Sequence[Column], there: Sequence[str]) -> str:
    """Return the first column that is missing under all its names, and the present columns, as the end of a sentence.

    Returns "" when none is missing.

    >>> missing([("sentence", "text"), "label", ("idx", "")], ["id", "label"])
    '"sentence" or "text"; it has id, label.'
    >>> missing(["catgory"], ["category", "text"])
    '"catgory"; it has category, text. Did you mean "category"?'
    """
    for column in columns:
        alternatives = _alternatives(column)
        if not any(name in ("", *there) or rows.root(name) in there for name in alternatives):
            quoted = " or ".join(f'"{name}"' for name in alternatives)
            meant = _divided_otherwise(there) or did_you_mean(alternatives[0], there)
            return f"{quoted}; it has {', '.join(there)}.{meant}"
    return ""


def _divided_otherwise(there: Sequence[str]) -> str:
    """Return a sentence about a table that is read as one column because other characters than expected divide it.

    >>> _divided_otherwise(["question;label"]), _divided_otherwise(["question", "label;"])
    (' Say what divides its columns: --delimiter ";"', '')
    """
    if len(there) != 1:
        return ""
    if "\t" in there[0]:
        return " Its columns are divided by tabs: --format tsv"
    divider = next((one for one in ";|" if one in there[0]), "")
    return f' Say what divides its columns: --delimiter "{divider}"' if divider else ""

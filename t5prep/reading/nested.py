"""Read what lies inside a column: `answers.text` is the column `text` of the objects in the column `answers`."""

from collections.abc import Mapping, Sequence
from typing import Any

from t5prep.reading.rows import Record


def root(name: str) -> str:
    """Return the column that a name begins in.

    >>> root("answers[].text"), root("question")
    ('answers', 'question')
    """
    return name.partition(".")[0].removesuffix("[]")


def is_path(name: str) -> bool:
    """Check whether a name leads into a column."""
    return "." in name or name.endswith("[]")


def roots(columns: Sequence[str]) -> set[str]:
    """Return the columns that all these names begin in, and the names themselves."""
    return {*columns, *map(root, columns)}


def with_paths(record: Record, columns: Sequence[str]) -> Record:
    """Return a record with the values that some of the names lead to, as columns of their own; lists become one list.

    >>> with_paths({"answers": [{"text": "a"}, {"text": "b"}]}, ["answers.text"])["answers.text"]
    ['a', 'b']
    >>> with_paths({"answers": {"text": ["a"], "start": [1]}}, ["answers.text"])["answers.text"]
    ['a']
    """
    missing = [name for name in columns if is_path(name) and name not in record]
    if not missing:
        return record
    whole = dict(record)
    for name in missing:
        if root(name) not in record:
            continue
        steps = [step.removesuffix("[]") for step in name.split(".")]
        try:
            whole[name] = _value(record, steps)
        except KeyError:
            continue  # the task says that the field is missing
    return whole


def _value(value: Any, steps: Sequence[str]) -> Any:
    """Return what steps lead to; of a list, a list of what they lead to in each of its values. Raises KeyError."""
    for place, step in enumerate(steps):
        if isinstance(value, list | tuple):
            inner = [_value(one, steps[place:]) for one in value]
            return [leaf for one in inner for leaf in (one if isinstance(one, list) else [one])]
        if not isinstance(value, Mapping):
            raise KeyError(step)
        value = value[step]
    return value

"""Declare an option once, as a field of a dataclass: its default, its help text, and its allowed values."""

import dataclasses
import math
import numbers
import shlex
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5prep.errors import UsageError, did_you_mean


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    choices: Sequence[str] = (),
    least: float | None = None,
    most: float | None = None,
    parse: Callable[[str], Any] | None = None,
    shown: str = "",
    changes_tokens: bool = False,
    removes_markup: str = "",
    compare: bool = True,
) -> Any:
    """Return a dataclass field that is also an option of the command line: `input_length` is `--input-length`.

    `help` is its text in `--help`. `choices` are its allowed texts, `least` and `most` the bounds of a number. `parse`
    makes the value from the command line's text, and `shown` is that text for a default of None. `changes_tokens` means
    that other values give other tokens. `removes_markup` is the value that removes HTML tags from the texts. Two
    dataclasses that differ only in fields with `compare=False` are equal.
    """
    metadata = {
        "help": help,
        "choices": tuple(choices),
        "least": least,
        "most": most,
        "parse": parse,
        "shown": shown,
        "changes_tokens": changes_tokens,
        "removes_markup": removes_markup,
    }
    return dataclasses.field(default=default, metadata=metadata, compare=compare)


def flag(name: str) -> str:
    """Return the name of a field on the command line.

    >>> flag("input_length")
    '--input-length'
    """
    return f"--{name.replace('_', '-')}"


def spelled(name: str, value: Any) -> str:
    """Return a field and its value as the user would type them.

    >>> spelled("masks", True), spelled("limit", None), spelled("protect", ["question", "choices"])
    ('--masks', 'no --limit', '--protect question --protect choices')
    >>> spelled("splits", {"train": 0.9, "test": 0.1}), spelled("inputs", "say {text}")
    ('--splits train=0.9,test=0.1', "--inputs 'say {text}'")
    """
    if value is True:
        return flag(name)
    if (value in (None, False, "", [], ()) and not isinstance(value, int | float)) or value is False:
        return f"no {flag(name)}"
    if isinstance(value, Mapping):
        value = ",".join(f"{key}={part}" for key, part in value.items())
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"{flag(name)} {shlex.quote(str(one))}" for one in values)


def typed(field: dataclasses.Field, value: Any) -> Any:
    """Return what a program gives for a field, as the field's type has it: one text alone is a tuple of one text.

    Raises UsageError for a value of another type.

    >>> field = dataclasses.make_dataclass("Options", [("protect", tuple[str, ...])]).__dataclass_fields__["protect"]
    >>> typed(field, "question"), typed(field, ["question", "choices"])
    (('question',), ('question', 'choices'))
    """
    kinds = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    kind = typing.get_origin(kinds[0]) or kinds[0]
    if (value is None and types.NoneType in kinds) or kind not in _KINDS:
        return value
    if kind is tuple and isinstance(value, Mapping):
        parts = ((name, part) for name, each in value.items() for part in ([each] if isinstance(each, str) else each))
        value = tuple(f"{name}={part}" for name, part in parts)
    if kind is tuple and isinstance(value, str):
        value = (value,)
    accepts, what = _KINDS[kind]
    if not isinstance(value, accepts) or (isinstance(value, bool) and kind is not bool):
        raise UsageError(f"{flag(field.name)} {value!r}: it is {what}")
    if kind is tuple and not all(isinstance(one, str) for one in value):
        raise UsageError(f"{flag(field.name)} {value!r}: it is {what}")
    return kind(value)


# What a program may give for a field of each type, and how that is said.
_KINDS: dict[Any, tuple[Any, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a text"),
    tuple: ((list, tuple), "a text, or a list of texts"),
}


def check(chosen: Any) -> None:
    """Raise UsageError for a field whose value is not among its choices, is out of its bounds, or is not finite."""
    for field in dataclasses.fields(chosen):
        value, rules = getattr(chosen, field.name), field.metadata
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag(field.name)} {value}: it is a finite number")
        if rules.get("choices") and value not in rules["choices"]:
            raise UsageError(f'{flag(field.name)} "{value}": it is one of {", ".join(rules["choices"])}')
        if rules.get("least") is not None and value is not None and value < rules["least"]:
            raise UsageError(f"{flag(field.name)} {value}: it is at least {rules['least']}")
        if rules.get("most") is not None and value is not None and value > rules["most"]:
            raise UsageError(f"{flag(field.name)} {value}: it is at most {rules['most']}")


def build(cls: type, given: Mapping[str, Any]) -> Any:
    """Return the dataclass of options with the given values; the others have their defaults. Raises UsageError."""
    known = {field.name: field for field in dataclasses.fields(cls)}
    for name in given:
        if name not in known:
            raise UsageError(f'this task has no option "{name}".{did_you_mean(name, known)} It has: {", ".join(known)}')
    chosen = cls(**{name: typed(known[name], value) for name, value in given.items()})
    check(chosen)
    return chosen


def plain(chosen: Any) -> dict[str, Any]:
    """Return all options by name as JSON values: after writing and reading they are equal."""
    values = dataclasses.asdict(chosen)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

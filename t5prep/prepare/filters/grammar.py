"""Read `gopher:least_words=20` as a filter: its name, and the settings that differ from its defaults."""

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t5prep.errors import UsageError, did_you_mean
from t5prep.prepare.filters import own_file, rules

Filter = Callable[[str], str]


def names() -> list[str]:
    """Return the names of all filters."""
    return sorted(module.name for module in pkgutil.iter_modules(rules.__path__))


def cls(name: str) -> type:
    """Return the class of a filter. Raises UsageError."""
    if name not in names():
        raise UsageError(
            f'--filter "{name}": there is no such filter.{did_you_mean(name, names())} See all: t5prep filter'
        )
    kind: type = importlib.import_module(f"{rules.__name__}.{name}").Filter
    return kind


def parse(text: str) -> tuple[str, Filter]:
    """Return the name of a filter, as reasons begin with it, and the filter itself. Raises UsageError.

    >>> parse("words:least=3,most=20")
    ('words', Filter(least=3, most=20))
    >>> parse("pattern:drop=a{2,3},b")[1].drop
    'a{2,3},b'
    """
    name, _, given = text.partition(":")
    if name.endswith(".py"):
        return f"{Path(name).stem}.{given}", own_file.load(name, given)
    kind = cls(name)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for part in re.split(rf",(?=(?:{'|'.join(fields)})=)", given) if given else []:
        key, equals, value = part.partition("=")
        if key not in fields or not equals:
            raise UsageError(
                f'--filter "{text}": "{part}" is not NAME=VALUE with one of its settings.{did_you_mean(key, fields)} '
                f"{name} has: {', '.join(fields)}"
            )
        values[key] = _value(fields[key], value, text=text)
    return name, kind(**values)


def _value(field: dataclasses.Field, value: str, *, text: str) -> Any:
    """Return a setting's value from its text. Raises UsageError."""
    choices = field.metadata["choices"]
    if choices and value not in choices:
        raise UsageError(f'--filter "{text}": {field.name} is one of {", ".join(choices)}')
    kind: type = type(field.default)
    try:
        number = kind(value)
    except ValueError:
        number = None
    if number is None or (kind is not str and not 0 <= number < float("inf")):
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f'--filter "{text}": {field.name} is {what} from 0 on, not "{value}"')
    return number

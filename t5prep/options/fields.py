"""Declare an option once, as a field of a dataclass: its default, its help text, and its allowed values."""

import dataclasses
import inspect
import math
import numbers
import os
import shlex
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from t5prep.errors import UsageError, did_you_mean
from t5prep.json_values import JSON

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Function = TypeVar("_Function", bound=Callable[..., object])
_Options = TypeVar("_Options", bound="DataclassInstance")


def option(
    default: object = dataclasses.MISSING,
    help: str = "",
    *,
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    parse: Callable[[str], object] | None = None,
    default_text: str = "",
    changes_tokens: bool = False,
    removes_markup: str = "",
    compare: bool = True,
    is_address: bool = False,
    alone: str = "",
    metavar: str = "",
    python_only: bool = False,
    section: str = "",
) -> Any:
    """Return a dataclass field that is also an option of the command line: `input_length` is `--input-length`.

    `help` is its text in `--help`. `choices` are its allowed texts beside the default, `minimum` and `maximum` the bounds of a
    number. `parse` makes the value from the command line's text, and `default_text` is that text for a default of None.
    `changes_tokens` means that other values give other tokens. `removes_markup` is the value that removes HTML tags from the
    texts. Two dataclasses that differ only in fields with `compare=False` are equal. The value of a field that `is_address`
    may hold a credential. `alone` is the value of an option that is typed without one, and `metavar` what `--help` shows as its
    value. The command line lacks a field that is `python_only`. `section`
    is the heading in `--help` that the option stands under.
    """
    metadata = {
        "help": help,
        "choices": tuple(choices),
        "least": minimum,
        "most": maximum,
        "parse": parse,
        "shown": default_text,
        "changes_tokens": changes_tokens,
        "removes_markup": removes_markup,
        "is_address": is_address,
        "alone": alone,
        "metavar": metavar,
        "python_only": python_only,
        "section": section,
    }
    return dataclasses.field(default=default, metadata=metadata, compare=compare)


def group(cls: type, *, without: Sequence[str] = ()) -> Any:
    """Return a dataclass field that holds the options of another dataclass; those `without` keep their defaults."""
    return dataclasses.field(default_factory=cls, metadata={"group": cls, "without": tuple(without)})


def leaves(cls: "type[DataclassInstance]") -> Iterator[dataclasses.Field[object]]:
    """Yield the fields of a dataclass in order, and those of its groups in their places."""
    for field in dataclasses.fields(cls):
        if inner := field.metadata.get("group"):
            yield from (leaf for leaf in leaves(inner) if leaf.name not in field.metadata["without"])
        else:
            yield field


@dataclasses.dataclass(frozen=True)
class Options:
    """Check the values of a dataclass of options when it is made. Raises UsageError."""

    def __post_init__(self) -> None:
        check(self)


def flag(name: str) -> str:
    """Return the name of a field on the command line.

    >>> flag("input_length")
    '--input-length'
    """
    return f"--{name.replace('_', '-')}"


def as_cli_option(name: str, value: object) -> str:
    """Return a field and its value as the user would type them.

    >>> as_cli_option("masks", True), as_cli_option("limit", None), as_cli_option("protect", ["question", "choices"])
    ('--masks', 'no --limit', '--protect question --protect choices')
    >>> as_cli_option("splits", {"train": 0.9, "test": 0.1}), as_cli_option("inputs", "say {text}")
    ('--splits train=0.9,test=0.1', "--inputs 'say {text}'")
    """
    if value is True:
        return flag(name)
    if (value in (None, False, "", [], ()) and not isinstance(value, int | float)) or value is False:
        return f"no {flag(name)}"
    values = value if isinstance(value, list | tuple) else [as_text(value)]
    return " ".join(f"{flag(name)} {shlex.quote(str(member))}" for member in values)


def as_text(value: object) -> str:
    """Return a value as it is typed: `train=0.9,validation=0.1` for a dict."""
    return ",".join(f"{name}={part}" for name, part in value.items()) if isinstance(value, Mapping) else str(value)


def changed(chosen: "DataclassInstance", *names: str) -> list[str]:
    """Return the options that differ from their defaults, as they are typed: of all fields, or of those named."""
    differing = [
        field
        for field in dataclasses.fields(chosen)
        if "group" not in field.metadata and getattr(chosen, field.name) != field.default
    ]
    return [
        as_cli_option(field.name, getattr(chosen, field.name))
        for field in differing
        if field.name in (names or field.name)
    ]


def typed(field: "dataclasses.Field[object]", value: object) -> object:
    """Return what a program gives for a field, as the field's type has it: one value alone is a tuple of it.

    Raises UsageError for a value of another type.

    >>> field = dataclasses.make_dataclass("Options", [("protect", tuple[str, ...])]).__dataclass_fields__["protect"]
    >>> typed(field, "question"), typed(field, ["question", "choices"])
    (('question',), ('question', 'choices'))
    """
    kinds = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    kind = typing.get_origin(kinds[0]) or kinds[0]
    if value is None and types.NoneType in kinds:
        return None
    if parse := field.metadata.get("parse"):
        return parse(as_text(value))
    if kind is not tuple:
        return _typed(field.name, value, kind)
    of = typing.get_args(kinds[0])[0]
    if isinstance(value, Mapping):
        parts = (
            (name, part) for name, texts in value.items() for part in ([texts] if isinstance(texts, str) else texts)
        )
        value = tuple(f"{name}={part}" for name, part in parts)
    several = value if isinstance(value, list | tuple) else (value,)
    return tuple(_typed(field.name, member, of, values=value, plural=_PLURALS[of]) for member in several)


def _typed(name: str, value: object, kind: type, *, values: object = None, plural: str = "") -> object:
    """Return one value as its type has it. Raises UsageError, which names the `values` list if there is one."""
    if kind not in _KINDS:
        return value
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    accepts, noun = _KINDS[kind]
    if not isinstance(value, accepts) or (isinstance(value, bool) and kind is not bool):
        raise UsageError(f"{flag(name)} {values if plural else value!r}: it is {noun}{plural}")
    return value if kind is str else kind(value)


# What a program may give for a field of each type, and how that is said.
_KINDS: dict[type, tuple[type, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a text"),
}
_PLURALS = {str: ", or a list of texts", int: ", or a list of whole numbers", float: ", or a list of numbers"}


def check(chosen: "DataclassInstance") -> None:
    """Raise UsageError for a field whose value is not among its choices, is out of its bounds, or is not finite."""
    for field in dataclasses.fields(chosen):
        value, rules = getattr(chosen, field.name), field.metadata
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag(field.name)} {value}: it is a finite number")
        if rules.get("choices") and value not in (*rules["choices"], field.default):
            suggestion = did_you_mean(str(value), rules["choices"])
            raise UsageError(f'{flag(field.name)} "{value}": it is one of {", ".join(rules["choices"])}.{suggestion}')
        for number in value if isinstance(value, tuple) else (value,):
            if rules.get("least") is not None and number is not None and number < rules["least"]:
                raise UsageError(f"{flag(field.name)} {number}: it is at least {rules['least']}")
            if rules.get("most") is not None and number is not None and number > rules["most"]:
                raise UsageError(f"{flag(field.name)} {number}: it is at most {rules['most']}")


def build(cls: type[_Options], values: Mapping[str, object], *, owner: str = "this task") -> _Options:
    """Return a dataclass of options, groups among them, with the given values; the others have their defaults.

    `owner` is what has the options, for the error. Raises UsageError.
    """
    fields = {field.name: field for field in leaves(cls)}
    for name in values:
        if name not in fields:
            raise UsageError(f'{owner} has no option "{name}".{did_you_mean(name, fields)} It has: {", ".join(fields)}')
    return _built(cls, {name: typed(fields[name], value) for name, value in values.items()})


def _built(cls: type[_Options], values: Mapping[str, object]) -> _Options:
    parts = {
        field.name: _built(field.metadata["group"], values) if "group" in field.metadata else values[field.name]
        for field in dataclasses.fields(cls)
        if "group" in field.metadata or field.name in values
    }
    chosen = cls(**parts)
    check(chosen)
    return chosen


def sentence(field: "dataclasses.Field[object]") -> str:
    """Return the help of an option as a sentence."""
    help = field.metadata["help"]
    return f"{help[:1].upper()}{help[1:]}."


def accepts(cls: "type[DataclassInstance]") -> Callable[[_Function], _Function]:
    """Return a decorator for a function whose `**options` are those of a dataclass: its signature and docstring list each.

    Other keywords that its docstring describes stay in the signature.
    """

    def complete(function: _Function) -> _Function:
        signature = inspect.signature(function)
        parameters, fields = list(signature.parameters.values()), list(leaves(cls))
        # Python 3.13 takes the indentation out of docstrings, and earlier versions do not.
        docs = inspect.cleandoc(function.__doc__ or "")
        var_keyword = parameters.pop()
        options = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in fields
        ]
        extra_keywords = [var_keyword] if f"**{var_keyword.name}: " in docs else []
        function.__signature__ = signature.replace(parameters=[*parameters, *options, *extra_keywords])  # type: ignore[attr-defined]
        lines = "\n".join(f"    {field.name}: {sentence(field)}" for field in fields)
        function.__doc__ = docs.replace("    **options\n", f"{lines}\n")
        return function

    return complete


def plain(chosen: "DataclassInstance") -> dict[str, JSON]:
    """Return all options by name as JSON values: after writing and reading they are equal."""
    values = dataclasses.asdict(chosen)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

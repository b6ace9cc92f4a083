"""Declare an option once, as a field of a dataclass: its default, its help text, and its allowed values.

The command line, the signature and docstring of the Python function, and all checks are made from this field.
"""

import copy
import dataclasses
import inspect
import math
import numbers
import operator
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
    synonyms: Mapping[str, str] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    bounds_note: str = "",
    parse: Callable[[str], object] | None = None,
    default_text: str = "",
    changes_tokens: bool = False,
    removes_markup: str = "",
    compare: bool = True,
    is_address: bool = False,
    bare_value: str = "",
    metavar: str = "",
    python_only: bool = False,
    section: str = "",
    only_with: Mapping[str, tuple[object, ...]] | None = None,
) -> Any:
    """Return a dataclass field that is also an option of the command line: `input_length` is `--input-length`.

    * default: the value without the option. An option without a default is required. `default_text` is the spelling of the
      default for `parse` where `default` is None.
    * help: the text in `--help`, without a full stop.
    * choices: the allowed texts, beside `default`.
    * synonyms: the values of other programs → the choice to suggest for them.
    * minimum, maximum, above, below: the bounds of a number, or of each member of a tuple. `above` and `below` are outside.
    * bounds_note: the end of the error about a bound.
    * parse: a function from the typed text to the value. It raises UsageError.
    * changes_tokens: True if another value gives other token ids.
    * removes_markup: the value that removes HTML tags from the texts, or "" where no value does.
    * compare: False if two dataclasses that differ only in this field are equal.
    * is_address: True if the value is a path or URL, which may hold a password.
    * bare_value: the value of an option that is typed without a value, as `--tpu` for `--tpu auto`.
    * metavar: the placeholder of the value in `--help`.
    * python_only: True if the command line lacks this option.
    * section: the heading in `--help` above this option.
    * only_with: other options, each with the values with which this option has an effect. One of them is enough. `()` stands
      for all values but the default.
    """
    metadata = {
        "help": help,
        "choices": tuple(choices),
        "synonyms": synonyms or {},
        "minimum": minimum,
        "maximum": maximum,
        "above": above,
        "below": below,
        "bounds_note": bounds_note,
        "parse": parse,
        "default_text": default_text,
        "changes_tokens": changes_tokens,
        "removes_markup": removes_markup,
        "is_address": is_address,
        "bare_value": bare_value,
        "metavar": metavar,
        "python_only": python_only,
        "section": section,
        "only_with": only_with or {},
    }
    return dataclasses.field(default=default, metadata=metadata, compare=compare)


def option_of(cls: "type[DataclassInstance]", name: str) -> Any:
    """Return a dataclass field that is the option `name` of the dataclass `cls`, for another dataclass with this option."""
    return copy.copy(cls.__dataclass_fields__[name])


def group(cls: type, *, without: Sequence[str] = ()) -> Any:
    """Return a dataclass field that holds the options of the dataclass `cls`.

    The options named in `without` cannot be chosen and have their defaults.
    """
    return dataclasses.field(default_factory=cls, metadata={"group": cls, "without": tuple(without)})


def leaves(cls: "type[DataclassInstance]") -> Iterator[dataclasses.Field[object]]:
    """Yield the options of a dataclass in order. In place of a field made by `group`, yield the options of that group."""
    for field in dataclasses.fields(cls):
        if inner := field.metadata.get("group"):
            yield from (leaf for leaf in leaves(inner) if leaf.name not in field.metadata["without"])
        else:
            yield field


@dataclasses.dataclass(frozen=True)
class Options:
    """Check all values when an instance is made: the base class of all dataclasses of options. Raises UsageError."""

    def __post_init__(self) -> None:
        check(self)
        check_effect(self)


def flag(name: str) -> str:
    """Return the name of a field on the command line.

    >>> flag("input_length")
    '--input-length'
    """
    return f"--{name.replace('_', '-')}"


def as_cli_option(name: str, value: object) -> str:
    """Return the option `name` with `value` as a user would type it, or `no --name` for an empty value.

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
    """Return the text that a user would type for `value`: `train=0.9,validation=0.1` for a dict."""
    return ",".join(f"{name}={part}" for name, part in value.items()) if isinstance(value, Mapping) else str(value)


def changed(chosen: "DataclassInstance", *names: str) -> list[str]:
    """Return the options of `chosen` that differ from their defaults, each as typed: `--beams 4`.

    With `names`, only these fields are compared. Groups are not.
    """
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
    """Return a value from Python code, converted to the type of `field`. A single value becomes a tuple of one value.

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
    if isinstance(value, Mapping):  # split_files={"train": ["a.csv", "b.csv"]} is ("train=a.csv", "train=b.csv")
        parts = (
            (name, part) for name, texts in value.items() for part in ([texts] if isinstance(texts, str) else texts)
        )
        value = tuple(f"{name}={part}" for name, part in parts)
    several = value if isinstance(value, list | tuple) else (value,)
    return tuple(_typed(field.name, member, of, values=value, plural=_PLURALS[of]) for member in several)


def _typed(name: str, value: object, kind: type, *, values: object = None, plural: str = "") -> object:
    """Return `value` as a `kind`. Raises UsageError.

    For a member of a list, `values` is the list, which the error shows, and `plural` a noun from `_PLURALS`.
    """
    if kind not in _KINDS:
        return value
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    accepts, noun = _KINDS[kind]
    # A bool is an int in Python, but `limit=True` is a mistake.
    if not isinstance(value, accepts) or (isinstance(value, bool) and kind is not bool):
        raise UsageError(
            f"{flag(name)} {values if plural else value!r} has the wrong type. Pass {noun}{plural}.",
            code="option.malformed",
        )
    return value if kind is str else kind(value)


# Type of a field → the accepted types (numpy's scalars are numbers, too), and the noun for errors.
_KINDS: dict[type, tuple[type, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a text"),
}
_PLURALS = {str: ", or a list of texts", int: ", or a list of whole numbers", float: ", or a list of numbers"}


@dataclasses.dataclass(frozen=True)
class Wording:
    """Hold how the errors of `check` and `check_effect` name a field, and their codes.

    * name: the field without a value.
    * typed: the field with a value, as a user would type it.
    * any_value: the field with any value but its default.
    """

    name: Callable[[str], str]
    typed: Callable[[str, object], str]
    any_value: Callable[[str], str]
    unknown_choice: str
    out_of_range: str
    no_effect: str


OPTION = Wording(
    flag, as_cli_option, flag, "option.unknown-choice", "option.out-of-range", "option.missing-prerequisite"
)
# Name of a bound in a field → its words in errors, and whether a number is inside of it.
_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "minimum": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "maximum": ("at most", operator.le),
    "below": ("below", operator.lt),
}


def check(chosen: "DataclassInstance", wording: Wording = OPTION) -> None:
    """Raise UsageError for a value that is not among the field's choices, is out of its bounds, or is not finite."""
    for field in dataclasses.fields(chosen):
        name, value, rules = wording.name(field.name), getattr(chosen, field.name), field.metadata
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{name} {value} is not finite. Pass a finite number.", code=wording.out_of_range)
        if rules.get("choices") and value not in (*rules["choices"], field.default):
            ours = rules["synonyms"].get(str(value).lower())
            suggestion = (
                f" Write {wording.typed(field.name, ours)}." if ours else did_you_mean(str(value), rules["choices"])
            )
            raise UsageError(
                f'{name} "{value}" is not a valid choice.{suggestion} Choose one of: {", ".join(rules["choices"])}.',
                code=wording.unknown_choice,
            )
        bounds = [(*_BOUNDS[bound], rules[bound]) for bound in _BOUNDS if rules.get(bound) is not None]
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and not all(is_inside(number, limit) for _, is_inside, limit in bounds):
                allowed = " and ".join(f"{words} {limit}" for words, _, limit in bounds)
                raise UsageError(
                    f"{name} {number} is out of range. Use a number {allowed}{rules['bounds_note']}.",
                    code=wording.out_of_range,
                )


def check_effect(chosen: "DataclassInstance", wording: Wording = OPTION) -> None:
    """Raise UsageError for a value that has no effect with the values of the options in its field's `only_with`."""
    for field in dataclasses.fields(chosen):
        if getattr(chosen, field.name) != field.default and not has_effect(field, chosen):
            prerequisites = [
                wording.typed(name, value) if values else wording.any_value(name)
                for name, values in field.metadata["only_with"].items()
                for value in values or [None]
            ]
            raise without_effect(
                wording.typed(field.name, getattr(chosen, field.name)), prerequisites, code=wording.no_effect
            )


def has_effect(field: "dataclasses.Field[object]", chosen: "DataclassInstance") -> bool:
    """Check whether an option of `chosen` in the `only_with` of `field` has a value with which `field` has an effect."""
    only_with = field.metadata.get("only_with")
    defaults = {other.name: other.default for other in dataclasses.fields(chosen)}
    return not only_with or any(
        getattr(chosen, name) in values if values else getattr(chosen, name) != defaults[name]
        for name, values in only_with.items()
    )


def without_effect(option: str, prerequisites: Sequence[str], *, code: str = OPTION.no_effect) -> UsageError:
    """Return the error `code` about `option`, as typed, which has no effect without one of `prerequisites`."""
    needed = " or ".join(prerequisites)
    return UsageError(
        f"{option} has no effect without {needed}. Add {needed}, or remove {option}.",
        code=code,
    )


def build(cls: type[_Options], values: Mapping[str, object], *, owner: str = "this task") -> _Options:
    """Return a `cls` with `values`; options without a value have their defaults.

    The names in `values` are flat: an option of a group stands beside the others. `owner` is the subject of the error,
    as in `this task has no option "x"`. Raises UsageError.
    """
    fields = {field.name: field for field in leaves(cls)}
    for name in values:
        if name not in fields:
            raise UsageError(
                f'{owner} has no option "{name}".{did_you_mean(name, fields)} It has: {", ".join(fields)}',
                code="option.unknown",
            )
    return _built(cls, {name: typed(fields[name], value) for name, value in values.items()})


def _built(cls: type[_Options], values: Mapping[str, object]) -> _Options:
    """Return a `cls` with these values, after building each group from the values of its options. Raises UsageError."""
    parts = {
        field.name: _built(field.metadata["group"], values) if "group" in field.metadata else values[field.name]
        for field in dataclasses.fields(cls)
        if "group" in field.metadata or field.name in values
    }
    chosen = cls(**parts)
    check(chosen)
    check_effect(chosen)
    return chosen


def sentence(field: "dataclasses.Field[object]") -> str:
    """Return the help of an option as a sentence."""
    help = field.metadata["help"]
    return f"{help[:1].upper()}{help[1:]}."


def accepts(cls: "type[DataclassInstance]") -> Callable[[_Function], _Function]:
    """Return a decorator for a function whose `**options` are the fields of `cls`: its signature and docstring list each.

    The line `**options` in the docstring is replaced by one line for each field. A function that takes further keywords keeps
    its `**NAME` in the signature, if its docstring has a line `**NAME: ...`.
    """

    def complete(function: _Function) -> _Function:
        """Give `function` the signature and the docstring with all options, and return it."""
        signature = inspect.signature(function)
        parameters, fields = list(signature.parameters.values()), list(leaves(cls))
        # Python 3.13 takes the indentation out of docstrings, and earlier versions do not.
        docs = inspect.cleandoc(function.__doc__ or "")
        var_keyword = parameters.pop()
        options = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
                annotation=field.type,
            )
            for field in fields
        ]
        extra_keywords = [var_keyword] if f"**{var_keyword.name}: " in docs else []
        function.__signature__ = signature.replace(parameters=[*parameters, *options, *extra_keywords])  # type: ignore[attr-defined]
        lines = "\n".join(f"    {field.name}: {sentence(field)}" for field in fields)
        function.__doc__ = docs.replace("    **options\n", f"{lines}\n")
        return function

    return complete


def plain(chosen: "DataclassInstance") -> dict[str, JSON]:
    """Return all options by name as JSON values. Tuples become lists, so values are equal after writing and reading."""
    values = dataclasses.asdict(chosen)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

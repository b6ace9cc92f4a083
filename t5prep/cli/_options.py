"""Make click's options from the fields that declare them (`t5prep.options.fields.option`)."""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from t5prep.cli._addresses import ADDRESS
from t5prep.options.fields import flag, leaves, sentence, without_effect

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., object])


def options(
    cls: type, *, only: Sequence[str] = (), **attributes: Mapping[str, Any]
) -> Callable[[AnyCommand], AnyCommand]:
    """Return a decorator that adds the options of the dataclass `cls` to a command, or `only` those named.

    `attributes` are further keywords of `click.option` for single options: `recipe={"shell_complete": ...}`.
    """

    def add(command: AnyCommand) -> AnyCommand:
        for field in reversed([*leaves(cls)]):
            if field.name in (only or [field.name]) and not field.metadata["python_only"]:
                declared = _declared(field, field.default) | dict(attributes.get(field.name, {}))
                command = click.option(flag(field.name), **declared)(command)
        return command

    return add


class DependentOption(click.Option):
    """Refuse an option that is typed without one of the options `only_with`, which are named by their parameters.

    An option that is a field declares this in the field, for the Python function as well.
    """

    def __init__(self, *args: Any, only_with: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.only_with = only_with

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Return the value of the option. Raises UsageError."""
        if self.name in opts and not (set(self.only_with) & set(opts) or ctx.resilient_parsing):
            names = {parameter.name: max(parameter.opts, key=len) for parameter in ctx.command.params}
            raise without_effect(names[self.name], [names[name] for name in self.only_with])
        return super().handle_parse_result(ctx, opts, args)


class SectionOption(click.Option):
    """Place an option under the heading `section` in `--help`."""

    def __init__(self, *args: Any, section: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section


class SectionCommand(click.Command):
    """Print the options in `--help` by section, in the order of their first options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section. Options without a section, such as --help, are under "Other"."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                sections.setdefault(getattr(parameter, "section", "Other"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def from_field(
    field: "dataclasses.Field[object]", *, default: object, section: str = "", hidden: bool = False
) -> SectionOption:
    """Return the option that a field declares, with this `default`, in `section` or else in the field's section."""
    declared = _declared(field, default)
    return SectionOption([flag(field.name)], section=section or field.metadata["section"], hidden=hidden, **declared)


def option(name: str, help: str, *, section: str, **attributes: Any) -> SectionOption:
    """Return an option under the heading `section` that shows its default. `attributes` are keywords of `click.option`."""
    return SectionOption(
        [flag(name)], section=section, help=help, show_default=_has_default(**attributes), **attributes
    )


def _declared(field: "dataclasses.Field[object]", default: object) -> dict[str, Any]:
    """Return the keywords of `click.option` for a field: type, default, help and so on."""
    rules, kind = field.metadata, str if field.metadata["parse"] else _kind(field.type)
    attributes: dict[str, Any] = {"type": click.Choice(rules["choices"]) if rules["choices"] else kind}
    if rules["is_address"]:
        attributes = {"type": ADDRESS}
    if kind is bool:
        attributes = {"is_flag": True}
    elif isinstance(default, tuple):
        attributes["multiple"] = True
    elif rules["bare_value"]:
        attributes |= {"is_flag": False, "flag_value": rules["bare_value"]}
    if rules["metavar"]:
        attributes["metavar"] = rules["metavar"]
    default_value = rules["default_text"] or default
    if default_value is dataclasses.MISSING:
        attributes["required"] = True
    elif default_value is not None:
        attributes["default"] = default_value
    return {
        "help": sentence(field),
        "show_default": "[default: " not in rules["help"] and _has_default(**attributes),
        **attributes,
    }


def _has_default(*, default: object = None, is_flag: bool = False, **_: object) -> bool:
    return default not in (None, "", ()) and not is_flag


def _kind(annotation: object) -> type:
    """Return the type of one value of an annotation: `int` for `int | None`, `str` for `tuple[str, ...]`."""
    if isinstance(annotation, types.UnionType):
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is tuple:
        annotation = typing.get_args(annotation)[0]
    return annotation if annotation in (int, float, bool) else str

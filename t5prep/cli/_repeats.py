"""Refuse an option that may be given once and is given twice: click would silently take the last value."""

import collections
from collections.abc import Sequence

import click


def refuse(command: click.Command, parent: click.Context, args: Sequence[str]) -> None:
    """Raise UsageError if an option of a command, or of its subcommand, is given twice in the arguments and may be given once."""
    context = command.context_class(command, parent=parent, info_name=command.name)
    try:
        _, rest, given = command.make_parser(context).parse_args(list(args))
    except click.UsageError:
        return  # the command says it when it parses its arguments
    counts = collections.Counter(parameter for parameter in given if isinstance(parameter, click.Option))
    for option, count in counts.items():
        if count > 1 and not (option.multiple or option.count or option.is_eager):
            name = max(option.opts, key=len)
            raise click.UsageError(f"{name} is given {count} times. Give it once.", context)
    if isinstance(command, click.Group) and rest and (inner := command.get_command(context, rest[0])):
        refuse(inner, context, rest[1:])

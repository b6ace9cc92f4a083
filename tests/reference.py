"""Write docs/reference.md from the commands themselves (`make reference`); a test checks that the file is up to date.

python tests/reference.py > docs/reference.md
"""

import dataclasses
import inspect
from collections.abc import Iterator, Sequence

import click

HEAD = """# Commands and options

Written by `make reference` from the commands themselves. Data goes to stdout, talk and progress to stderr; `--json` prints one
JSON object on stdout. Exit code 0 is done, 1 an error that is said in one sentence, 2 a command line that cannot be read.
Colours are for terminals, and NO_COLOR is honoured.
"""


def markdown() -> str:
    """Return the reference of all commands, in the order of `t5prep --help`."""
    from t5prep.cli import main

    return "\n".join([HEAD, *_command(main, "t5prep")])


def _command(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    if path == "t5prep":
        yield _table(command.params, command)
    else:
        yield f"## {path}\n"
        yield _help_text(command)
        yield f"```\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```\n"
    if path == "t5prep prepare":
        assert isinstance(command, click.Group), "each task is a command"
        yield from _tasks(command, context)
        return
    if not isinstance(command, click.Group):
        yield _table(command.params, command)
        if path == "t5prep train":
            yield _settings()
        return
    for name in command.list_commands(context):
        if (subcommand := command.get_command(context, name)) is not None:
            yield from _command(subcommand, f"{path} {name}")


def _settings() -> str:
    """Return the table of what `--set` takes."""
    from t5prep.training.settings.train_config import TrainConfig

    rows = ["| `--set` | what it is | default |", "|---|---|---|"]
    for field in dataclasses.fields(TrainConfig):
        value = field.default
        default = " ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
        if field.metadata["section"]:
            rows.append(f"| **{field.metadata['section']}** | | |")
        rows.append(f"| `{field.name}` | {_cell(field.metadata['help'])} | {_cell(default)} |")
    return "\n".join(rows) + "\n"


def _tasks(group: click.Group, context: click.Context) -> Iterator[str]:
    """Yield the options that all tasks share, once, then what differs for each task: defaults, and its own options."""
    by_name = {name: group.get_command(context, name) for name in group.list_commands(context)}
    commands = {name: command for name, command in by_name.items() if command}
    first = next(iter(commands.values()))
    shared = [
        min((_find_parameter(task_command, parameter.name) for task_command in commands.values()), key=_is_hidden)
        for parameter in first.params
        if all(parameter.name in _names(task_command) for task_command in commands.values())
    ]
    varying: set[str | None] = {
        parameter.name
        for parameter in shared
        if len({repr(_find_parameter(task_command, parameter.name).default) for task_command in commands.values()}) > 1
    }
    yield "Of every task, unless its own section excludes them:\n"
    yield _table(shared, first, without_default=varying)
    for name, command in commands.items():
        yield f"### t5prep prepare {name}\n"
        yield _help_text(command)
        varying_parameters = [
            parameter
            for parameter in command.params
            if parameter.name in varying and _default(parameter) not in ("", "required")
            if not _is_hidden(parameter)
        ]
        yield f"Defaults: {', '.join(f'`{parameter.opts[0]} {parameter.default}`' for parameter in varying_parameters)}.\n"
        if hidden_names := [f"`{parameter.opts[0]}`" for parameter in command.params if _is_hidden(parameter)]:
            yield f"Options that do not apply: {', '.join(hidden_names)}.\n"
        only_here = [
            parameter for parameter in command.params if parameter.name not in {parameter.name for parameter in shared}
        ]
        if only_here:
            yield _table(only_here, command)


def _is_hidden(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.hidden


def _names(command: click.Command) -> set[str | None]:
    return {parameter.name for parameter in command.params}


def _find_parameter(command: click.Command, name: str | None) -> click.Parameter:
    return next(parameter for parameter in command.params if parameter.name == name)


def _help_text(command: click.Command) -> str:
    """Return a command's help as Markdown, with its example as code."""
    text = inspect.cleandoc(command.help or "")
    description, _, example = text.partition("\b\nExample:\n")
    paragraphs = [" ".join(part.split()) for part in description.strip().split("\n\n") if part.strip()]
    code = inspect.cleandoc("\n" + example).strip()
    return "\n\n".join([*paragraphs, f"```sh\n{code}\n```"] if code else paragraphs) + "\n"


def _table(
    parameters: Sequence[click.Parameter], command: click.Command, *, without_default: set[str | None] | None = None
) -> str:
    rows = ["| option | what it does | default |", "|---|---|---|"]
    for parameter in parameters:
        if not isinstance(parameter, click.Option) or _is_hidden(parameter):
            continue
        name = ", ".join(parameter.opts)
        kind = _kind(parameter)
        help_text, has_default, written = (parameter.help or "").removesuffix(".").partition(" [default: ")
        written = written.removesuffix("]") if has_default else ""
        default = "each task's" if parameter.name in (without_default or ()) else written or _default(parameter)
        rows.append(f"| `{name}{' ' + kind if kind else ''}` | {_cell(help_text)} | {_cell(default)} |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else ""


def _kind(parameter: click.Option) -> str:
    if parameter.is_flag:
        return ""
    if isinstance(parameter.type, click.Choice):
        return "\\|".join(map(str, parameter.type.choices))
    return parameter.metavar or {
        "integer": "N",
        "integer range": "N",
        "float": "X",
        "float range": "X",
        "path": "PATH",
    }.get(parameter.type.name, "TEXT")


def _default(parameter: click.Parameter) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    if isinstance(default, tuple) and default:
        return ", ".join(map(str, default))
    if default is None or default is False or default == () or default == "" or callable(default):
        return ""
    return "" if "Sentinel" in type(default).__name__ else f"{default}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    print(markdown().rstrip())

"""docs/reference.md is what the commands say of themselves."""

from collections.abc import Iterator
from pathlib import Path

import click
import damage_kit
import reference
from click.testing import CliRunner

from t5prep.cli import main

WRITTEN = Path(__file__).parents[2] / "docs" / "reference.md"


def test_reference_is_what_the_commands_say() -> None:
    assert WRITTEN.read_text(encoding="utf-8") == reference.markdown().rstrip() + "\n", "make reference"


def test_the_description_of_each_command_fits_one_line() -> None:
    def descriptions(group: click.Group) -> Iterator[tuple[str, str]]:
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            assert command is not None
            yield name, command.get_short_help_str(limit=200)
            if isinstance(command, click.Group):
                yield from descriptions(command)

    assert {name: text for name, text in descriptions(main) if len(text) > 55 or "..." in text} == {}


def test_a_default_is_printed_once() -> None:
    for words, command in damage_kit.commands(main):
        context = click.Context(command)
        for parameter in command.get_params(context):
            record = parameter.get_help_record(context)
            assert not record or record[1].count("[default: ") <= 1, (words, record)


def test_every_command_and_option_stands_in_it() -> None:
    reference_text = WRITTEN.read_text(encoding="utf-8")
    checked_options = 0

    def look(command: click.Command, path: str) -> None:
        nonlocal checked_options
        assert path == "t5prep" or f"# {path}\n" in reference_text, path
        for parameter in command.params:
            assert (
                not isinstance(parameter, click.Option) or parameter.hidden or f"`{parameter.opts[0]}" in reference_text
            ), (path, parameter.opts)
            checked_options += 1
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                subcommand = command.get_command(context, name)
                assert subcommand is not None
                look(subcommand, f"{path} {name}")

    look(main, "t5prep")
    assert checked_options > 200


def test_examples_are_spelled_right() -> None:
    """The example of every command is parsed by the command itself."""
    import readme

    examples = [line for line in WRITTEN.read_text(encoding="utf-8").splitlines() if line.startswith("t5prep ")]
    example_count = 0
    for line in examples:
        if "[" in line:  # usage
            continue
        for command in readme.commands(readme.Code("", "sh", line.partition(" > ")[0].partition("  #")[0])):
            readme.parse(main, command.arguments)
            example_count += 1
    assert example_count > 25
    assert CliRunner().invoke(main, ["prepare", "--help"]).exit_code == 0

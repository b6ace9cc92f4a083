"""README and docs in parts: their code blocks with their headings, the commands in them, and the output shown below them."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import click

ROOT = Path(__file__).parents[1]
# All pages that are written by hand. The reference is written from the commands, and has a test of its own; a decision
# record tells of its day, and names programs of that day.
PAGES = [
    ROOT / "README.md",
    *sorted(
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page.name != "reference.md" and page.parent.name != "decisions"
    ),
]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)

# The one visible way to say that a block is not run: its first line.
UNRUN = "# not run by a test: "
# And the way to say which other test runs it.
ELSEWHERE = "# run by tests/"


def extras() -> list[str]:
    """Return the names of the extras that setup.py has."""
    return re.findall(r'^        "(\w+)": ', (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)


class Code(NamedTuple):
    """A code block: the heading above it, its language, its text, and the output that is shown right below it."""

    heading: str
    language: str
    text: str
    output: str = ""

    @property
    def unrun(self) -> bool:
        return self.text.startswith((UNRUN, ELSEWHERE))


class Command(NamedTuple):
    """A program with its arguments, and what is piped into it."""

    program: str
    arguments: list[str]
    stdin: str = ""


def codes(*languages: str) -> list[Code]:
    """The code blocks of these languages, in order."""
    blocks, heading = [], ""
    pattern = r"^#+ ([^\n]+)$|^```(\w*)\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?"
    for match in re.finditer(pattern, TEXT, re.MULTILINE | re.DOTALL):
        if match[1]:
            heading = match[1]
        elif match[2] in languages:
            blocks.append(Code(heading, match[2], match[3], match[4] or ""))
    return blocks


def commands(code: Code) -> list[Command]:
    """The commands of a shell block; `echo ... | t5prep ...` is one of them."""
    parsed_commands = []
    for line in code.text.replace("\\\n", " ").splitlines():
        line = re.sub(r"\s+# .*", "", line)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        for part in line.split(" && "):
            words = shlex.split(part)
            stdin = ""
            if "|" in words:
                index = words.index("|")
                assert words[0] == "echo", line
                stdin, words = " ".join(words[1:index]) + "\n", words[index + 1 :]
            parsed_commands.append(Command(words[0], words[1:], stdin))
    return parsed_commands


def override(arguments: list[str], *options: str) -> list[str]:
    """Return a command line with other values of some options, given as NAME VALUE; a further `--set` is added."""
    replaced = list(arguments)
    for option, value in zip(options[::2], options[1::2], strict=True):
        if option in replaced and option != "--set":
            replaced[replaced.index(option) + 1] = value
        else:
            replaced += [option, value]
    return replaced


def parse(command: click.Command, arguments: list[str]) -> None:
    """Reads a command line as the program does, and runs nothing. Raises click.UsageError."""
    context = command.make_context(command.name or "", list(arguments))
    if isinstance(command, click.Group):
        _, subcommand, remaining_arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert subcommand is not None
        parse(subcommand, remaining_arguments)

"""Every command that a sentence, a page or an example advises is one that the program takes."""

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import readme
from click.testing import CliRunner

from t5prep.cli import COMMANDS, _output, _terminal, main

# A command in a text, up to what can be no part of it: a backtick, two spaces, a mark of punctuation before a space.
_ADVISED = re.compile(rf"t5prep (?:{'|'.join(COMMANDS)})\b(?:\.\.\.|(?!  |[.,;)](?:\s|$))[^`<>\n])*")
# What stands in for something that only the moment knows.
_PLACES = {"TASK": "so_quality", "DATA": "data", "FILE": "file", "RUN": "run", "MODEL": "model", "PRICE": "1.5"}


def _texts(path: Path) -> Iterator[str]:
    """Every string of a module, `x` in the place of what is filled in; a page of HTML is one text."""
    if path.suffix == ".html":
        yield re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "x", path.read_text())
        return
    tree = ast.parse(path.read_text())
    if path.parent.name != "cli":  # whose docstrings are what --help prints; others are for those who read the code
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                node.body = node.body[1:]
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


@functools.cache
def advised() -> list[tuple[str, str]]:
    """Every advised command with the file that it stands in, and those of the README's sentences."""
    found: dict[str, str] = {}
    for folder in ("t5prep", "pipelines"):
        for path in sorted(readme.ROOT.joinpath(folder).rglob("*")):
            if path.suffix in (".py", ".html"):
                for text in _texts(path):
                    found |= {_unquoted(match.group().strip()): path.name for match in _ADVISED.finditer(text)}
    sentences = re.findall(r"`(t5prep [^`]+)`", re.sub(r"```.*?```", "", readme.TEXT, flags=re.DOTALL))
    found |= {" ".join(command.split()): "README.md" for command in sentences}
    return [(where, command) for command, where in found.items() if _is_command(command)]


def _unquoted(command: str) -> str:
    """Return a command without the quote that closes the text around it: `ssh --command='t5prep doctor'`."""
    return command[:-1] if command.endswith("'") and command.count("'") % 2 else command


def _is_command(text: str) -> bool:
    """Whether a text has more than a command's name, as a sentence that only speaks of it has not."""
    words = text.split()
    speaks_of_an_option = words[-1] in ("--predictions", "--json")
    return len(words) > 2 and any(word.startswith("-") for word in words) and not speaks_of_an_option


@pytest.mark.parametrize(("where", "text"), advised(), ids=str)
def test_what_is_advised_is_taken(where: str, text: str) -> None:
    """Its options are there, with values that they take; where it does not end in `...`, nothing that it needs is missing."""
    words = [_PLACES.get(word, word) for word in shlex.split(text)[1:]]
    unfinished = "..." in words
    words = [word for word in words if word != "..."]
    if words[:2] == ["prepare", "x"]:
        words[1] = "so_quality"
    try:
        readme.parse(main, words)
    except click.exceptions.Exit:
        assert words[-1] in ("--help", "--settings")
    except click.MissingParameter as missing:
        if not unfinished:
            pytest.fail(f"{where}: {text}: {missing.format_message()}")


def test_there_is_advice() -> None:
    commands = {text.split()[1] for _, text in advised()}
    assert len(advised()) >= 25
    assert commands >= {"prepare", "plan", "eval", "export", "predict", "tokenizer", "train"}


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("eval --model runs/one runs/two", "Name it with its option: --model ..."),
        ("train data/one --out run", "Name it with its option: --data ..."),
        ("train --epochs 3 --out run", "epochs is a setting: --set epochs=3"),
    ],
)
def test_a_slip_of_the_first_hour_is_told_what_to_type(line: str, advice: str) -> None:
    done = CliRunner().invoke(main, line.split())
    assert (done.exit_code, advice in done.stderr) == (2, True), done.stderr


def test_a_style_that_is_off_writes_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert _terminal.visible(_output.colour("ok", bold=False, dim=False)) in ("ok", "ok\x1b[0m")

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
from raised import assert_error

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
    nodes = list(ast.walk(tree))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


@functools.cache
def advised() -> list[tuple[str, str]]:
    """Every advised command with the file that it stands in, and those of the README's sentences."""
    command_files: dict[str, str] = {}
    for folder in ("t5prep", "pipelines"):
        for path in sorted(readme.ROOT.joinpath(folder).rglob("*")):
            # Parsing each module would take seconds of each run of the tests, of whatever file.
            if path.suffix in (".py", ".html") and "t5prep " in path.read_text():
                for text in _texts(path):
                    command_files |= {_unquoted(match.group().strip()): path.name for match in _ADVISED.finditer(text)}
    sentences = re.findall(r"`(t5prep [^`]+)`", re.sub(r"```.*?```", "", readme.TEXT, flags=re.DOTALL))
    command_files |= {" ".join(command.split()): "README.md" for command in sentences}
    return [(file_name, command) for command, file_name in command_files.items() if _is_command(command)]


def _unquoted(command: str) -> str:
    """Return a command without the quote that closes the text around it: `ssh --command='t5prep doctor'`."""
    return command[:-1] if command.endswith("'") and command.count("'") % 2 else command


def _is_command(text: str) -> bool:
    """Whether a text has more than a command's name, as a sentence that only speaks of it has not."""
    words = text.split()
    speaks_of_an_option = words[-1] in ("--predictions", "--json")
    return len(words) > 2 and any(word.startswith("-") for word in words) and not speaks_of_an_option


def test_what_is_advised_is_taken() -> None:
    """One test, because each process of pytest would parse all modules to name the cases."""
    assert not [wrong for file_name, text in advised() if (wrong := _what_is_wrong(file_name, text))]


def _what_is_wrong(file_name: str, text: str) -> str:
    """Return what is wrong with a command: an option that is not there, a value that it does not take.

    Where it does not end in `...`, something that it needs may also be missing.
    """
    words = [_PLACES.get(word, word) for word in shlex.split(text)[1:]]
    unfinished = "..." in words
    words = [word for word in words if word != "..."]
    if words[:2] == ["prepare", "x"]:
        words[1] = "so_quality"
    try:
        readme.parse(main, words)
    except click.exceptions.Exit:
        return "" if words[-1] in ("--help", "--settings") else f"{file_name}: {text}: it ends at once"
    except click.MissingParameter as missing:
        return "" if unfinished else f"{file_name}: {text}: {missing.format_message()}"
    except click.UsageError as wrong:
        return f"{file_name}: {text}: {wrong.format_message()}"
    return ""


def test_there_is_advice() -> None:
    commands = {text.split()[1] for _, text in advised()}
    assert len(advised()) >= 25
    assert commands >= {"prepare", "plan", "eval", "export", "predict", "tokenizer", "train"}


# The commands that run the code of a folder, or of a module: their users read its sentences. Longer paths count first.
READERS = ("prepare", "predict", "embed", "filter", "tokenizer check", "tokenizer train")
RUN_BY: dict[str, tuple[str, ...]] = {
    "t5prep/reading": READERS,
    "t5prep/reading/columns.py": ("filter", "tokenizer check", "tokenizer train"),
    "t5prep/sources": READERS,
    "t5prep/sources/split_names.py": ("prepare",),
    "t5prep/preparation": ("prepare",),
    "t5prep/preparation/row_trace.py": ("why",),
    "t5prep/preparation/source_rows.py": ("why", "table"),
    "t5prep/dataset/settings.py": ("prepare",),
    "t5prep/dataset/upload.py": ("upload",),
    "t5prep/dataset/record_table.py": ("table",),
    "t5prep/tasks/filters": ("prepare", "filter"),
    "t5prep/tasks/corpora/text2text.py": ("prepare text2text",),
    "t5prep/training/embed": ("embed",),
    "t5prep/training/predict/prediction_inputs.py": ("predict", "embed"),
    "t5prep/training/predict/answer_files.py": ("predict",),
    "t5prep/training/predict/predictions.py": ("predict",),
    "t5prep/options/generation.py": ("predict", "eval"),
    "t5prep/training/publish/export.py": ("export",),
    "t5prep/training/settings": ("train",),
    "t5prep/training/step": ("train", "plan"),
    "t5prep/training/trainer.py": ("train",),
    "pipelines/train_tokenizer.py": ("tokenizer train",),
    "pipelines/prepare.py": ("prepare",),
    "pipelines/estimates.py": ("prepare",),
}
# Options that a sentence names with the command that has them, or with another program.
NAMED_WITH_THEIR_OWNER = {
    "t5prep/preparation/earlier_datasets.py": {"--dedup-against"},
    # `prepare` changed the run's texts by --filter; `embed` gives an option of its own in place of --as-text.
    "t5prep/training/predict/prediction_inputs.py": {"--filter", "--as-text"},
    "t5prep/training/trainer.py": {"--target"},  # of `prepare`, which the sentence names
    "t5prep/options/generation.py": {"--answers"},  # of `predict` alone
    **{
        key: {"--filter"} for key in ("t5prep/tasks/filters/chain.py", "t5prep/tasks/filters/rules.py")
    },  # what is judged
    "t5prep/training/publish/export.py": {"--filter", "--no-deps"},
    "t5prep/training/step/memory_advice.py": {"--input-length"},
    # With prepare one says what each file is; the other commands have one split to choose.
    "t5prep/reading/source_files.py": {"--skip-files", "--split-files", "--split"},
    # Of several sources, of pairs of files, and of files without an ending: only `prepare` has them.
    **{
        key: {"--source"}
        for key in ("t5prep/reading/blocks.py", "t5prep/reading/formats.py", "t5prep/sources/__init__.py")
    },
}


def options_of(command: click.Command, prefix: str = "") -> dict[str, set[str]]:
    """The options of a command and of those in it, by their names."""
    if not isinstance(command, click.Group):
        return {prefix: {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}}
    context, options_by_command = click.Context(command), dict[str, set[str]]()
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        options_by_command |= options_of(inner, f"{prefix} {name}".strip())
    return options_by_command


@functools.cache
def bare_options() -> list[tuple[str, str]]:
    """Every option that a string of a module names without a command before it, with the module."""
    mentions = set()
    for folder in ("t5prep", "pipelines"):
        for path in sorted(readme.ROOT.joinpath(folder).rglob("*.py")):
            module_path = path.relative_to(readme.ROOT).as_posix()
            for text in _texts(path):
                unadvised_text = _ADVISED.sub(" ", text)
                mentions |= {
                    (module_path, option)
                    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])", unadvised_text)
                }
    return sorted(mentions)


def test_an_option_in_a_sentence_is_one_of_every_command_that_says_it() -> None:
    """`predict` advised `--delimiter`, which it did not have: whoever runs a folder's code can type what it names."""
    options, wrong = options_of(main), list[str]()
    for module_path, option in bare_options():
        owner = max(
            (path for path in RUN_BY if module_path == path or module_path.startswith(f"{path}/")), key=len, default=""
        )
        if not owner or option in NAMED_WITH_THEIR_OWNER.get(module_path, ()) or re.search(r"--x|-x$", option):
            continue
        for command in RUN_BY[owner]:
            has = [
                command_options
                for name, command_options in options.items()
                if name == command or name.startswith(f"{command} ")
            ]
            assert has, command
            if not any(option in command_options for command_options in has):
                wrong.append(f"{module_path} names {option}, which t5prep {command} lacks")
    assert not wrong


@pytest.mark.parametrize(
    ("line", "code", "advice"),
    [
        ("eval --model runs/one runs/two", "option.unexpected-argument", "--model ..."),
        ("train data/one --out run", "option.unexpected-argument", "--data ..."),
        ("train --epochs 3 --out run", "option.unknown", "--set epochs=3"),
    ],
)
def test_a_slip_of_the_first_hour_is_told_what_to_type(line: str, code: str, advice: str) -> None:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 2
    assert_error(result.stderr, code, advice)


def test_a_style_that_is_off_writes_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert _terminal.visible(_output.colour("ok", bold=False, dim=False)) in ("ok", "ok\x1b[0m")

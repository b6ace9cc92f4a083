"""What all commands have in common: versions, completion, colour, exit codes, and one sentence for what fails."""

import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from raised import assert_error, refused

from t5prep import __version__
from t5prep.cli import _failing, main
from t5prep.errors import DatasetError
from t5prep.io import byte_sizes


def test_versions_that_matter() -> None:
    first, second = CliRunner().invoke(main, ["--version"]).output.splitlines()
    assert first == f"t5prep {__version__}"
    assert f"Python {sys.version.split()[0]}" in second
    assert "apache-beam 2." in second
    assert "sentencepiece 0." in second


def test_help_and_versions_load_nothing_heavy() -> None:
    code = (
        "import sys; from t5prep.cli import main\n"
        "for line in (['--help'], ['--version'], ['doctor', '--help'], ['report', '--help'], ['diff', '--help']):\n"
        "    main(line, standalone_mode=False)\n"
        "print(sorted({'apache_beam', 'tensorflow', 'transformers', 'matplotlib', 'jax', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_crash_shows_where_it_was() -> None:
    code = (
        "import ctypes; from t5prep.cli import main; from t5prep.cli import task_commands\n"
        "task_commands.tasks_command.callback = lambda **options: ctypes.string_at(0)\nmain(['tasks'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in ran.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_its_shell_reads(shell: str, tmp_path: Path) -> None:
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0
    assert f"_T5PREP_COMPLETE={shell}_complete" in script.output
    if shell_path := shutil.which(shell):  # bash is everywhere; that the others read it is seen where they are
        (tmp_path / "script").write_text(script.output)
        subprocess.run([shell_path, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("t5prep dif", ["diff"]), ("t5prep prepare so_q", ["so_quality"]), ("t5prep diff --js", ["--json"])],
)
def test_what_tab_offers(typed: str, offered: list[str]) -> None:
    words = typed.split()
    environment = {"_T5PREP_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(main, [], prog_name="t5prep", env=environment)
    assert [line.partition(",")[2] for line in result.output.splitlines()] == offered


@pytest.mark.parametrize(("no_colour", "coloured"), [(None, True), ("1", False)])
def test_colour_is_for_terminals_that_want_it(no_colour: str | None, coloured: bool) -> None:
    code = "from t5prep.cli import _output; print(_output.colour('x', bold=True))"
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    if no_colour:
        environment["NO_COLOR"] = no_colour
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    assert ("\x1b" in os.read(ours, 100).decode()) == coloured
    os.close(ours)
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert piped.stdout == b"x\n"


INSTALL = "pip install -e '.[train]' -c .ci/pins.txt"
# As TensorFlow's own, which takes seconds to import.
OfTensorFlow = type("UnknownError", (Exception,), {"__module__": "tensorflow.python"})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DatasetError("no manifest", code="dataset.missing-manifest"), ("dataset.missing-manifest", "no manifest")),
        (ModuleNotFoundError("x", name="tensorflow.python"), ("install.extra-missing", INSTALL)),
        (ModuleNotFoundError("x", name="jax"), ("install.extra-missing", INSTALL)),
        (PermissionError(13, "Permission denied", "a.csv"), ("file.inaccessible", "a.csv", "Permission denied")),
        (OSError("disk on fire"), ("file.inaccessible", "Disk on fire")),
        (RuntimeError("can't start new thread"), ("pipeline.out-of-memory", "ulimit -u")),
        (RuntimeError("Resource temporarily unavailable"), ("pipeline.out-of-memory", "ulimit -u")),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), ("file.invalid-name", "UTF-8")),
        (
            OfTensorFlow("run/checkpoint.json; Input/output error"),
            ("file.inaccessible", "run/checkpoint.json; Input/output error"),
        ),
    ],
)
def test_what_is_no_bug_is_one_sentence(error: Exception, expected: tuple[str, ...]) -> None:
    shown_error = _failing.sentence(error)
    assert shown_error is not None
    assert_error(shown_error.message, *expected)
    assert shown_error.exit_code == 1


def test_a_signal_while_the_command_line_is_read_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """click itself would say "Aborted!"."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "parse_args", interrupted)
    refused("terminal.interrupted", command=("verify", "data"))


def test_an_error_ends_the_process_at_once_where_jax_may_compute() -> None:
    """A training that a signal stopped was once seen to abort while Python took XLA down."""
    code = (
        "import atexit, sys, types; from t5prep.cli import _failing; from t5prep.errors import T5prepError;"
        "atexit.register(print, 'taken down'); sys.modules.update({'jax': types.ModuleType('jax')} if sys.argv[1:] else {});"
        "error = _failing.sentence(T5prepError('Stopped by SIGTERM', code='run.interrupted')); error.show(); sys.exit(error.exit_code)"
    )
    for loaded, printed in ([], "taken down\n"), (["jax"], ""):
        result = subprocess.run([sys.executable, "-c", code, *loaded], capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (
            1,
            printed,
            "Error: Stopped by SIGTERM [run.interrupted]\n",
        )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        ModuleNotFoundError("x", name="t5prep.typo"),
        KeyError("x"),
        BrokenPipeError(32, "pipe"),
        OfTensorFlow("x"),
    ],
)
def test_a_bug_stays_a_bug(error: Exception) -> None:
    assert _failing.sentence(error) is None


def test_a_task_without_a_source_asks_for_one() -> None:
    result = CliRunner().invoke(main, ["prepare", "text2text", "--tokenizer", "sample:", "--out", "x"])
    assert result.exit_code == 2
    assert "--source" in result.output


def test_sizes() -> None:
    assert [byte_sizes.text(size) for size in (0, 999, 1000, 2.5e12)] == ["0 bytes", "999 bytes", "1.0 kB", "2.5 TB"]
    assert isinstance(main, click.Group)

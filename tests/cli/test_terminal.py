"""What reaches a terminal takes no hold of it, and stopping a command is one sentence."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import damage_kit
import pytest
from click.testing import CliRunner
from raised import assert_error
from small_corpora import prepared, questions, write_csv

from t5prep.cli import _terminal, main
from t5prep.dataset.verify import verify

NASTY = "\x1b]0;title\x07\x1b[2Jid\u202e\x9b1m\x1b[30m"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [dict(row, Id=f"{NASTY}{n}", Title=f"a {NASTY}") for n, row in enumerate(questions(20))]
    prepared(write_csv(tmp_path / "rows.csv", rows), tmp_path / "data", tokenizer="sample:")
    return tmp_path / "data"


@pytest.mark.parametrize("command", ["inspect", "inspect --json", "report", "diff", "prepare", "missing"])
def test_no_control_character_is_printed(tmp_path: Path, data: Path, command: str) -> None:
    out_path = tmp_path / f"out{NASTY}"
    words = {
        "report": ["report", str(data), "--out", str(tmp_path / f"page{NASTY}.html")],
        "diff": ["diff", str(data), str(_another(tmp_path))],
        "prepare": ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", str(out_path)],
        "missing": ["verify", str(tmp_path / NASTY)],
    }.get(command, [*command.split(), str(data)])
    result = CliRunner().invoke(main, words)
    output = result.output + result.stderr
    assert "\\u001b" in output or "\\x1b" in output
    assert not [character for character in output if not character.isprintable() and character not in "\n\t"]
    if command == "inspect --json":
        assert NASTY in json.loads(result.stdout)["records"][0]["id"]


def test_a_colour_is_ours_alone() -> None:
    """A class whose name is written black would hide what follows on a black terminal."""
    visible_text = _terminal.visible(_terminal.styled("\x1b[30ma\x1b[0m", fg="red", bold=True) + "\x1b[2mb")
    assert visible_text == "\x1b[31m\x1b[1m\\u001b[30ma\\u001b[0m\x1b[0m\\u001b[2mb"


def _another(folder: Path) -> Path:
    rows = [dict(row, Id=f"{NASTY}b{n}") for n, row in enumerate(questions(20))]
    prepared(write_csv(folder / f"b{NASTY}.csv", rows), folder / "b", tokenizer="sample:")
    return folder / "b"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_preparation_is_a_sentence_and_the_same_command_goes_on(tmp_path: Path, number: int) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(6000, words=200))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "t5prep.cli", "prepare", "so_quality", "--source", str(source)]
    command += ["--tokenizer", "sample:", "--out", str(out), "--workers", "2"]
    environment = {**os.environ, "T5PREP_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.getcwd()}
    run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not out.exists() and run.poll() is None:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGSTOP)  # however long this test then waits for a core, the work is under way
    os.killpg(run.pid, number) if number == signal.SIGINT else run.send_signal(number)
    os.killpg(run.pid, signal.SIGCONT)
    error_output = run.communicate(timeout=600)[1]
    assert run.returncode == 1
    (error,) = [line for line in error_output.splitlines() if "SentencePiece tokenizes" not in line]
    assert_error(error, "terminal.interrupted")
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert sum(split.records for split in verify(out).splits.values()) == 6000


@pytest.mark.parametrize(
    "words", [["prepare", "so_quality", "--tokenizer", "sample:"], ["tokenizer", "train", "--column", "Body"]]
)
def test_a_second_signal_at_once_is_no_more_than_the_sentence_of_the_first(tmp_path: Path, words: list[str]) -> None:
    """Neither a traceback of a worker, nor a warning of the process that watches semaphores, until the last one ends."""
    source = write_csv(tmp_path / "rows.csv", questions(6000, words=200))
    command = [sys.executable, "-m", "t5prep.cli", *words, "--source", str(source), "--workers", "2"]
    command += ["--out", str(tmp_path / "out")]
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as short:  # the sockets of the workers would not fit into a longer name
        environment = {**os.environ, "T5PREP_CACHE": str(tmp_path / "cache"), "TMPDIR": short}
        run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
        while not list(Path(short).glob(".unfinished-t5prep-*/pymp-*/listener-*")):
            assert run.poll() is None
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGSTOP)  # both signals are there when it goes on
        run.send_signal(signal.SIGTERM)
        os.killpg(run.pid, signal.SIGINT)
        os.killpg(run.pid, signal.SIGCONT)
        error_output = run.communicate(timeout=600)[1]
    assert run.returncode in (1, -signal.SIGINT)
    errors = [line for line in error_output.splitlines() if "SentencePiece tokenizes" not in line]
    assert len(errors) <= 1, error_output
    for error in errors:
        assert_error(error, "terminal.interrupted")


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("import heavy", signal.SIGTERM),
        ("exec(compile(open(heavy).read(), '/tensorflow/python/heavy.py', 'exec'))", signal.SIGINT),
    ],
)
def test_a_signal_during_an_import_or_in_tensorflow_is_obeyed_after_it(
    tmp_path: Path, statement: str, number: int
) -> None:
    """Of a KeyboardInterrupt there, jax's C++ made an error of its own, and TensorFlow's crashed while it traced a model."""
    (tmp_path / "heavy.py").write_text(
        "import os, time\nprint('begun', flush=True)\n"
        f"while not os.path.exists({str(tmp_path / 'sent')!r}):\n    time.sleep(0.01)\nprint('ended', flush=True)"
    )
    code = (
        f"import sys, time; sys.path.append({str(tmp_path)!r}); heavy = {str(tmp_path / 'heavy.py')!r}\n"
        f"from t5prep.cli import main, task_commands\ndef command(**options):\n    {statement}\n    time.sleep(600)\n"
        "task_commands.tasks_command.callback = command; main(['tasks'])"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    run.send_signal(number)
    (tmp_path / "sent").touch()
    output, error_output = run.communicate(timeout=300)
    assert (run.returncode, output, len(error_output.splitlines())) == (1, "ended\n", 1)
    assert_error(error_output, "terminal.interrupted")


def test_streams_that_are_closed_are_no_traceback(data: Path) -> None:
    for closed in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        result = subprocess.run(
            f"{shlex.quote(sys.executable)} -m t5prep.cli verify {shlex.quote(str(data))} {closed}",
            shell=True,
            capture_output=True,
            text=True,
        )
        assert (result.returncode, result.stderr) == (0, ""), closed


@pytest.mark.parametrize(
    "address", ["gs://user:secret@bucket/data", "gs://user:secret@bucket", "https://user:secret@localhost:1/a.csv"]
)
def test_a_password_in_an_address_is_not_repeated(tmp_path: Path, address: str) -> None:
    common = ["--tokenizer", "sample:", "--out", str(tmp_path / "out")]
    for words in (
        ["prepare", "so_quality", "--source", address, *common],
        ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", address],
        ["verify", address],
        ["upload", str(tmp_path), address],
    ):
        with damage_kit.alone(tmp_path):
            result = CliRunner().invoke(main, words)
        assert result.exit_code in (1, 2)
        assert "secret" not in result.output + result.stderr, words

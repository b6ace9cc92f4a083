"""What a person meets who mistypes: what was meant is named, at once, without a look at the network."""

import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_corpora import prepared, questions, write_csv

from t5prep.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def feedback_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset data/feedback, a run runs/feedback, a tokenizer data/words, and no network."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nobody asked for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.chdir(tmp_path)
    write_csv(Path("feedback.csv"), questions(20))
    prepared("feedback.csv", Path("data/feedback"), tokenizer="sample:")
    Path("runs/feedback").mkdir(parents=True)
    Path("data/words").mkdir()


TEXTS = "prepare text2text --source feedback.csv --inputs-column Title --targets-column Y --out data/x"


@pytest.mark.parametrize(
    ("line", "code", "expected"),
    [
        ("prepar so_quality", 2, 'There is no command "prepar". Did you mean "prepare"?'),
        ("prepare --source x so_quality", 2, "the task: t5prep prepare TASK --source ..."),
        ("prepare so_qualty --source x --tokenizer sample: --out y", 1, 'Did you mean "so_quality"?'),
        (f"{TEXTS} --tokenizer sample", 1, 'Did you mean "sample:"'),
        (f"{TEXTS} --tokenizer sampel:", 1, 'Did you mean "sample:"'),
        (f"{TEXTS} --tokenizer data/wrods", 1, 'data/wrods does not exist. Did you mean "data/words"?'),
        (f"{TEXTS.replace('feedback', 'feedbak')} --tokenizer sample:", 1, 'Did you mean "feedback.csv"?'),
        (f"{TEXTS.replace('Title', 'Titel')} --tokenizer sample:", 1, 'no column "Titel"; it has Id, Title, Body, Y'),
        ("inspect data/feedbak", 1, 'data/feedbak does not exist. Did you mean "data/feedback"?'),
        ("inspect data/feedback --split trian", 1, 'Did you mean "train"?'),
        ("verify data", 1, "data/feedback"),
        ("report feedback.csv", 1, "feedback.csv is a file"),
        ("report nothing/at/all", 1, "nothing/at/all does not exist. Name a prepared dataset, or a training run."),
        (
            "predict --model runs/feedback feedbak.csv",
            1,
            "feedbak.csv does not exist. Name a file, a directory, or a glob in",
        ),
        ("predict --model runs/feedbak", 1, 'runs/feedbak does not exist. Did you mean "runs/feedback"?'),
        ("eval --model runs/feedbak --data data/feedback", 1, 'Did you mean "runs/feedback"?'),
        ("eval --model data/feedback --data data/feedback", 1, "data/feedback is a prepared dataset"),
        ("export --model runs/feedbak --out m", 1, 'Did you mean "runs/feedback"?'),
        ("train --recipe tinny --data data/feedback --out r", 1, 'Did you mean "tiny"?'),
        ("train --recipe tiny --data data/feedback --out r --set learnig_rate=3", 1, 'Did you mean "learning_rate"?'),
    ],
)
def test_what_was_meant(feedback_files: None, line: str, code: int, expected: str) -> None:
    result = CliRunner().invoke(main, line.split(), input="a line\n", catch_exceptions=False)
    assert expected in result.output
    assert result.exit_code == code


def test_rows_that_mostly_make_no_example_are_warned_of(feedback_files: None) -> None:
    manifest = prepared(
        "feedback.csv", Path("data/y"), tokenizer="sample:", task="text2text",
        options={"inputs_column": "Title", "targets_column": "Body", "id_column": "Y"},
    )  # fmt: skip
    rejected, ids = manifest.warnings
    assert rejected.startswith(
        "85% of all rows were rejected, most often for: duplicate id (17): kept is feedback.csv:"
    )
    assert "If the ids in Y begin anew in each file, leave --id-column out" in ids


def test_who_types_at_a_terminal_is_told_how_to_end(feedback_files: None) -> None:
    """Without a word, `predict` alone would seem to hang."""
    ours, terminal = pty.openpty()
    with os.fdopen(ours, "wb"), os.fdopen(terminal) as stdin:
        os.write(ours, b"\x04")
        ran = subprocess.run(
            [sys.executable, "-m", "t5prep.cli", "predict", "--model", "runs/feedbak"],
            stdin=stdin, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert ran.stderr.startswith("Type one input per line, and end with Ctrl-D")
    assert "Traceback" not in ran.stderr

"""What a person meets who mistypes: what was meant is named, at once, without a look at the network."""

import os
import pty
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from raised import assert_error
from small_corpora import prepared, questions, write_csv

from t5prep.cli import main


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
    ("line", "exit_code", "error"),
    [
        ("prepar so_quality", 2, ("option.unknown-command", '"prepar"', '"prepare"')),
        ("prepare --source x so_quality", 2, ("option.misplaced", "t5prep prepare TASK --source ...")),
        ("prepare so_qualty --source x --tokenizer sample: --out y", 1, ("task.unknown", '"so_quality"')),
        (f"{TEXTS} --tokenizer sample", 1, ("tokenizer.not-found", '"sample:"')),
        (f"{TEXTS} --tokenizer sampel:", 1, ("tokenizer.not-found", '"sample:"')),
        (f"{TEXTS} --tokenizer data/wrods", 1, ("tokenizer.not-found", "data/wrods", '"data/words"')),
        (f"{TEXTS.replace('feedback', 'feedbak')} --tokenizer sample:", 1, ("source.not-found", '"feedback.csv"')),
        (
            f"{TEXTS.replace('Title', 'Titel')} --tokenizer sample:",
            1,
            ("column.missing", '"Titel"', "Id, Title, Body, Y"),
        ),
        ("inspect data/feedbak", 1, ("dataset.not-found", "data/feedbak", '"data/feedback"')),
        ("inspect data/feedback --split trian", 1, ("split.unknown", '"trian"', '"train"')),
        ("verify data", 1, ("dataset.missing-manifest", "data/feedback")),
        ("report feedback.csv", 1, ("dataset.folder-expected", "feedback.csv")),
        ("report nothing/at/all", 1, ("dataset.not-found", "nothing/at/all")),
        ("predict --model runs/feedback feedbak.csv", 1, ("source.not-found", "feedbak.csv")),
        ("predict --model runs/feedbak", 1, ("model.not-found", "runs/feedbak", '"runs/feedback"')),
        ("eval --model runs/feedbak --data data/feedback", 1, ("model.not-found", '"runs/feedback"')),
        ("eval --model data/feedback --data data/feedback", 1, ("model.dataset-folder", "data/feedback")),
        ("export --model runs/feedbak --out m", 1, ("model.not-found", '"runs/feedback"')),
        ("train --recipe tinny --data data/feedback --out r", 1, ("recipe.unknown", '"tinny"', '"tiny"')),
        (
            "train --recipe tiny --data data/feedback --out r --set learnig_rate=3",
            1,
            ("setting.unknown", '"learnig_rate"', '"learning_rate"'),
        ),
    ],
)
def test_what_was_meant(feedback_files: None, line: str, exit_code: int, error: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, line.split(), input="a line\n", catch_exceptions=False)
    assert result.exit_code == exit_code
    assert_error(result.stderr, *error)


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


def test_who_types_at_a_terminal_is_told_how_to_end(
    feedback_files: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a word, `predict` alone would seem to hang."""
    ours, terminal = pty.openpty()
    with os.fdopen(ours, "wb"), os.fdopen(terminal) as stdin:
        os.write(ours, b"\x04")
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit):
            main(["predict", "--model", "runs/feedbak"])
    messages = capsys.readouterr().err.splitlines()
    assert messages[0].startswith("Type one input per line, and end with Ctrl-D")
    assert_error(messages[-1], "model.not-found")

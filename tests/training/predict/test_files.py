"""Two runs that write the same file of answers: neither loses what the other has written."""

import errno
import fcntl
from pathlib import Path
from typing import Any

import pytest
from raised import raises, refused

from t5prep.errors import OutputError
from t5prep.training.predict.answer_files import AnswerFile


def test_a_run_that_ends_between_opening_and_locking_keeps_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, lock = tmp_path / "answers.txt", fcntl.flock
    first = AnswerFile(out, identity={"model": 1})
    first.add("one\n", answer_count=1, counts={})

    def late(file: Any, operation: int) -> None:
        first.finish("two\n", counts={})
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with raises(OutputError, "output.locked"):
        AnswerFile(out, identity={"model": 1})
    assert out.read_text() == "one\ntwo\n"
    assert [path.name for path in tmp_path.iterdir()] == ["answers.txt"]


def test_on_a_file_system_without_locks_answers_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    AnswerFile(tmp_path / "answers.txt", identity={}).finish("one\n", counts={})
    assert (tmp_path / "answers.txt").read_text() == "one\n"


@pytest.mark.parametrize("path", ["/", "."])
def test_a_directory_is_no_place_for_answers(path: str) -> None:
    with raises(OutputError, "output.directory"):
        AnswerFile(Path(path), identity={})


def test_a_run_without_answers_removes_its_file_while_it_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "answers.txt"
    first = AnswerFile(out, identity={"model": 1})
    unlink = Path.unlink

    def looked_at(path: Path, **options: bool) -> None:
        with raises(OutputError, "output.locked"):
            AnswerFile(out, identity={"model": 1})
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", looked_at)
    first.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--scores"], ["--scores", "--to jsonl"]),
        (["--scores", "--out", "a.txt"], ["--scores", "--to jsonl"]),
        (["--answers", "3", "--beams", "3"], ["--answers 3", "--to jsonl"]),
        (["--answers", "3", "--to", "csv"], ["--answers 3", " csv ", "--to jsonl"]),
    ],
)
def test_a_format_that_cannot_hold_what_is_asked_for_is_refused(options: list[str], values: list[str]) -> None:
    command = ("predict", "rows.csv", "--model", "run", *options)
    refused("option.missing-prerequisite", *values, command=command)

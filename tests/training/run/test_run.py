"""The files of a run: those of a start that came to no checkpoint are replaced, those of a run that goes on are not."""

import os
import re
from pathlib import Path

import pytest
from raised import raises

from t5prep.errors import OutputError
from t5prep.io import atomic_files
from t5prep.tokens import loading
from t5prep.training.run import run
from t5prep.training.settings import train_config


def _begin(out: Path, *, seed: int, resumes: bool = False) -> None:
    settings = train_config.build({"model": "m", "data": ("d",), "out": str(out), "seed": seed})
    sample = loading.load("sample:")
    run.begin(str(out), config=settings, shape=run.TINY, tokenizer=sample, datasets=(), resumes=resumes)


def test_a_start_that_came_to_no_checkpoint_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    _begin(tmp_path, seed=1)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("tokenizer.json", "manifest-0.json", "manifest-1.json", "task-0.py", "config.json"):
        (tmp_path / name).write_text("of other data")
    (tmp_path / "metrics.jsonl").write_text("")
    _begin(tmp_path, seed=2, resumes=True)
    assert (tmp_path / "manifest-1.json").read_text() == "of other data"
    assert (tmp_path / "train.json").read_bytes() == first["train.json"]
    _begin(tmp_path, seed=2)
    second = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert second.pop("metrics.jsonl") == b""
    assert b'"seed": 2' in second["train.json"]
    assert {**second, "train.json": b""} == {**first, "train.json": b""}


def test_a_file_that_a_killed_start_was_writing_is_no_strangers(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-config.json-x1y2").write_text("{")
    _begin(tmp_path, seed=1)
    assert run.is_run(str(tmp_path))


def test_what_a_killed_process_left_of_a_runs_files_goes_and_what_others_write_stays(tmp_path: Path) -> None:
    partial_files = [
        f".unfinished-{name}-ab12_cd3" for name in ("config.json", "train.json", "manifest-0.json", "metrics.jsonl")
    ]
    foreign_files = [".unfinished-answers.jsonl", ".unfinished-answers.jsonl.json", ".unfinished-report.html-ab12_cd3"]
    for name in (*partial_files, *foreign_files):
        (tmp_path / name).write_text("half")
    with atomic_files.open_atomic(tmp_path / "metrics.jsonl") as file:  # by a process that lives
        file.write(b"{}")
        with run.lock_run(str(tmp_path)):
            living = [path.name for path in tmp_path.glob(".unfinished-metrics.jsonl-*")]
            assert len(living) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*foreign_files, "metrics.jsonl"])


def test_a_run_is_held_until_the_process_that_trains_it_ends(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "one"
    with run.lock_run(str(out)):
        (out / "train.json").write_text("{}")
        with (
            raises(OutputError, "output.locked"),
            run.lock_run(str(out)),
        ):
            pass
        with run.lock_run(str(tmp_path / "runs" / "two")):
            pass
    with run.lock_run(str(out)):
        pass
    assert [path.name for path in out.iterdir()] == ["train.json"]


def test_what_never_began_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), run.lock_run(str(tmp_path / "new")):
        raise ValueError("no")
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    with run.lock_run(str(tmp_path / "empty")):
        pass
    assert (tmp_path / "empty").is_dir()


def test_a_place_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in ("file", "file/run"):
        with (
            raises(OutputError, "output.unwritable"),
            run.lock_run(str(tmp_path / out)),
        ):
            pass


def test_a_pipe_in_a_strangers_run_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest-0.json")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "manifest-0.json"))):
        run.manifests_of_run(str(tmp_path))

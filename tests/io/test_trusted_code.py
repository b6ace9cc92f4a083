"""The list of code that this user has run: only his own, and nobody else may write it."""

import os
import stat
from pathlib import Path

import pytest
from raised import raises

from t5prep.errors import UsageError
from t5prep.io import trusted_code


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "t5prep"


def test_it_is_remembered_once_and_privately(state: Path) -> None:
    assert not trusted_code.is_known(b"TASK = 1")
    for code in (b"TASK = 1", b"TASK = 2", b"TASK = 1"):
        trusted_code.remember(code)
    assert trusted_code.is_known(b"TASK = 1")
    assert not trusted_code.is_known(b"TASK = 1 ")
    (path,) = state.iterdir()
    assert len(path.read_text().splitlines()) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_list_that_others_may_write_is_not_believed(state: Path, mode: int) -> None:
    trusted_code.remember(b"TASK = 1")
    next(state.iterdir()).chmod(mode)
    assert not trusted_code.is_known(b"TASK = 1")


def test_a_link_in_its_place_is_not_written_through(state: Path, tmp_path: Path) -> None:
    state.mkdir(parents=True)
    (tmp_path / "other").write_text("mine")
    os.symlink(tmp_path / "other", state / trusted_code.NAME)
    trusted_code.remember(b"TASK = 1")
    assert (tmp_path / "other").read_text() == "mine"


def test_where_nothing_can_be_written_it_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    trusted_code.remember(b"TASK = 1")
    with raises(UsageError, "task.untrusted-code", "make inputs", "run/task-0.py"):
        trusted_code.check(b"TASK = 1", path="run/task-0.py", use="make inputs", otherwise="", trusted=False)

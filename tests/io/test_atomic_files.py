"""Files appear whole, and what is not a file keeps its place."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from raised import raises

from t5prep.errors import OutputError
from t5prep.io import atomic_files


def test_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    """As /dev/null is one of: renaming a file over it, as root, breaks the machine."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
        reader.start()
        atomic_files.write_whole(tmp_path / name, b"told")
        reader.join(0 if not stat.S_ISFIFO(pipe.stat().st_mode) else 10)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert (tmp_path / "link").is_symlink()
    assert read == [b"told", b"told"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file_path = tmp_path / "new" / "file"
    atomic_files.write_whole(file_path, b"one")

    def half() -> None:
        with atomic_files.open_atomic(file_path) as file:
            file.write(b"two")
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        half()
    assert file_path.read_bytes() == b"one"
    assert [path.name for path in file_path.parent.iterdir()] == ["file"]
    with raises(OutputError, "output.unwritable"):
        atomic_files.write_whole(file_path.parent, b"a directory")


def test_what_a_killed_process_left_of_a_file_is_removed_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    stale_file = tmp_path / f"{atomic_files.UNFINISHED}answers.json-abcdefgh"
    foreign_file = tmp_path / f"{atomic_files.UNFINISHED}more.json-abcdefgh"
    stale_file.write_bytes(b"half"), foreign_file.write_bytes(b"half")
    with atomic_files.open_atomic(path) as file:
        file.write(b"all")
        atomic_files.check_writable(path, begins=b"")
        assert not stale_file.exists()
    assert path.read_bytes() == b"all"
    assert {*tmp_path.iterdir()} == {path, foreign_file}


def test_writing_a_file_anew_removes_what_a_killed_process_left_of_it_and_nothing_else(tmp_path: Path) -> None:
    path, prefix = tmp_path / "model.json", f"{atomic_files.UNFINISHED}model.json-"
    (tmp_path / "elsewhere").write_bytes(b"kept")
    (tmp_path / f"{prefix}linked00").symlink_to("elsewhere")
    (tmp_path / f"{prefix}twelvesigns").write_bytes(b"another name")
    os.mkfifo(tmp_path / f"{prefix}pipe0000")
    other_paths = {*tmp_path.iterdir()}
    (tmp_path / f"{prefix}abcdefgh").write_bytes(b"half")
    atomic_files.write_whole(path, b"all")
    assert {*tmp_path.iterdir()} == {path, *other_paths}
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"


KILLED = """
import os, sys
from t5prep.io import atomic_files
with atomic_files.{how} as place:
    print(place, flush=True)
    open(os.path.join(place, "big"), "w").close()
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    "expression", ["temporary_folder({0!r})", "whole_directory(__import__('pathlib').Path({0!r}, 'out'))"]
)
def test_a_folder_that_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path, expression: str) -> None:
    """A folder in which a living process works stays."""
    code = KILLED.format(how=expression.format(str(tmp_path)))
    start = [sys.executable, "-c", code]
    killed, living = (
        subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    try:
        folders = [Path(process.stdout.readline().strip()) for process in (killed, living)]  # type: ignore[union-attr]
        killed.kill(), killed.wait()
        assert folders[0].is_dir()
        name = folders[0].name.removeprefix(atomic_files.UNFINISHED).rpartition("-")[0]
        with atomic_files.temporary_folder(str(tmp_path), name=name) as new_folder:
            assert {path for path in tmp_path.iterdir() if path.is_dir()} == {folders[1], Path(new_folder)}
        living.communicate("", timeout=60)
        assert [path.name for path in tmp_path.iterdir()] == (["out"] if name == "out" else [])
    finally:
        living.kill(), living.wait()


def test_a_temporary_file_that_is_swept_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary_files, lock = [], fcntl.flock

    def sweep_first(handle: int, operation: int) -> None:
        if not temporary_files:
            temporary_files.extend(tmp_path.iterdir())
            temporary_files[0].unlink()
        lock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    atomic_files.write_whole(tmp_path / "file", b"all")
    assert (tmp_path / "file").read_bytes() == b"all"
    assert len(temporary_files) == 1


def test_a_temporary_folder_that_is_swept_before_it_is_opened_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two processes that begin together, one sweeps while the other makes its folder."""
    swept, make = [], tempfile.mkdtemp

    def sweep_first(**options: Any) -> str:
        folder = make(**options)
        if not swept:
            swept.append(folder)
            os.rmdir(folder)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", sweep_first)
    with atomic_files.temporary_folder(str(tmp_path)) as folder:
        assert [str(path) for path in tmp_path.iterdir()] == [folder]
    assert swept != [folder]

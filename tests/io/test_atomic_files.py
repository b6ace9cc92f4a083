"""Files appear whole, and what is not a file keeps its place."""

import os
import stat
import threading
from pathlib import Path

import pytest

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
    place = tmp_path / "new" / "file"
    atomic_files.write_whole(place, b"one")

    def half() -> None:
        with atomic_files.whole(place) as file:
            file.write(b"two")
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        half()
    assert place.read_bytes() == b"one"
    assert [path.name for path in place.parent.iterdir()] == ["file"]
    with pytest.raises(OutputError, match="cannot be written"):
        atomic_files.write_whole(place.parent, b"a directory")


def test_what_a_killed_process_left_of_a_file_is_removed_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    left = tmp_path / f"{atomic_files.UNFINISHED}answers.json-abcdefgh"
    other = tmp_path / f"{atomic_files.UNFINISHED}more.json-abcdefgh"
    left.write_bytes(b"half"), other.write_bytes(b"half")
    with atomic_files.whole(path) as file:
        file.write(b"all")
        atomic_files.check_writable(path, begins=b"")
        assert not left.exists()
    assert path.read_bytes() == b"all"
    assert {*tmp_path.iterdir()} == {path, other}

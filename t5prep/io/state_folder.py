"""Read and write the folder of facts about this user: $XDG_STATE_HOME/t5prep, else ~/.local/state/t5prep."""

import contextlib
import os
import stat
from pathlib import Path


def path_of(name: str) -> Path:
    """Return the path of a file in the state folder. Raises RuntimeError if this user has no home."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "t5prep" / name


def make() -> None:
    """Make the state folder, which only this user may enter. Raises OSError, or RuntimeError if this user has no home."""
    path_of("").mkdir(parents=True, exist_ok=True, mode=0o700)


def read(name: str, *, closed_to_others: int) -> bytes | None:
    """Return the content of the file `name` in the state folder; None if it cannot be read or trusted.

    It is not trusted if another user owns it, or if its mode has one of the bits `closed_to_others`, such as 0o022.
    """
    try:
        with open(path_of(name), "rb") as file:
            facts = os.fstat(file.fileno())
            ours = os.name != "posix" or (
                facts.st_uid == os.getuid() and not stat.S_IMODE(facts.st_mode) & closed_to_others
            )
            return file.read() if ours else None
    except (OSError, RuntimeError):
        return None


def append_line(name: str, line: str) -> None:
    """Append `line` to the file `name`, which only this user may read and write. If it cannot be written, do nothing."""
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: this user has no home
        make()
        handle = os.open(path_of(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, f"{line}\n".encode())  # one write with O_APPEND is atomic: parallel runs lose no line
        finally:
            os.close(handle)


def lines(name: str) -> frozenset[str]:
    """Return the lines that `append_line` wrote to `name`; none if other users may write the file."""
    content = read(name, closed_to_others=0o022)
    return frozenset((content or b"").decode(errors="replace").split())

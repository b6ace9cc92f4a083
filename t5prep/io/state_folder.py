"""Find what t5prep remembers of this user: $XDG_STATE_HOME/t5prep, else ~/.local/state/t5prep."""

import contextlib
import os
import stat
from pathlib import Path


def path_of(name: str) -> Path:
    """Return the path of a file in the state folder. Raises RuntimeError if this user has no home."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "t5prep" / name


def make() -> None:
    """Make the folder, which only this user may enter. Raises OSError, or RuntimeError if this user has no home."""
    path_of("").mkdir(parents=True, exist_ok=True, mode=0o700)


def read(name: str, *, closed_to_others: int) -> bytes | None:
    """Return the content of a file in the state folder.

    None if it cannot be read, if it is not this user's, or if others have one of the permissions
    `closed_to_others`, such as 0o022: it could then be somebody else's work.
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
    """Add a line to a file that only this user may read and write. Where it cannot be written, nothing happens."""
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: this user has no home
        make()
        handle = os.open(path_of(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, f"{line}\n".encode())  # one line by one write: runs side by side lose none
        finally:
            os.close(handle)


def lines(name: str) -> frozenset[str]:
    """Return the lines of such a file; none of a file that others may write, which is not believed."""
    content = read(name, closed_to_others=0o022)
    return frozenset((content or b"").decode(errors="replace").split())

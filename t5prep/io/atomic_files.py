"""Write files that appear whole or not at all."""

import contextlib
import fcntl
import glob
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from t5prep.errors import OutputError

# The prefix of unfinished files: readers ignore them, and the next run removes them.
UNFINISHED = ".unfinished-"


@contextlib.contextmanager
def open_atomic(path: Path, *, option: str = "--out", sweep: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write; it takes its name only when all of it is on disk, and on any error nothing is left.

    `option` is the command-line option that named the place. `sweep` removes what killed processes left of this file; who
    writes thousands of files into one folder sweeps that once.
    A path that is not a regular file, such as /dev/null or a pipe, is written directly, because others use it by its name.
    Raises OutputError if the disk is full or the place cannot be written.
    """
    temporary = None
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            with open(path, "wb") as file:
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if sweep:
            remove_left(path.parent, glob.escape(path.name))
        handle, temporary = _make_locked(lambda: tempfile.mkstemp(prefix=f"{UNFINISHED}{path.name}-", dir=path.parent))
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes private files, but others read a dataset
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise OutputError(explain(error, path, option=option)) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def lock(handle: int, *, busy: str) -> None:
    """Lock an open file or folder until it is closed, which the end of the process does too; some file systems have no locks.

    Raises OutputError with the sentence `busy` if another process holds it.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(busy) from None
    except OSError:
        pass


def write_whole(path: Path, data: bytes, *, option: str = "--out") -> None:
    """Write `data` as a file that appears whole. Raises OutputError."""
    with open_atomic(path, option=option) as file:
        file.write(data)


def check_writable(path: Path, *, begins: bytes, option: str = "--out") -> None:
    """Raise OutputError if a file cannot be written, or would replace one that `begins` otherwise: before the work, not after it.

    What a killed process left of the file is removed. What a living one writes is locked, and stays.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        return
    try:
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as existing_file:
                if existing_file.read(len(begins)) != begins:
                    raise OutputError(
                        f"{path} is another file, which would be replaced. Choose another place with {option}."
                    )
        if path.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix=UNFINISHED, dir=path.parent):
            pass
        remove_left(path.parent, glob.escape(path.name))
    except OSError as error:
        raise OutputError(explain(error, path, option=option)) from error


def _make_locked(make: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Make a temporary file or folder with `make`, and lock it as long as its handle is open.

    Another process that sweeps may remove it before it is locked: then another one is made.
    """
    while True:
        handle, path = make()
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.lexists(path):
            return handle, path
        os.close(handle)


def remove_left(folder: Path, *names: str) -> None:
    """Remove what killed processes left of files and folders with these names (patterns).

    What a living process writes is locked, and stays; so does what another user left.
    """
    for name in names:
        for unfinished_path in folder.glob(f"{UNFINISHED}{name}-????????"):
            with contextlib.suppress(OSError):
                # Not what a link names; and opening a pipe would wait.
                handle = os.open(unfinished_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    _remove_unlocked(unfinished_path, handle)
                finally:
                    os.close(handle)


def _remove_unlocked(path: Path, handle: int) -> None:
    """Remove a file or folder of this user that is open and that nobody has locked. Raises OSError."""
    status = os.fstat(handle)
    if status.st_uid == os.geteuid():
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            path.unlink()


def explain(error: OSError, path: Path, *, option: str = "--out") -> str:
    """Return a sentence about why a place cannot be written, and what to do; `option` names the place, or "" an argument."""
    elsewhere = f"another place with {option}" if option else "another place"
    if error.errno in (28, 122):  # ENOSPC, EDQUOT
        return f"no space left for {path}. Free some, or choose {elsewhere}."
    if error.errno == 27:  # EFBIG
        return f"{path} cannot be written: `ulimit -f` allows no larger file. Allow more: ulimit -f unlimited"
    return f"{path} cannot be written ({error.strerror}). Choose {elsewhere}."


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def whole_directory(out: Path) -> Iterator[Path]:
    """Yield a directory beside `out` to fill; rename it to `out` at the end. Raises OutputError if `out` exists."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} is there already. Choose another --out, or delete it.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(str(out.parent), name=out.name) as folder:
            yield Path(folder)
            os.chmod(folder, 0o777 & ~_umask())  # mkdtemp makes private folders
            if out.exists():
                out.rmdir()
            os.replace(folder, out)
    except OSError as error:
        raise OutputError(explain(error, out)) from error


@contextlib.contextmanager
def temporary_folder(parent: str = "", *, name: str = "t5prep") -> Iterator[str]:
    """Yield a new folder in `parent` (by default the system's for temporary files), which is removed at the end.

    One that a killed process left is removed by the next process that makes one with this `name`. Raises OSError.
    """
    parent = parent or tempfile.gettempdir()
    remove_left(Path(parent), glob.escape(name))

    def make() -> tuple[int, str]:
        while True:
            folder = tempfile.mkdtemp(prefix=f"{UNFINISHED}{name}-", dir=parent)
            with contextlib.suppress(FileNotFoundError):  # another process has swept it meanwhile
                return os.open(folder, os.O_RDONLY | os.O_DIRECTORY), folder

    handle, folder = _make_locked(make)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def write_scratch(path: Path, data: bytes) -> None:
    """Write `data` as a scratch file (`scratch`). Raises OutputError."""
    with scratch(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def open_scratch(path: Path) -> Iterator[BinaryIO]:
    """Open a scratch file of this run to read it. Raises OutputError if it has been removed meanwhile."""
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise OutputError(
            f"{path} is gone: something removes files that this run still needs. Stop that, and start it again: what was "
            "tokenized is kept."
        ) from error


@contextlib.contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """Yield the path for writing a scratch file: it appears whole, but may be lost in a power cut.

    Raises OutputError.
    """
    # Two threads, or machines that share a folder, may write the same file.
    temporary = path.with_name(f"{UNFINISHED}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise OutputError(explain(error, path)) from error

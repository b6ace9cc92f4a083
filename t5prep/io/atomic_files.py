"""Write files and folders atomically: readers see a complete file or none, even after a kill or on a full disk.

Data goes to a temporary name (`UNFINISHED`) in the same folder, which is renamed at the end. A lock (`flock`) shows that
its writer is alive, so another process can remove the leftovers of killed writers.
"""

import contextlib
import errno
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
    """Yield a binary file for writing `path`. The file appears under this name when it is complete and on disk.

    After an error no file remains. A device or a pipe, such as /dev/null, is written directly: its reader has it open.

    * option: the command-line option that named `path`, for errors.
    * sweep: whether to remove unfinished files of `path` that killed processes left. This lists the folder, so a caller
      that writes thousands of files into one folder calls `remove_left` once instead.

    Raises OutputError if the disk is full or `path` cannot be written.
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
            os.fsync(file.fileno())  # before the rename: after a power cut the name must not show an empty file
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes private files, but other users may read a dataset
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise write_error(error, path, option=option) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def lock(handle: int, *, busy: str) -> None:
    """Lock an open file or folder until `handle` is closed or the process ends. Without locks in its file system, do nothing.

    Raises OutputError with the sentence `busy` if another process holds the lock.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(busy, code="output.locked") from None
    except OSError:
        pass


def write_whole(path: Path, data: bytes, *, option: str = "--out") -> None:
    """Write `data` to `path` atomically, as `open_atomic` does. Raises OutputError."""
    with open_atomic(path, option=option) as file:
        file.write(data)


def check_writable(path: Path, *, begins: bytes, option: str = "--out") -> None:
    """Raise OutputError if `path` cannot be written, or is a file that does not start with `begins`.

    Commands call this before hours of work, so that the result can be written at their end. An existing file that starts
    with `begins` is an earlier result and may be replaced. Unfinished files of `path` that killed processes left are removed.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        return
    try:
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as existing_file:
                if existing_file.read(len(begins)) != begins:
                    raise OutputError(
                        f"{path} already exists and has other content. Choose another place with {option}.",
                        code="output.foreign-file",
                    )
        if path.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix=UNFINISHED, dir=path.parent):
            pass
        remove_left(path.parent, glob.escape(path.name))
    except OSError as error:
        raise write_error(error, path, option=option) from error


def _make_locked(make: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Call `make` for a temporary file or folder, lock it, and return its open handle and its path.

    Between creation and lock, another process may remove it as a leftover (`remove_left`). Then `make` is called again.
    """
    while True:
        handle, path = make()
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.lexists(path):
            return handle, path
        os.close(handle)


def remove_left(folder: Path, *names: str) -> None:
    """Remove unfinished files and folders in `folder` that killed processes left; `names` are glob patterns of final names.

    Files that a running process has locked remain, and so do those of other users.
    """
    for name in names:
        # `tempfile` ends each name with eight random characters.
        for unfinished_path in folder.glob(f"{UNFINISHED}{name}-????????"):
            with contextlib.suppress(OSError):
                # A planted link must not lead to another file, and opening a pipe without O_NONBLOCK would wait for ever.
                handle = os.open(unfinished_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    _remove_unlocked(unfinished_path, handle)
                finally:
                    os.close(handle)


def _remove_unlocked(path: Path, handle: int) -> None:
    """Remove the file or folder that is open as `handle`, if it belongs to this user. Raises OSError if it is locked."""
    status = os.fstat(handle)
    if status.st_uid == os.geteuid():
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            path.unlink()


def write_error(error: OSError, path: Path, *, option: str = "--out") -> OutputError:
    """Return the error that says why `path` cannot be written, and what to do.

    option: the option that names the path, or "" if an argument does
    """
    alternative = f"another path with {option}" if option else "another path"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(
            f"No space is left for {path}. Free some space, or choose {alternative}.", code="output.no-space"
        )
    if error.errno == errno.EFBIG:
        return OutputError(
            f"{path} cannot be written: `ulimit -f` allows no larger file. Raise the limit: ulimit -f unlimited",
            code="output.file-size-limit",
        )
    return OutputError(f"{path} cannot be written ({error.strerror}). Choose {alternative}.", code="output.unwritable")


def _umask() -> int:
    """Return the process's mask of permissions."""
    # The system has no call that reads the mask without setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def whole_directory(out: Path) -> Iterator[Path]:
    """Yield a new directory beside `out`, and rename it to `out` at the end.

    Raises OutputError if `out` exists and is not an empty directory.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} already exists. Choose another --out, or delete {out}.", code="output.exists")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(str(out.parent), name=out.name) as folder:
            yield Path(folder)
            os.chmod(folder, 0o777 & ~_umask())  # mkdtemp makes private folders
            if out.exists():
                out.rmdir()
            os.replace(folder, out)
    except OSError as error:
        raise write_error(error, out) from error


@contextlib.contextmanager
def temporary_folder(parent: str = "", *, name: str = "t5prep") -> Iterator[str]:
    """Yield a new folder in `parent` (default: the system's temporary folder), and remove it at the end.

    Folders of this `name` that killed processes left there are removed first. Raises OSError.
    """
    parent = parent or tempfile.gettempdir()
    remove_left(Path(parent), glob.escape(name))

    def make() -> tuple[int, str]:
        """Make a folder, and return its open handle and its path."""
        while True:
            folder = tempfile.mkdtemp(prefix=f"{UNFINISHED}{name}-", dir=parent)
            # If another process removed the folder before it was locked, make another one.
            with contextlib.suppress(FileNotFoundError):
                return os.open(folder, os.O_RDONLY | os.O_DIRECTORY), folder

    handle, folder = _make_locked(make)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def write_scratch(path: Path, data: bytes) -> None:
    """Write `data` to a scratch file, as `scratch` does. Raises OutputError."""
    with scratch(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def open_scratch(path: Path) -> Iterator[BinaryIO]:
    """Yield a scratch file of this run, open for reading. Raises OutputError if another program removed it."""
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise OutputError(
            f"{path} was removed while this run still needed it. Stop the program that removes files, and "
            "run the command again. Tokenized blocks are cached.",
            code="output.scratch-altered",
        ) from error


@contextlib.contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """Yield a temporary path for writing a scratch file, and rename it to `path` at the end.

    The file appears complete, but may be lost in a power cut: without `fsync`, which `open_atomic` calls, writing many
    files is quicker. Raises OutputError.
    """
    # Two threads, or machines that share a folder, may write the same file: each has a temporary name of its own.
    temporary = path.with_name(f"{UNFINISHED}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise write_error(error, path) from error

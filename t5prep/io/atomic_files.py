"""Files that appear whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from t5prep.errors import OutputError

# Names that begin so are unfinished: readers pass over them, and the next run sweeps them away.
UNFINISHED = ".unfinished-"


@contextlib.contextmanager
def whole(path: Path, *, option: str = "--out") -> Iterator[BinaryIO]:
    """A file to write that takes its name only when all of it is on disk; on any error nothing is left.

    `option` is what named the place on the command line.
    What is no file, /dev/null or a pipe, is written to: taking its name would take it from all who use it.
    Raises OutputError where the disk is full or the place cannot be written.
    """
    temporary = None
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            with open(path, "wb") as file:
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f"{UNFINISHED}{path.name}-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes private files; a dataset is read by others
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise OutputError(explain(error, path, option=option)) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def write_whole(path: Path, data: bytes, *, option: str = "--out") -> None:
    """`data` as a file that appears whole. Raises OutputError."""
    with whole(path, option=option) as file:
        file.write(data)


def explain(error: OSError, path: Path, *, option: str = "--out") -> str:
    """What went wrong with a place to write, and what to do."""
    if error.errno in (28, 122):  # ENOSPC, EDQUOT
        return f"no space left for {path}. Free some, or choose another place with {option}."
    return f"{path} cannot be written ({error.strerror}). Choose another place with {option}."


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_scratch(path: Path, data: bytes) -> None:
    """`data` as a scratch file (`scratch`). Raises OutputError."""
    with scratch(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def open_scratch(path: Path) -> Iterator[BinaryIO]:
    """A scratch file of this run, to read. Raises OutputError where somebody has removed it meanwhile."""
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
    """Where to write a scratch file: it appears whole, but need not survive a power cut. Raises OutputError."""
    temporary = path.with_name(f"{UNFINISHED}{path.name}-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise OutputError(explain(error, path)) from error

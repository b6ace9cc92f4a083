"""Read and write files of datasets and runs, in a directory or under `gs://bucket/prefix`. All writes are atomic."""

import contextlib
import difflib
import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from t5prep.errors import did_you_mean
from t5prep.io import atomic_files, gcs

# Bytes of an object that are collected in memory before it is sent. A larger object goes to an unnamed file first.
_BUFFERED = 32 << 20
# Bytes of one request: many enough to verify a dataset quickly, few enough to show three records at once.
_READ_AHEAD_BYTES = 4 << 20


def join(folder: str | Path, name: str) -> str:
    """Return the path of the file `name` in `folder`, which may be a bucket's prefix.

    >>> join("gs://bucket/data/", "manifest.json"), join("data", "manifest.json")
    ('gs://bucket/data/manifest.json', 'data/manifest.json')
    """
    return f"{str(folder).rstrip('/')}/{name}" if gcs.is_gs(folder) else str(Path(folder) / name)


def names(folder: str | Path) -> set[str]:
    """Return the names of the files directly in `folder`. Raises OSError, OutputError."""
    return set(gcs.objects(str(folder))) if gcs.is_gs(folder) else {path.name for path in Path(folder).iterdir()}


@contextlib.contextmanager
def open_atomic(path: str, *, option: str = "--out", sweep: bool = False) -> Iterator[BinaryIO]:
    """Yield a binary file for writing a file or object, which appears under its name when it is complete.

    `option` and `sweep` are those of `atomic_files.open_atomic`. `sweep` is False here, because the lock of a dataset's
    folder removes leftovers once for all of its files. Raises OutputError.
    """
    if gcs.is_gs(path):
        with tempfile.SpooledTemporaryFile(max_size=_BUFFERED) as spooled:
            yield cast(BinaryIO, spooled)
            gcs.write(path, cast(BinaryIO, spooled))
    else:
        with atomic_files.open_atomic(Path(path), option=option, sweep=sweep) as file:
            yield file


@contextlib.contextmanager
def scratch(path: str) -> Iterator[BinaryIO]:
    """Yield a binary file for writing, as `open_atomic` does; a file on this machine may be lost in a power cut.

    Raises OutputError.
    """
    if gcs.is_gs(path):
        with open_atomic(path) as file:
            yield file
    else:
        with atomic_files.scratch(Path(path)) as temporary, open(temporary, "wb") as file:
            yield file


def write(path: str, data: bytes) -> None:
    """Write `data` to a file or object atomically. Raises OutputError."""
    write_pieces(path, [data])


def write_pieces(path: str, pieces: Iterable[bytes]) -> None:
    """Write the concatenation of `pieces` to a file or object atomically. Raises OutputError."""
    with open_atomic(path) as file:
        file.writelines(pieces)


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Yield a file or object, open for reading from its beginning. Raises OSError, OutputError."""
    if gcs.is_gs(path):
        yield io.BufferedReader(gcs.Reader(str(path)), _READ_AHEAD_BYTES)
        return
    with _regular(path) as file:
        yield file


def _regular(path: str | Path) -> BinaryIO:
    """Return a file of this machine, open for reading. Raises OSError for a pipe or a device, which may never end."""
    # O_NONBLOCK, because opening a pipe that has no writer would wait for ever.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        kind = os.fstat(number).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "it is a pipe or a device, and not a file", str(path))
        return os.fdopen(number, "rb")
    except OSError:
        os.close(number)
        raise


def read(path: str | Path) -> bytes:
    """Return the content of a small file or object.

    Raises OSError (FileNotFoundError if it is missing), OutputError.
    """
    if gcs.is_gs(path):
        return gcs.read(str(path))
    with _regular(path) as file:
        return file.read()


def read_range(path: str, begin: int, size: int) -> bytes:
    """Return `size` bytes of a file or object from `begin` on, or fewer at its end. Raises OSError, OutputError."""
    if gcs.is_gs(path):
        return gcs.read_range(path, begin, size) if size else b""
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read(size)


def version(path: str) -> str:
    """Return a text that changes whenever the file or object is written: its generation, or its size and time in ns.

    Raises OSError, OutputError.
    """
    if gcs.is_gs(path):
        return str(gcs.Reader(path).generation)
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns}"


def copy(path: str, uri: str) -> str:
    """Copy the file `path` to the object `uri`, unless equal bytes are there, and return `uri#GENERATION`.

    Raises OutputError.
    """
    with open(path, "rb") as file:
        with contextlib.suppress(FileNotFoundError):
            reader = gcs.Reader(uri)
            if reader.crc32c == gcs.crc32c(file):
                return f"{uri}#{reader.generation}"
        return f"{uri}#{gcs.write(uri, file)}"


def nearby(path: Path) -> str:
    """Return a suggestion for the end of a message: the closest name in the folder of `path`, else its first five names."""
    siblings = _list_siblings(path)
    listing = f" {path.parent} has {', '.join(siblings[:5])}{', …' if len(siblings) > 5 else ''}." if siblings else ""
    return did_you_mean(path.name, siblings) or listing


def mistyped(name: str | Path) -> str:
    """Return ` Did you mean "runs/one"?` if the path `name` is missing and its folder has a similar name, else ""."""
    path = Path(name)
    close = difflib.get_close_matches(path.name, _list_siblings(path), n=1) if path.name else []
    return f' Did you mean "{path.parent / close[0]}"?' if close and not path.exists() else ""


def _list_siblings(path: Path) -> list[str]:
    """Return the sorted names of visible files in the folder of `path`; none if it cannot be read."""
    try:
        return sorted(name for name in os.listdir(path.parent) if not name.startswith("."))
    except OSError:
        return []

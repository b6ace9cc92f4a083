"""Read and write files of datasets and runs, in a directory or under `gs://bucket/prefix`. Files appear whole."""

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

from t5prep.errors import OutputError, did_you_mean
from t5prep.io import atomic_files, gcs

# The largest object that is collected in memory before it is sent; larger ones go to an unnamed file.
_BUFFERED = 32 << 20
# The bytes of one request: many enough for verifying, few enough for looking at three records.
_READ_AHEAD_BYTES = 4 << 20


def join(folder: str | Path, name: str) -> str:
    """Return the path of a name inside a place.

    >>> join("gs://bucket/data/", "manifest.json"), join("data", "manifest.json")
    ('gs://bucket/data/manifest.json', 'data/manifest.json')
    """
    return f"{str(folder).rstrip('/')}/{name}" if gcs.is_gs(folder) else str(Path(folder) / name)


def names(folder: str | Path) -> set[str]:
    """Return the names of the files directly in a place. Raises OSError, OutputError."""
    return set(gcs.objects(str(folder))) if gcs.is_gs(folder) else {path.name for path in Path(folder).iterdir()}


@contextlib.contextmanager
def open_atomic(path: str, *, option: str = "--out", sweep: bool = False) -> Iterator[BinaryIO]:
    """Open a file or object to write; it takes its name only when all of it is written. Raises OutputError.

    option, sweep: as in `atomic_files.open_atomic`; who claims the folder of a dataset sweeps that
    """
    if gcs.is_gs(path):
        with tempfile.SpooledTemporaryFile(max_size=_BUFFERED) as spooled:
            yield cast(BinaryIO, spooled)
            _send(path, cast(BinaryIO, spooled))
    else:
        with atomic_files.open_atomic(Path(path), option=option, sweep=sweep) as file:
            yield file


@contextlib.contextmanager
def scratch(path: str) -> Iterator[BinaryIO]:
    """Open a file or object as `whole` does; one on this machine may be lost in a power cut. Raises OutputError."""
    if gcs.is_gs(path):
        with open_atomic(path) as file:
            yield file
    else:
        with atomic_files.scratch(Path(path)) as temporary, open(temporary, "wb") as file:
            yield file


def write(path: str, data: bytes) -> None:
    """Write `data` as a file or object that appears whole. Raises OutputError."""
    write_pieces(path, [data])


def write_pieces(path: str, pieces: Iterable[bytes]) -> None:
    """Write some pieces, one after the other, as a file or object that appears whole. Raises OutputError."""
    with open_atomic(path) as file:
        file.writelines(pieces)


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file or object to read it from its beginning. Raises OSError, OutputError."""
    if gcs.is_gs(path):
        yield io.BufferedReader(gcs.Reader(str(path)), _READ_AHEAD_BYTES)
        return
    with _regular(path) as file:
        yield file


def _regular(path: str | Path) -> BinaryIO:
    """Open a file of this machine. Raises OSError for what has no end, or never begins: a pipe, a device."""
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
    """Return some bytes of a file or object, fewer where it ends before. Raises OSError, OutputError."""
    if gcs.is_gs(path):
        return gcs.read_range(path, begin, size) if size else b""
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read(size)


def version(path: str) -> str:
    """Return what changes whenever a file or object is written anew. Raises OSError, OutputError."""
    if gcs.is_gs(path):
        return str(gcs.Reader(path).generation)
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns}"


def copy(path: str, uri: str) -> str:
    """Copy a file of this machine into a bucket, if it is not there; return its name there with its generation.

    Raises OutputError.
    """
    with open(path, "rb") as file:
        with contextlib.suppress(FileNotFoundError):
            reader = gcs.Reader(uri)
            if reader.crc32c == gcs.crc32c(file):
                return f"{uri}#{reader.generation}"
        return f"{uri}#{_send(uri, file)}"


def _send(uri: str, file: BinaryIO) -> int:
    try:
        return gcs.write(uri, file)  # trying again is safe: it sends the same bytes under the same name
    except FileNotFoundError:
        raise OutputError(f"{uri} cannot be written: there is no bucket {gcs.split(uri)[0]}.") from None


def nearby(path: Path) -> str:
    """Return a suggestion as the rest of a sentence: the closest name in the folder, else the first names there."""
    siblings = _list_siblings(path)
    listing = f" {path.parent} has {', '.join(siblings[:5])}{', …' if len(siblings) > 5 else ''}." if siblings else ""
    return did_you_mean(path.name, siblings) or listing


def mistyped(name: str | Path) -> str:
    """Return ` Did you mean "runs/one"?` where the path is missing and another of nearly that name exists, else ""."""
    path = Path(name)
    close = difflib.get_close_matches(path.name, _list_siblings(path), n=1) if path.name else []
    return f' Did you mean "{path.parent / close[0]}"?' if close and not path.exists() else ""


def _list_siblings(path: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path.parent) if not name.startswith("."))
    except OSError:
        return []

"""Pass bytes from one step to another: in memory, as part of a file on this disk, or as part of a file beside the shards."""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import google_crc32c
import pyarrow as pa

from t5prep.errors import OutputError
from t5prep.io import atomic_files, paths
from t5prep.preparation.near_duplicates.sketches import Sketch
from t5prep.preparation.spills import Spill

# A bucket answers each read after a delay, so several reads overlap.
_READS_AT_ONCE = 16


@dataclasses.dataclass(frozen=True)
class Piece:
    """Bytes for a group: in `data`, or `size` bytes at `begin` of the file `path`. `about` identifies and orders their rows."""

    about: tuple[int | str, ...] = ()
    data: bytes = b""
    path: str = ""
    begin: int = 0
    size: int = 0

    def __len__(self) -> int:
        return self.size if self.path else len(self.data)

    def is_before(self, other: "Piece") -> bool:
        """Check whether `other` has the same key except for its last part, which is equal or greater."""
        return self.about[:-1] == other.about[:-1] and self.about <= other.about

    def read(self) -> bytes:
        """Return the bytes. Raises OutputError if the file is gone."""
        if not self.path:
            return self.data
        with atomic_files.open_scratch(Path(self.path)) as file:
            file.seek(self.begin)
            return file.read(self.size)

    def mapped(self) -> pa.Buffer:
        """Return the bytes; those in a file are memory-mapped. Raises OutputError if the file is gone."""
        if not self.path:
            return pa.py_buffer(self.data)
        with atomic_files.open_scratch(Path(self.path)), pa.memory_map(self.path) as file:
            file.seek(self.begin)
            return file.read_buffer(self.size)

    def parts(self, size: int = 1 << 20) -> Iterator[bytes]:
        """Yield the bytes in order; those in a file, `size` bytes at a time. Raises OutputError if the file is gone."""
        if not self.path:
            yield self.data
            return
        with atomic_files.open_scratch(Path(self.path)) as file:
            file.seek(self.begin)
            for begin in range(0, self.size, size):
                yield file.read(min(size, self.size - begin))

    def lines(self) -> Iterator[bytes]:
        """Yield the bytes, which are lines, in chunks of complete lines."""
        unfinished_line = b""
        for part in self.parts():
            complete_lines, newline, remainder = (unfinished_line + part).rpartition(b"\n")
            yield complete_lines + newline
            unfinished_line = remainder
        if unfinished_line:
            yield unfinished_line


Part = TypeVar("Part", Spill, Sketch, Piece)


@dataclasses.dataclass(frozen=True)
class Stored(Generic[Part]):
    """A spill, sketch or piece whose `data` is part of a file that every worker can read.

    `about` is the object without its data, `begin` and `size` locate the data in the file `path`, and `crc` is its
    CRC-32C.
    """

    about: Part
    path: str
    begin: int
    size: int
    crc: int

    def read(self) -> bytes:
        """Return the data. Raises OutputError if the file is gone or damaged."""
        with contextlib.suppress(OSError):
            data = paths.read_range(self.path, self.begin, self.size)
            if len(data) == self.size and google_crc32c.value(data) == self.crc:
                return data
        raise OutputError(explain_removal(self.path), code="output.scratch-altered")


def load(part: Part | Stored[Part]) -> Part:
    """Return a stored part with its data, and any other part unchanged. Raises OutputError."""
    return dataclasses.replace(part.about, data=part.read()) if isinstance(part, Stored) else part


def read_all(parts: Sequence[Stored[Part]]) -> list[Part]:
    """Return stored parts with their data. Up to 16 are read at once, because a bucket answers each read after a delay."""
    with concurrent.futures.ThreadPoolExecutor(_READS_AT_ONCE) as threads:
        return list(threads.map(load, parts))


def store(results: Iterable[object], file: str, *, types: tuple[type, ...]) -> list[object]:
    """Return the results, with the bytes of those of some `types` moved into one `file`. Raises OutputError.

    A result may be a (key, piece) pair. Stored results become `Stored` objects, and others are returned unchanged.
    """
    stored, begin = list[object](), 0
    with paths.scratch(file) as opened:
        for result in results:
            key, piece = result if type(result) is tuple else (None, result)
            if isinstance(piece, Spill | Sketch | Piece) and isinstance(piece, types):
                data = bytes(piece.data)
                opened.write(data)
                location = (file, begin, len(data), google_crc32c.value(data))
                piece = Stored(dataclasses.replace(piece, data=b""), *location)
                begin += len(data)
            stored.append((key, piece) if type(result) is tuple else piece)
    return stored


def relocate(results: Iterable[object], path: str) -> list[object]:
    """Return the results with `path` as the file of their stored bytes: the folder may have been moved since they were cached."""

    def move(result: object) -> object:
        if type(result) is tuple:
            return tuple(map(move, result))
        return dataclasses.replace(result, path=path) if isinstance(result, Stored) else result

    return list(map(move, results))


def explain_removal(path: str) -> str:
    """Return the error message for a missing or damaged file that the job still needs."""
    return f"{path} was removed, changed or damaged since it was written. Start the same command again with --fresh"

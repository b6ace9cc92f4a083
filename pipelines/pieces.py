"""Bytes on their way from one step to another: in memory, or in a part of a file on this disk or beside the shards."""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import google_crc32c
import pyarrow as pa

from t5prep.errors import OutputError
from t5prep.io import atomic_files, paths
from t5prep.preparation.near_duplicates.sketches import Sketch
from t5prep.preparation.spills import Spill

_READS_AT_ONCE = 16


@dataclasses.dataclass(frozen=True)
class Piece:
    """Bytes on their way to a group, and what says `about` them; in `data`, or in a part of the file at `path`."""

    about: tuple[Any, ...] = ()
    data: bytes = b""
    path: str = ""
    begin: int = 0
    size: int = 0

    def __len__(self) -> int:
        return self.size if self.path else len(self.data)

    def is_before(self, other: "Piece") -> bool:
        """Check whether another piece is about the same, or about later rows of it."""
        return self.about[:-1] == other.about[:-1] and self.about <= other.about

    def read(self) -> bytes:
        """Return the bytes. Raises OutputError if the file is gone."""
        if not self.path:
            return self.data
        with atomic_files.open_scratch(Path(self.path)) as file:
            file.seek(self.begin)
            return file.read(self.size)

    def mapped(self) -> pa.Buffer:
        """Return the bytes, where they are in a file without reading them at once. Raises OutputError if the file is gone."""
        if not self.path:
            return pa.py_buffer(self.data)
        with atomic_files.open_scratch(Path(self.path)), pa.memory_map(self.path) as file:
            file.seek(self.begin)
            return file.read_buffer(self.size)

    def parts(self, size: int = 1 << 20) -> Iterator[bytes]:
        """Yield the bytes in order, `size` at a time where they are in a file. Raises OutputError if that is gone."""
        if not self.path:
            yield self.data
            return
        with atomic_files.open_scratch(Path(self.path)) as file:
            file.seek(self.begin)
            for begin in range(0, self.size, size):
                yield file.read(min(size, self.size - begin))

    def lines(self) -> Iterator[bytes]:
        """Yield the bytes in pieces that end with a line, if they are lines."""
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
    """A spill, sketch or piece of which the `data` is a part of a file that every worker reads; `crc` is its CRC-32C."""

    about: Part
    path: str
    begin: int
    size: int
    crc: int

    def read(self) -> Any:
        """Return the spill or sketch with its data, or the bytes of a piece. Raises OutputError if they are gone or damaged."""
        with contextlib.suppress(OSError):
            data = paths.read_range(self.path, self.begin, self.size)
            if len(data) == self.size and google_crc32c.value(data) == self.crc:
                return data if isinstance(self.about, Piece) else dataclasses.replace(self.about, data=data)
        raise OutputError(explain_removal(self.path))


def load(piece: Any) -> Any:
    """Return what a piece stands for: with its bytes, where it is stored."""
    return piece.read() if isinstance(piece, Stored) else piece


def read_all(pieces: Sequence[Any]) -> list[Any]:
    """Return the pieces with their bytes; many are read at the same time, because a bucket answers each after a while."""
    with concurrent.futures.ThreadPoolExecutor(_READS_AT_ONCE) as threads:
        return list(threads.map(load, pieces))


def store(results: Iterable[Any], file: str, *, types: tuple[type, ...]) -> list[Any]:
    """Return the results with the bytes of those of some types, alone or in a pair with their key, in one file. Raises OutputError."""
    stored, begin = list[Any](), 0
    with paths.scratch(file) as opened:
        for result in results:
            key, piece = result if type(result) is tuple else (None, result)
            if isinstance(piece, Spill | Sketch | Piece) and isinstance(piece, types):
                data = bytes(piece.data)
                opened.write(data)
                location = (file, begin, len(data), google_crc32c.value(data))
                piece = Stored[Any](dataclasses.replace(piece, data=b""), *location)
                begin += len(data)
            stored.append((key, piece) if type(result) is tuple else piece)
    return stored


def relocate(results: Iterable[Any], path: str) -> list[Any]:
    """Return results whose stored bytes lie at a path: their folder may have been moved, or be named from another one now."""

    def move(result: Any) -> Any:
        if type(result) is tuple:
            return tuple(map(move, result))
        return dataclasses.replace(result, path=path) if isinstance(result, Stored) else result

    return list(map(move, results))


def explain_removal(path: str) -> str:
    """Return what is said of a file that this job still needs."""
    return f"{path} was removed, changed or damaged since it was written. Start this with --fresh"

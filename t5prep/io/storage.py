"""Where a prepared dataset's files are read from: a directory or a prefix in a bucket, by one pair of functions."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from t5prep.io import gcs

# One request: large enough for verifying, small enough for a person who looks at three records.
_READ_AHEAD_BYTES = 4 << 20


def within(data: str | Path, name: str) -> str:
    """The place of a dataset's file, for messages and for readers that take names.

    >>> within("gs://bucket/data/", "manifest.json"), within("data", "manifest.json")
    ('gs://bucket/data/manifest.json', 'data/manifest.json')
    """
    return f"{str(data).rstrip('/')}/{name}" if gcs.is_gs(data) else str(Path(data) / name)


def names(data: str | Path) -> set[str]:
    """The names of the files in a dataset's directory. Raises OSError, OutputError."""
    return set(gcs.objects(str(data))) if gcs.is_gs(data) else {path.name for path in Path(data).iterdir()}


@contextlib.contextmanager
def opened(data: str | Path, name: str) -> Iterator[BinaryIO]:
    """A file of a dataset, to be read from its beginning. Raises OSError, OutputError."""
    place = within(data, name)
    if not gcs.is_gs(data):
        with open(place, "rb") as file:
            yield file
        return
    yield io.BufferedReader(gcs.Reader(place), _READ_AHEAD_BYTES)


def read(data: str | Path, name: str) -> bytes:
    """A small file, whole. Raises OSError, OutputError."""
    place = within(data, name)
    return gcs.read(place) if gcs.is_gs(data) else Path(place).read_bytes()

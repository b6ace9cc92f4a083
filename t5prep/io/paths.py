"""Places that datasets are written to: a directory, or `gs://bucket/prefix`; what is written appears whole."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from t5prep.errors import OutputError
from t5prep.io import atomic_files, gcs

# An object is collected here before it is sent; what is larger goes through an unnamed file.
_BUFFERED = 32 << 20


def at(place: str, name: str) -> str:
    """A name inside a place."""
    return f"{place.rstrip('/')}/{name}" if gcs.is_gs(place) else str(Path(place) / name)


@contextlib.contextmanager
def whole(path: str) -> Iterator[BinaryIO]:
    """A file or object to write, which takes its name only when all of it is there. Raises OutputError."""
    if gcs.is_gs(path):
        with tempfile.SpooledTemporaryFile(max_size=_BUFFERED) as spooled:
            yield cast(BinaryIO, spooled)
            _send(path, cast(BinaryIO, spooled))
    else:
        with atomic_files.whole(Path(path)) as file:
            yield file


def write(path: str, data: bytes) -> None:
    """`data` as a file or object that appears whole. Raises OutputError."""
    with whole(path) as file:
        file.write(data)


def read(path: str) -> bytes:
    """All of a file or object. Raises OutputError."""
    try:
        return gcs.read(path) if gcs.is_gs(path) else Path(path).read_bytes()
    except OSError as error:
        raise OutputError(f"{path} cannot be read ({error.strerror or 'it is not there'}).") from error


def _send(uri: str, file: BinaryIO) -> int:
    from google.cloud.storage.retry import DEFAULT_RETRY

    try:
        with gcs.speaking(uri, need="storage.objects.create"):
            # The same bytes under the same name: sending them once more does no harm.
            blob = gcs.blob(uri)
            blob.upload_from_file(
                file, rewind=True, checksum="crc32c", retry=DEFAULT_RETRY, timeout=gcs.TIMEOUT_SECONDS
            )
            return int(blob.generation)
    except FileNotFoundError:
        raise OutputError(f"{uri} cannot be written: there is no bucket {gcs.split(uri)[0]}.") from None


def copy(path: str, uri: str) -> str:
    """A file of this machine into a bucket; returns its name there with its generation. Raises OutputError."""
    with open(path, "rb") as file:
        return f"{uri}#{_send(uri, file)}"

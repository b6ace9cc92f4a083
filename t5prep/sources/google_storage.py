"""Read objects of Google Cloud Storage: `gs://bucket/prefix` or a glob, pinned to their generations, read by ranges."""

import base64
import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, cast

from t5prep.errors import OutputError, SourceError
from t5prep.io import gcs
from t5prep.sources import archives, local
from t5prep.sources.raw import RawFile, Resolved, SourceLocation, checked, glob_pattern, is_requested

if TYPE_CHECKING:
    from google.cloud.storage import Blob

_READ_AHEAD_BYTES = 4 << 20  # bytes of one request


def resolve(location: SourceLocation, *, include: Sequence[str]) -> Resolved:
    """Return the object with this name, all objects below it, or all objects that match the glob.

    Nothing is downloaded: workers read the current generation of each object. Names are formed as for local files.
    Raises SourceError.
    """
    bucket, _, path = location.name.partition("/")
    glob = re.search(r"[*?\[]", path)
    # The service lists by prefix. The glob is applied to the listed names.
    prefix = path[: glob.start()] if glob else path
    with _sentences(location.uri):
        blobs = gcs.listed(f"gs://{bucket}/{prefix}")
    alone: list[Blob] = []
    if glob:
        root = prefix[: prefix.rfind("/") + 1]
        shape = glob_pattern(path)
        blobs = [blob for blob in blobs if shape.fullmatch(blob.name)]
    else:
        alone = [blob for blob in blobs if blob.name == path]
        root = path[: path.rfind("/") + 1] if alone else path.rstrip("/") + "/" if path else ""
        blobs = alone or [blob for blob in blobs if blob.name.startswith(root)]
    files: list[RawFile] = []
    offered: list[str] = []
    for blob in blobs:
        name = blob.name.removeprefix(root)
        # An object whose name ends with "/" represents a folder. Hidden files are skipped as on a disk.
        if blob.name.endswith("/") or re.search(r"(^|/)\.", name):
            continue
        archives.refuse_others(name)
        url = f"gs://{bucket}/{blob.name}#{blob.generation}"
        checksum = _checksum(blob)
        if archives.is_archive(name):
            with open_blob(url) as archive:
                members, names = local.expand_archive(
                    archive, path=url, name=name, include=include, prefix=f"{name}/", checksum=checksum
                )
            files += members
            offered += names
            continue
        offered.append(name)
        if is_requested(name, include):
            files.append(RawFile(name, url, int(blob.size), checksum=checksum))
    return Resolved(
        location.uri,
        "",
        checked(files, location.uri, include=include, offered=offered),
        is_named=bool(glob or alone) and not archives.is_archive(path),
    )


def open_blob(path: str) -> BinaryIO:
    """Return the object `gs://bucket/name#generation` as a seekable file.

    Raises SourceError if it is gone or not readable for this user.
    """
    uri, _, generation = path.rpartition("#")
    return cast(BinaryIO, io.BufferedReader(_Object(uri, int(generation)), _READ_AHEAD_BYTES))


class _Object(gcs.Reader):
    """One generation of an object, whose errors are SourceErrors."""

    def __init__(self, uri: str, generation: int) -> None:
        with _sentences(uri):
            super().__init__(uri, generation=generation)

    def range(self, begin: int, size: int) -> bytes:
        """Return some bytes. Raises SourceError."""
        with _sentences(self._uri):
            return super().range(begin, size)


def _checksum(blob: "Blob") -> str:
    """Return the bucket's checksum as hex: MD5, or CRC32C for composed objects, which have no MD5."""
    name, expected = ("md5", blob.md5_hash) if blob.md5_hash else ("crc32c", blob.crc32c)
    return f"{name}:{base64.b64decode(expected).hex()}" if expected else ""


@contextlib.contextmanager
def _sentences(uri: str) -> Iterator[None]:
    """Convert exceptions of the client into SourceError. The client has already retried 429 and 5xx."""
    try:
        yield
    except FileNotFoundError:
        raise SourceError(
            f"{uri} does not exist (any more). Check the name with `gcloud storage ls`.", code="source.not-found"
        ) from None
    except OutputError as error:
        raise SourceError(str(error), code=error.code) from None

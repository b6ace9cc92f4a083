"""Objects of Google Cloud Storage: `gs://bucket/prefix` or a glob, pinned to their generations, read by range."""

import base64
import io
import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar, cast

from t5prep.errors import SourceError
from t5prep.sources import archives
from t5prep.sources.grammar import Place
from t5prep.sources.raw import RawFile, Resolved, checked, glob_pattern, wanted

T = TypeVar("T")
_WHERE = "Log in with `gcloud auth application-default login`, or as an account that may read the bucket."


def resolve(place: Place, *, include: Sequence[str]) -> Resolved:
    """The object of this name, or every object below it, or every one that matches the glob. Raises SourceError.

    Nothing is downloaded: workers read the objects, each at the generation it has now. Names are as for local files.
    """
    bucket, _, path = place.name.partition("/")
    glob = re.search(r"[*?\[]", path)
    prefix = path[: glob.start()] if glob else path
    blobs = _call(lambda: list(_client().list_blobs(bucket, prefix=prefix)), place.uri)
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
        if blob.name.endswith("/") or re.search(r"(^|/)\.", name):
            continue
        archives.refuse_tar(name)
        url = f"gs://{bucket}/{blob.name}#{blob.generation}"
        checksum = _checksum(blob)
        if archives.is_zip(name):
            with open_blob(url) as archive:
                some, names = archives.members(
                    archive, path=url, name=name, include=include, prefix=f"{name}/", checksum=checksum
                )
            files += some
            offered += names
            continue
        offered.append(name)
        if wanted(name, include):
            files.append(RawFile(name, url, int(blob.size), checksum=checksum))
    return Resolved(place.uri, "", checked(files, place.uri, include=include, offered=offered), licence="", citation="")


def open_blob(path: str) -> BinaryIO:
    """`gs://bucket/name#generation`, seekable. Raises SourceError when it is gone or may not be read."""
    bucket, _, rest = path.removeprefix("gs://").partition("/")
    name, _, generation = rest.rpartition("#")
    blob = _client().bucket(bucket).blob(name, generation=int(generation))
    _call(blob.reload, path)
    return cast(BinaryIO, io.BufferedReader(_Object(blob.open("rb", chunk_size=4 << 20), path), 1 << 20))


class _Object(io.RawIOBase):
    """An object being read; what goes wrong is a sentence."""

    def __init__(self, reader: BinaryIO, path: str):
        self._reader, self._path = reader, path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._reader.seek(offset, whence)

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = _call(lambda: self._reader.read(len(buffer)), self._path)
        buffer[: len(data)] = data
        return len(data)


def _checksum(blob: Any) -> str:
    """What the bucket says: MD5 (composed objects have none) or CRC32C, as hex."""
    name, said = ("md5", blob.md5_hash) if blob.md5_hash else ("crc32c", blob.crc32c)
    return f"{name}:{base64.b64decode(said).hex()}" if said else ""


def _client() -> Any:
    return _client_of(os.environ.get("STORAGE_EMULATOR_HOST", ""))


@lru_cache(maxsize=1)
def _client_of(emulator: str) -> Any:
    """One client for the process, and another when an emulator is set."""
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    try:
        return storage.Client()
    except (DefaultCredentialsError, OSError):
        return storage.Client.create_anonymous_client()  # public buckets need no account


def _call(ask: Callable[[], T], what: str) -> T:
    """The client retries 429 and 5xx itself. Raises SourceError."""
    from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound, Unauthorized
    from google.auth.exceptions import GoogleAuthError

    try:
        return ask()
    except NotFound:
        raise SourceError(f"{what} does not exist (any more). Check the name with `gcloud storage ls`.") from None
    except (Forbidden, Unauthorized, GoogleAuthError):
        raise SourceError(f"{what} may not be read with the account of this machine. {_WHERE}") from None
    except (GoogleAPIError, OSError) as error:
        raise SourceError(f"{what} cannot be read ({type(error).__name__}). Run this again later.") from None

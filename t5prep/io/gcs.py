"""Access Google Cloud Storage: names, one client, small reads and writes, locks, and each refusal as one sentence.

STORAGE_EMULATOR_HOST points the client at an emulator. Without credentials the client is anonymous, so public buckets
can be read from a machine without an account.
"""

import base64
import concurrent.futures
import contextlib
import functools
import io
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, ParamSpec, TypeVar
from urllib.parse import urlsplit

import google_crc32c

from t5prep.errors import OutputError, UsageError
from t5prep.io import atomic_files
from t5prep.io.ranges import RangedFile

if TYPE_CHECKING:
    from google.api_core.page_iterator import HTTPIterator
    from google.cloud import storage

_P = ParamSpec("_P")
_T = TypeVar("_T")

SCHEME = "gs://"
# The environment variable of Google's libraries for the project that pays for requests.
PAYER = "GOOGLE_CLOUD_QUOTA_PROJECT"
# The timeouts of one request: to connect, and between two reads. A stalled read is given up and tried again.
TIMEOUT_SECONDS: float | tuple[float, float] = (5.0, 60.0)
# How long failures are retried: of a bucket that this process has never reached, and of any other.
FIRST_SECONDS, LATER_SECONDS = 30.0, 120.0
_REACHED: set[str] = set()  # buckets
_WAITED_FOR: set[str] = set()  # buckets about which a line was printed
# A write that the server refuses because other bytes arrived (400) is sent this many times.
_WRITES = 3
# So many objects are listed at once, and removed at a time.
_PAGE, _AT_A_TIME = 1000, 16
# While this object exists, a dataset is being written there; its content says which.
MARKER = f"{atomic_files.UNFINISHED}t5prep"
# The least role that grants each permission.
_ROLES = {
    "storage.objects.get": "roles/storage.objectViewer",
    "storage.objects.list": "roles/storage.objectViewer",
    "storage.objects.create": "roles/storage.objectUser",
    "storage.objects.delete": "roles/storage.objectUser",
}


class Object(NamedTuple):
    """Describe an object as a listing gives it; `crc32c` is base64 of the big-endian checksum, as the API writes it."""

    name: str
    bytes: int
    crc32c: str
    generation: int


def is_gs(path: object) -> bool:
    """Check whether a place is in a bucket, by its scheme alone: a directory called `gs` or `logs` is not.

    >>> is_gs("gs://bucket/a"), is_gs("logs/a")
    (True, False)
    """
    return str(path).startswith(SCHEME)


def listed(uri: str) -> "list[storage.Blob]":
    """Return every object whose name begins with the name in `uri`.

    Raises OutputError; FileNotFoundError if the bucket does not exist.
    """
    with speaking(uri, need="storage.objects.list"):
        return list(_listing(uri))


def _listing(uri: str) -> "HTTPIterator":
    """Return an iterator of the client over the objects whose name begins with the name in `uri`, which asks for a page at a time."""
    bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
    return client().list_blobs(
        bucket_of(bucket), prefix=prefix, page_size=_PAGE, timeout=TIMEOUT_SECONDS, retry=retry(uri)
    )


def split(uri: str) -> tuple[str, str]:
    """Return the bucket and the object name, without a slash at its end. Raises UsageError.

    >>> split("gs://bucket/a/b/")
    ('bucket', 'a/b')
    """
    bucket, _, name = uri.removeprefix(SCHEME).partition("/")
    if "@" in bucket:
        raise UsageError("the name of a bucket holds no @ and no password. Write it as gs://bucket/prefix.")
    if not is_gs(uri) or not bucket:
        raise UsageError(f'"{uri}" is not a place in a bucket. Write it as gs://bucket/prefix.')
    return bucket, name.rstrip("/")


def client() -> "storage.Client":
    """Return the process's client, anonymous where there are no credentials."""
    return client_of(os.environ.get("STORAGE_EMULATOR_HOST", ""))


@functools.cache
def client_of(emulator: str) -> "storage.Client":
    """Return the client of an emulator, or of Google for ""."""
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    if emulator:
        return storage.Client.create_anonymous_client()
    try:
        # A project is only needed to create buckets, which is never done here.
        return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "t5prep"))
    except (DefaultCredentialsError, OSError):
        return storage.Client.create_anonymous_client()


def bucket_of(name: str) -> "storage.Bucket":
    """Return the client's handle of a bucket, whose requests the project in GOOGLE_CLOUD_QUOTA_PROJECT pays for."""
    return client().bucket(name, user_project=os.environ.get(PAYER) or None)


def check_tensorflow_reaches(uri: str) -> None:
    """Raise OutputError if TensorFlow would look for `uri` at Google while STORAGE_EMULATOR_HOST names an emulator.

    TensorFlow's own client knows no emulator: it speaks to storage.googleapis.com, whatever that name leads to.
    """
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if not emulator or not is_gs(uri):
        return
    host = urlsplit(emulator if "//" in emulator else f"//{emulator}").hostname or ""
    if not _ips(host) & _ips("storage.googleapis.com"):
        raise OutputError(
            f"{uri} would be looked for at Google, not at the emulator in STORAGE_EMULATOR_HOST ({emulator}): TensorFlow, which "
            "reads and writes runs, knows no emulator. Name a run in a folder (runs/NAME), or unset STORAGE_EMULATOR_HOST"
        )


def _ips(host: str) -> set[str]:
    """Return the addresses of a host, none where it has no name here."""
    with contextlib.suppress(OSError):
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    return set()


def identity() -> str:
    """Return for people who the client acts as: an account's address where it is known."""
    credentials = client()._credentials
    for name in ("service_account_email", "signer_email", "account"):
        address = getattr(credentials, name, None)
        if address and address != "default":
            return str(address)
    if type(credentials).__name__ == "AnonymousCredentials":
        return "anonymous (no credentials were found)"
    return "the application default credentials"


@contextlib.contextmanager
def speaking(uri: str, *, need: str) -> Iterator[None]:
    """Turn exceptions of the client into one sentence; `need` is the permission that the call needs.

    Raises OutputError; FileNotFoundError if the object or the bucket does not exist.
    """
    import requests
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption

    bucket, _ = split(uri)
    try:
        yield
    except exceptions.NotFound:
        raise FileNotFoundError(uri) from None
    except exceptions.Forbidden as error:
        raise OutputError(
            f"{uri}: {identity()} lacks {need} on the bucket {bucket}. Grant it: gcloud storage buckets "
            f"add-iam-policy-binding gs://{bucket} --member=ACCOUNT --role={_ROLES[need]}"
        ) from error
    except (exceptions.Unauthorized, GoogleAuthError) as error:
        raise OutputError(
            f"{uri}: the bucket {bucket} does not take the credentials of {identity()} ({_reason(error)}): {need} needs "
            "valid ones. Log in again: gcloud auth application-default login"
        ) from error
    except (exceptions.GoogleAPIError, requests.RequestException, DataCorruption) as error:
        if isinstance(error, exceptions.BadRequest) and "requester pays" in str(error):
            raise OutputError(
                f"{uri}: who reads the bucket {bucket} pays for it. Name your project that pays: export {PAYER}=PROJECT"
            ) from error
        raise OutputError(
            f"{uri} cannot be reached: {_reason(error)}. Try again: what was done so far is kept."
        ) from error
    _REACHED.add(bucket)
    _WAITED_FOR.discard(bucket)


def retry(uri: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return how the client repeats a failed call: as its library does, but it says so, and gives up sooner at first."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    bucket, _ = split(uri)
    seconds = LATER_SECONDS if bucket in _REACHED else FIRST_SECONDS

    def failed(error: Exception) -> None:
        if bucket not in _WAITED_FOR:
            _WAITED_FOR.add(bucket)
            print(f"gs://{bucket} does not answer ({_reason(error)}): trying for {seconds:.0f} s", file=sys.stderr)

    return lambda call: DEFAULT_RETRY.with_timeout(seconds)(call, on_error=failed)


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200].rstrip(".")


def crc32c(file: BinaryIO) -> str:
    """Return the checksum of a file, from its position to its end, as the API writes it."""
    crc = 0
    while piece := file.read(1 << 20):
        crc = google_crc32c.extend(crc, piece)
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def blob(uri: str) -> "storage.Blob":
    """Return the client's handle of an object, without asking the server."""
    bucket, name = split(uri)
    return bucket_of(bucket).blob(name)


def read(uri: str) -> bytes:
    """Return the content of a small object, with its checksum checked. Raises FileNotFoundError, OutputError."""
    with speaking(uri, need="storage.objects.get"):
        content: bytes = blob(uri).download_as_bytes(checksum="crc32c", timeout=TIMEOUT_SECONDS, retry=retry(uri))
    return content


def read_range(uri: str, begin: int, size: int) -> bytes:
    """Return some bytes of an object, fewer where it ends before. Raises FileNotFoundError, OutputError."""
    return _range(blob(uri), uri, begin, size)


def _range(blob: "storage.Blob", uri: str, begin: int, size: int) -> bytes:
    with speaking(uri, need="storage.objects.get"):
        content: bytes = blob.download_as_bytes(
            start=begin,
            end=begin + size - 1,
            raw_download=True,
            checksum=None,
            timeout=TIMEOUT_SECONDS,
            retry=retry(uri),
        )
    return content


class Reader(RangedFile):
    """Read an object in ranges, always of one generation: the given one, or the one at the time of opening.

    The library's own reader is not used: it asks for a range past the end, and fails when the refusal of that is
    malformed.
    """

    def __init__(self, uri: str, *, generation: int | None = None) -> None:
        self._uri = uri
        bucket, name = split(uri)
        with speaking(uri, need="storage.objects.get"):
            blob = bucket_of(bucket).blob(name, generation=generation)
            blob.reload(timeout=TIMEOUT_SECONDS, retry=retry(uri))
            self._blob = blob.bucket.blob(blob.name, generation=blob.generation)
        self.generation, self.crc32c = int(blob.generation), blob.crc32c
        super().__init__(int(blob.size))

    def range(self, begin: int, size: int) -> bytes:
        """Return some bytes. Raises FileNotFoundError, OutputError."""
        return _range(self._blob, self._uri, begin, size)


def write(uri: str, content: bytes | BinaryIO, *, generation: int | None = None) -> int:
    """Write an object, which appears whole and replaces only `generation` (0: no object; None: any); return its own.

    `content` is all that it holds, or a file that is read from its beginning. Raises OutputError, FileNotFoundError without the
    bucket, and FileExistsError if the object has another generation.
    """
    from google.api_core.exceptions import BadRequest, PreconditionFailed

    file = io.BytesIO(content) if isinstance(content, bytes) else content
    size = file.seek(0, os.SEEK_END)
    with speaking(uri, need="storage.objects.create"):
        for remaining_retries in reversed(range(_WRITES)):
            try:
                sent = blob(uri)
                sent.upload_from_file(
                    file,
                    rewind=True,
                    size=size,
                    content_type="application/octet-stream",
                    checksum="crc32c",
                    if_generation_match=generation,
                    timeout=TIMEOUT_SECONDS,
                    retry=retry(uri),
                )
                break
            except PreconditionFailed:
                raise FileExistsError(uri) from None
            except BadRequest:
                if not remaining_retries:
                    raise
    return int(sent.generation)


def delete(uri: str, *, generation: int | None = None) -> None:
    """Remove an object, or only that generation of it. A missing object is not an error. Raises OutputError."""
    with contextlib.suppress(FileNotFoundError), speaking(uri, need="storage.objects.delete"):
        blob(uri).delete(if_generation_match=generation, timeout=TIMEOUT_SECONDS, retry=retry(uri))


def delete_all(uri: str) -> None:
    """Remove every object whose name begins with the name in `uri`, many at a time, a page after the other. Raises OutputError."""
    bucket = split(uri)[0]
    with (
        speaking(uri, need="storage.objects.list"),
        concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as threads,
    ):
        for page in _listing(uri).pages:
            list(threads.map(lambda blob: delete(f"{SCHEME}{bucket}/{blob.name}"), page))


def objects(uri: str) -> dict[str, Object]:
    """Return the objects directly under a prefix, by their names without the prefix. Raises OutputError."""
    bucket, prefix = split(uri)
    prefix = prefix and prefix + "/"
    fields = "items(name,size,crc32c,generation),nextPageToken"
    try:
        with speaking(uri, need="storage.objects.list"):
            listed = client().list_blobs(
                bucket_of(bucket),
                prefix=prefix,
                delimiter="/",
                fields=fields,
                timeout=TIMEOUT_SECONDS,
                retry=retry(uri),
            )
            objects = [Object(item.name[len(prefix) :], item.size, item.crc32c, item.generation) for item in listed]
    except FileNotFoundError:
        raise OutputError(
            f"There is no bucket {bucket}. Make it: gcloud storage buckets create gs://{bucket} --location=REGION"
        ) from None
    return {item.name: item for item in objects if item.name}


def claim(uri: str, dataset_facts: Mapping[str, str]) -> None:
    """Lock a prefix for writing `dataset_facts`. A lock that an interrupted run of the same `dataset_facts` left is taken over.

    Two runs of the same `dataset_facts` write the same bytes. Where they overlap, the first that ends removes what both keep, and
    the other one says so. Raises OutputError when the prefix is locked for something else.
    """
    mark = json.dumps(dataset_facts, sort_keys=True).encode()
    try:
        write(f"{uri}/{MARKER}", mark, generation=0)
    except FileExistsError:
        if read(f"{uri}/{MARKER}") != mark:
            raise OutputError(
                f"Another dataset is on its way to {uri}, or was cut off. Let it finish, choose another prefix, or "
                f"give it up: gcloud storage rm -r {uri}"
            ) from None
    except FileNotFoundError:
        raise OutputError(f"{uri} cannot be written: there is no bucket {split(uri)[0]}.") from None


def release(uri: str) -> None:
    """Release the lock."""
    delete(f"{uri}/{MARKER}")

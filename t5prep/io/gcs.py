"""Access Google Cloud Storage: names, one client, small reads and writes, locks, and one-sentence errors.

A `uri` is `gs://bucket/name`. STORAGE_EMULATOR_HOST sends all requests to an emulator. Without credentials the client is
anonymous, so a machine without an account can read public buckets.
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
# Seconds until one request fails: to connect, and between two reads. A failed read is retried.
TIMEOUT_SECONDS: float | tuple[float, float] = (5.0, 60.0)
# How long failures are retried. A bucket that this process never reached is probably misspelled or unreachable, so it
# fails sooner; 120 s is the client library's default.
FIRST_SECONDS, LATER_SECONDS = 30.0, 120.0
_REACHED: set[str] = set()  # buckets
_WAITED_FOR: set[str] = set()  # buckets for which "does not answer" was printed: once, not for each retry
# Attempts to write an object. The library does not retry a 400, with which the server reports bytes damaged on their way.
_WRITES = 3
# Objects in one page of a listing, and requests at a time to remove them.
_PAGE, _AT_A_TIME = 1000, 16
# While this object exists under a prefix, a dataset is being written there (`claim`). Its content identifies the dataset.
MARKER = f"{atomic_files.UNFINISHED}t5prep"
# The smallest predefined role that grants each permission.
_ROLES = {
    "storage.objects.get": "roles/storage.objectViewer",
    "storage.objects.list": "roles/storage.objectViewer",
    "storage.objects.create": "roles/storage.objectUser",
    "storage.objects.delete": "roles/storage.objectUser",
}


class Object(NamedTuple):
    """Describe an object in a listing. `crc32c` is the base64 of the big-endian checksum, as in the API.

    `generation` is the number of this version of the object: each write gives a new one.
    """

    name: str
    bytes: int
    crc32c: str
    generation: int


def is_gs(path: object) -> bool:
    """Check whether `path` begins with `gs://`.

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
    """Return the client's iterator over all objects whose name begins with the name in `uri`. It requests page by page."""
    bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
    return client().list_blobs(
        bucket_of(bucket), prefix=prefix, page_size=_PAGE, timeout=TIMEOUT_SECONDS, retry=retry(uri)
    )


def split(uri: str) -> tuple[str, str]:
    """Return the bucket and the object name of `uri`, without a slash at the end. Raises UsageError.

    >>> split("gs://bucket/a/b/")
    ('bucket', 'a/b')
    """
    bucket, _, name = uri.removeprefix(SCHEME).partition("/")
    if "@" in bucket:
        raise UsageError(
            "The name of a bucket cannot contain @ or a password. Write the address as gs://bucket/prefix.",
            code="bucket.invalid-address",
        )
    if not is_gs(uri) or not bucket:
        raise UsageError(
            f'"{uri}" is not an address in a bucket. Write the address as gs://bucket/prefix.',
            code="bucket.invalid-address",
        )
    return bucket, name.rstrip("/")


def client() -> "storage.Client":
    """Return the client of this process, which is anonymous without credentials."""
    return client_of(os.environ.get("STORAGE_EMULATOR_HOST", ""))


@functools.cache
def client_of(emulator: str) -> "storage.Client":
    """Return a client for the emulator at this address, or for Google if `emulator` is ""."""
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    if emulator:
        return storage.Client.create_anonymous_client()
    try:
        # The client requires a project, but uses it only to create buckets, which t5prep never does.
        return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "t5prep"))
    except (DefaultCredentialsError, OSError):
        return storage.Client.create_anonymous_client()


def bucket_of(name: str) -> "storage.Bucket":
    """Return the client's handle of a bucket. The project in GOOGLE_CLOUD_QUOTA_PROJECT, if set, pays for its requests."""
    return client().bucket(name, user_project=os.environ.get(PAYER) or None)


def check_tensorflow_reaches(uri: str) -> None:
    """Raise OutputError if STORAGE_EMULATOR_HOST names an emulator that TensorFlow would not use for `uri`.

    TensorFlow has its own client, which always connects to storage.googleapis.com. Tests map this name to the emulator.
    """
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if not emulator or not is_gs(uri):
        return
    host = urlsplit(emulator if "//" in emulator else f"//{emulator}").hostname or ""
    if not _ips(host) & _ips("storage.googleapis.com"):
        raise OutputError(
            f"TensorFlow would look for {uri} at Google, because it does not support the emulator in "
            f"STORAGE_EMULATOR_HOST ({emulator}). Name a local run (runs/NAME), or unset "
            "STORAGE_EMULATOR_HOST.",
            code="bucket.unsupported-emulator",
        )


def _ips(host: str) -> set[str]:
    """Return the IP addresses of a host name; none if it cannot be resolved."""
    with contextlib.suppress(OSError):
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    return set()


def identity() -> str:
    """Return the account of the client for messages: its email address if known, else a description."""
    credentials = client()._credentials  # the client has no public attribute for them
    for name in ("service_account_email", "signer_email", "account"):
        address = getattr(credentials, name, None)
        if address and address != "default":
            return str(address)
    if type(credentials).__name__ == "AnonymousCredentials":
        return "anonymous (no credentials were found)"
    return "the application default credentials"


@contextlib.contextmanager
def speaking(uri: str, *, need: str) -> Iterator[None]:
    """Convert the client's exceptions inside `with` to one-sentence errors. `need` is the permission that the calls need.

    Raises OutputError, or FileNotFoundError if the object or the bucket does not exist.
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
            f"{uri} cannot be accessed: {identity()} lacks {need} on the bucket {bucket}. Grant the "
            f"permission: gcloud storage buckets add-iam-policy-binding gs://{bucket} --member=ACCOUNT "
            f"--role={_ROLES[need]}",
            code="bucket.missing-permission",
        ) from error
    except (exceptions.Unauthorized, GoogleAuthError) as error:
        raise OutputError(
            f"{uri} cannot be accessed: the bucket {bucket} rejects {identity()} ({_reason(error)}), but "
            f"{need} needs valid credentials. Log in again: gcloud auth application-default login",
            code="bucket.invalid-credentials",
        ) from error
    except (DataCorruption, requests.exceptions.ContentDecodingError) as error:
        raise OutputError(
            f"{uri} is damaged: its bytes do not match its checksum or its encoding. Run the command again. If the "
            "error stays, replace the object.",
            code="bucket.damaged-object",
        ) from error
    except (exceptions.GoogleAPIError, requests.RequestException) as error:
        if isinstance(error, exceptions.BadRequest) and "requester pays" in str(error):
            raise OutputError(
                f"{uri} cannot be accessed without a billing project, because readers of the bucket {bucket} "
                f"pay for requests. Name your project: export {PAYER}=PROJECT",
                code="bucket.missing-billing-project",
            ) from error
        raise OutputError(
            f"{uri} cannot be reached: {_reason(error)}. Run the command again. Finished work is kept.",
            code="bucket.unavailable",
        ) from error
    _REACHED.add(bucket)
    _WAITED_FOR.discard(bucket)


@contextlib.contextmanager
def _requiring_bucket(uri: str, *, need: str) -> Iterator[None]:
    """Convert exceptions inside `with` as `speaking` does, for calls that no missing object can fail. Raises OutputError."""
    try:
        with speaking(uri, need=need):
            yield
    except FileNotFoundError:
        bucket, _ = split(uri)
        raise OutputError(
            f"The bucket {bucket} of {uri} does not exist. Create it: gcloud storage buckets create gs://{bucket} "
            "--location=REGION",
            code="bucket.not-found",
        ) from None


def retry(uri: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return the `retry` argument for a call of the client: the library's policy with a message and another time limit.

    The limit is FIRST_SECONDS until this process has reached the bucket, then LATER_SECONDS.
    """
    from google.cloud.storage.retry import DEFAULT_RETRY

    bucket, _ = split(uri)
    seconds = LATER_SECONDS if bucket in _REACHED else FIRST_SECONDS

    def failed(error: Exception) -> None:
        if bucket not in _WAITED_FOR:
            _WAITED_FOR.add(bucket)
            print(f"gs://{bucket} does not answer ({_reason(error)}). Retrying for {seconds:.0f} s.", file=sys.stderr)

    return lambda call: DEFAULT_RETRY.with_timeout(seconds)(call, on_error=failed)


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200].rstrip(".")


def crc32c(file: BinaryIO) -> str:
    """Return the CRC-32C of `file`, from its position to its end, in base64 as in the API."""
    crc = 0
    while piece := file.read(1 << 20):
        crc = google_crc32c.extend(crc, piece)
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def blob(uri: str) -> "storage.Blob":
    """Return the client's handle of an object, without a request."""
    bucket, name = split(uri)
    return bucket_of(bucket).blob(name)


def read(uri: str) -> bytes:
    """Return the content of a small object, after checking its checksum. Raises FileNotFoundError, OutputError."""
    with speaking(uri, need="storage.objects.get"):
        content: bytes = blob(uri).download_as_bytes(checksum="crc32c", timeout=TIMEOUT_SECONDS, retry=retry(uri))
    return content


def read_range(uri: str, begin: int, size: int) -> bytes:
    """Return `size` bytes of an object from `begin` on, or fewer at its end. Raises FileNotFoundError, OutputError."""
    return _range(blob(uri), uri, begin, size)


def _range(blob: "storage.Blob", uri: str, begin: int, size: int) -> bytes:
    """Return `size` bytes of an object from `begin` on. Raises FileNotFoundError, OutputError."""
    with speaking(uri, need="storage.objects.get"):
        content: bytes = blob.download_as_bytes(
            start=begin,
            end=begin + size - 1,  # the API's `end` is inclusive
            raw_download=True,  # stored bytes: decompressing (Content-Encoding: gzip) would shift the range
            checksum=None,  # the server has a checksum of the complete object only
            timeout=TIMEOUT_SECONDS,
            retry=retry(uri),
        )
    return content


class Reader(RangedFile):
    """Read one generation of an object as a seekable file: `generation`, or the current one when it is opened.

    If another process replaces the object meanwhile, reads still return the old bytes or fail. The library's own reader
    (`Blob.open`) requests a range past the end, and fails if the server's refusal is malformed.
    """

    def __init__(self, uri: str, *, generation: int | None = None) -> None:
        self._uri = uri
        bucket, name = split(uri)
        with speaking(uri, need="storage.objects.get"):
            blob = bucket_of(bucket).blob(name, generation=generation)
            blob.reload(timeout=TIMEOUT_SECONDS, retry=retry(uri))
            # A second handle, bound to the generation that `reload` found: the first would read a replaced object.
            self._blob = blob.bucket.blob(blob.name, generation=blob.generation)
        self.generation, self.crc32c = int(blob.generation), blob.crc32c
        super().__init__(int(blob.size))

    def range(self, begin: int, size: int) -> bytes:
        """Return `size` bytes from `begin` on. Raises FileNotFoundError, OutputError."""
        return _range(self._blob, self._uri, begin, size)


def write(uri: str, content: bytes | BinaryIO, *, generation: int | None = None) -> int:
    """Write an object atomically, and return its new generation. It replaces only `generation` (0: no object; None: any).

    `content` is the bytes, or a file that is read from its beginning. Retries are safe, because each sends the same bytes.
    Raises OutputError, and FileExistsError if the object has another generation.
    """
    from google.api_core.exceptions import BadRequest, PreconditionFailed

    file = io.BytesIO(content) if isinstance(content, bytes) else content
    size = file.seek(0, os.SEEK_END)
    with _requiring_bucket(uri, need="storage.objects.create"):
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
    """Remove an object, or only its `generation`. A missing object is no error. Raises OutputError."""
    with contextlib.suppress(FileNotFoundError), speaking(uri, need="storage.objects.delete"):
        blob(uri).delete(if_generation_match=generation, timeout=TIMEOUT_SECONDS, retry=retry(uri))


def delete_all(uri: str) -> None:
    """Remove every object whose name begins with the name in `uri`, in 16 threads. Raises OutputError."""
    bucket = split(uri)[0]
    with (
        speaking(uri, need="storage.objects.list"),
        concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as threads,
    ):
        for page in _listing(uri).pages:
            list(threads.map(lambda blob: delete(f"{SCHEME}{bucket}/{blob.name}"), page))


def objects(uri: str) -> dict[str, Object]:
    """Return the objects directly under the prefix `uri`; keys are names without the prefix. Raises OutputError."""
    bucket, prefix = split(uri)
    prefix = prefix and prefix + "/"
    # A partial response: the server sends only these fields of each object.
    fields = "items(name,size,crc32c,generation),nextPageToken"
    with _requiring_bucket(uri, need="storage.objects.list"):
        listed = client().list_blobs(
            bucket_of(bucket),
            prefix=prefix,
            delimiter="/",
            fields=fields,
            timeout=TIMEOUT_SECONDS,
            retry=retry(uri),
        )
        objects = [Object(item.name[len(prefix) :], item.size, item.crc32c, item.generation) for item in listed]
    return {item.name: item for item in objects if item.name}


def claim(uri: str, dataset_facts: Mapping[str, str]) -> None:
    """Lock the prefix `uri` for writing a dataset, by an object that holds `dataset_facts`.

    A lock with equal `dataset_facts` is taken over: an interrupted run of the same dataset left it. If that run is alive,
    both write the same bytes. The first to end removes their scratch files, and the other reports this. Raises
    OutputError if the prefix is locked for another dataset.

    A bucket has no lock that ends with its process (`atomic_files.lock`), so `dataset_facts` decide who may take it over.
    """
    mark = json.dumps(dataset_facts, sort_keys=True).encode()
    try:
        write(f"{uri}/{MARKER}", mark, generation=0)  # atomic: of two runs, only one can create the object
    except FileExistsError:
        if read(f"{uri}/{MARKER}") != mark:
            raise OutputError(
                f"Another dataset is being written to {uri}, or its writing was interrupted. Wait for it, "
                f"choose another prefix, or delete the unfinished files: gcloud storage rm -r {uri}",
                code="output.locked",
            ) from None


def release(uri: str) -> None:
    """Remove the lock that `claim` made."""
    delete(f"{uri}/{MARKER}")

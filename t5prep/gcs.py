"""Google Cloud Storage: names, one client, and every refusal as one sentence.

STORAGE_EMULATOR_HOST points the client at an emulator. Without credentials the client is anonymous, so public buckets
can be read from a machine without an account.
"""

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

from t5prep.errors import DatasetError, OutputError, T5prepError

SCHEME = "gs://"


def is_gs(place: object) -> bool:
    """Whether a place is a bucket's, by its scheme alone: a directory called `gs` or `logs` is not.

    >>> is_gs("gs://bucket/a"), is_gs("logs/a")
    (True, False)
    """
    return str(place).startswith(SCHEME)


def split(uri: str) -> tuple[str, str]:
    """Bucket and object name, without a slash at its end.

    >>> split("gs://bucket/a/b/")
    ('bucket', 'a/b')
    """
    bucket, _, name = uri.removeprefix(SCHEME).partition("/")
    if not is_gs(uri) or not bucket:
        raise OutputError(f'"{uri}" is not a place in a bucket. Write it as gs://bucket/prefix.')
    return bucket, name.rstrip("/")


@functools.cache
def client() -> Any:
    """The process's client (google.cloud.storage.Client), anonymous where there are no credentials."""
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return storage.Client.create_anonymous_client()
    try:
        # The project is only needed to create buckets, which is never done here.
        return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "t5prep"))
    except DefaultCredentialsError:
        return storage.Client.create_anonymous_client()


def identity() -> str:
    """Who the client speaks as, for error messages: a service account's address where it is known."""
    credentials = client()._credentials
    email = getattr(credentials, "service_account_email", None) or getattr(credentials, "signer_email", None)
    if email and email != "default":
        return str(email)
    if type(credentials).__name__ == "AnonymousCredentials":
        return "an anonymous user (no credentials were found: run `gcloud auth application-default login`)"
    return "the application default credentials"


@contextlib.contextmanager
def speaking(uri: str, *, need: str) -> Iterator[None]:
    """Turns what the client raises into one sentence; `need` is the permission that the call takes."""
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    bucket, _ = split(uri)
    try:
        yield
    except exceptions.Forbidden as error:
        raise OutputError(
            f"{identity()} may not use gs://{bucket}: {need} is missing for {uri}. Grant it: gcloud storage buckets "
            f"add-iam-policy-binding gs://{bucket} --member=user:YOU_OR_serviceAccount:IT --role={_ROLES[need]}"
        ) from error
    except exceptions.Unauthorized as error:
        raise OutputError(
            f"gs://{bucket} does not accept the credentials of {identity()}: they are missing or expired. "
            "Log in again: gcloud auth application-default login"
        ) from error
    except GoogleAuthError as error:
        raise OutputError(
            f"The Google credentials cannot be used for {uri} ({_first_line(error)}). "
            "Log in again: gcloud auth application-default login"
        ) from error


_ROLES = {
    "storage.objects.get": "roles/storage.objectViewer",
    "storage.objects.list": "roles/storage.objectViewer",
    "storage.objects.create": "roles/storage.objectCreator",
    "storage.objects.delete": "roles/storage.objectUser",
}


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def read(uri: str) -> bytes:
    """A small object, whole. Raises FileNotFoundError where there is none, T5prepError where it may not be read."""
    from google.api_core.exceptions import NotFound

    bucket, name = split(uri)
    with speaking(uri, need="storage.objects.get"):
        try:
            content: bytes = client().bucket(bucket).blob(name).download_as_bytes(checksum="crc32c")
        except NotFound:
            raise FileNotFoundError(uri) from None
        return content


def sizes(uri: str) -> dict[str, int]:
    """The objects directly under a prefix: name → bytes."""
    from google.api_core.exceptions import NotFound

    bucket, prefix = split(uri)
    prefix = prefix and prefix + "/"
    with speaking(uri, need="storage.objects.list"):
        try:
            blobs = client().list_blobs(bucket, prefix=prefix, delimiter="/", fields="items(name,size),nextPageToken")
            return {blob.name[len(prefix) :]: blob.size for blob in blobs}
        except NotFound:
            raise DatasetError(f"There is no bucket gs://{bucket}. List yours: gcloud storage buckets list") from None


__all__ = ["SCHEME", "T5prepError", "client", "identity", "is_gs", "read", "sizes", "speaking", "split"]

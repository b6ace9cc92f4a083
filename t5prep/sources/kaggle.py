"""Read Kaggle datasets through kagglehub's client, which finds the user's credentials and calls the API.

`kagglehub.dataset_download` is not used. It unpacks archives of any size to disk, fails at the first 429, and lets
two processes write the same file.
"""

import base64
import contextlib
import dataclasses
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import requests

from t5prep.errors import SourceError
from t5prep.sources import archives, local
from t5prep.sources.http import STATUSES, Blob, Broken, Download, Refused, Retries, connection_errors, fetch
from t5prep.sources.raw import RawFile, Resolved, SourceLocation, checked

if TYPE_CHECKING:
    from kagglesdk.datasets.services.dataset_api_service import DatasetApiClient
    from kagglesdk.datasets.types.dataset_api_service import ApiDataset

T = TypeVar("T")
_TOKEN_ADVICE = (
    "Make an API token on your Kaggle settings page, and save it as ~/.kaggle/access_token "
    "or in the environment variable KAGGLE_API_TOKEN."
)


def resolve(location: SourceLocation, *, include: Sequence[str], progress: bool | None) -> Resolved:
    """Return a dataset (with `#file`, one file of it) at its latest or the given version. Raises SourceError."""
    with _client() as client:
        from kagglesdk.datasets.types.dataset_api_service import ApiGetDatasetRequest

        request = ApiGetDatasetRequest()
        request.owner_slug, request.dataset_slug = location.name.split("/")
        dataset, latest = _call(lambda: _with_version(client.get_dataset(request)), location)
        version = int(location.revision or latest)
        if latest and version > latest:
            raise SourceError(
                f"{location.uri} names a version that does not exist. Use version {latest} or an earlier one.",
                code="kaggle.unknown-version",
            )
        blob, arrived, checksum = _fetch(client, location, version, progress=progress)
    files: list[RawFile] = []
    if archives.is_zip(arrived):
        # A dataset arrives as one zip, and a large file may, too. That zip is only for transport, so names do not
        # contain it.
        with blob.path.open("rb") as archive:
            files, offered = local.expand_archive(
                archive, path=str(blob.path), name=arrived, include=() if location.part else include, checksum=checksum
            )
        if location.part and arrived != location.part and len(files) == 1:
            files = [dataclasses.replace(files[0], name=location.part)]
    else:
        files, offered = local.expand(blob.path, name=arrived, include=include, sha256=blob.sha256, checksum=checksum)
    address = f"https://www.kaggle.com/datasets/{location.name}"
    return Resolved(
        location.uri,
        revision=f"version {version}",
        files=checked(files, location.uri, include=include, offered=offered),
        licence=dataset.license_name or "",
        citation=f"{dataset.creator_name or location.name.partition('/')[0]}. {dataset.title or location.name} "
        f"(version {version}). Kaggle. {address}",
        is_named=bool(location.part) and not archives.is_archive(location.part),
    )


def _with_version(dataset: "ApiDataset") -> tuple["ApiDataset", int]:
    """Return the dataset and its latest version, 0 for none. Raises ValueError or TypeError for an answer of another kind."""
    return dataset, int(dataset.current_version_number or 0)


def _fetch(
    client: "DatasetApiClient", location: SourceLocation, version: int, *, progress: bool | None
) -> tuple[Blob, str, str]:
    """Return the cached bytes, the name of what arrived (`data.csv` or `data.csv.zip`), and the published MD5."""
    from kagglesdk.datasets.types.dataset_api_service import ApiDownloadDatasetRequest

    request = ApiDownloadDatasetRequest()
    request.owner_slug, request.dataset_slug = location.name.split("/")
    request.dataset_version_number = version
    if location.part:
        request.file_name = location.part

    def request_redirect() -> requests.Response:
        """Return Kaggle's redirect to a signed address. It expires, so it is requested before each try."""
        response = _call(lambda: client.download_dataset(request), location)
        response.close()
        return response

    answer = request_redirect()
    arrived = location.part or f"{location.name.partition('/')[2]}.zip"
    if location.part and answer.url.partition("?")[0].endswith(".zip") and not archives.is_zip(location.part):
        arrived = f"{location.part}.zip"
    # x-goog-hash: crc32c=...,md5=<base64>
    md5 = re.search(r"md5=([A-Za-z0-9+/]{22}==)", answer.headers.get("x-goog-hash", ""))
    checksum = f"md5:{base64.b64decode(md5.group(1)).hex()}" if md5 else ""
    key = f"kaggle:{location.name}@{version}#{location.part} {checksum}"
    size = int(answer.headers["Content-Length"]) if answer.headers.get("Content-Length", "").isdigit() else None
    download = Download(lambda: request_redirect().url, arrived, checksum, size, progress=progress)
    try:
        return fetch(key, download), arrived, checksum
    except Refused as refused:
        raise SourceError(f"{location.uri}: {refused} Run this again later.", code="kaggle.unavailable") from None


@contextlib.contextmanager
def _client() -> Iterator["DatasetApiClient"]:
    """Yield Kaggle's dataset API. stdout is discarded, because the client prints to it, in test environments even headers."""
    with contextlib.redirect_stdout(io.StringIO()):
        from kagglehub.clients import build_kaggle_client

        try:
            client = build_kaggle_client()
        except (ValueError, OSError) as error:  # its message has the name of the file, never its content
            raise SourceError(f"{error}. {_TOKEN_ADVICE}", code="kaggle.invalid-credentials") from None
        with client:
            yield client.datasets.dataset_api_client


def _call(ask: Callable[[], T], location: SourceLocation) -> T:
    """Return the result of `ask`, a call of the API, with retries. Raises SourceError with the fix."""
    retries = Retries(location.uri)
    while True:
        try:
            with connection_errors():
                try:
                    return ask()
                except requests.exceptions.HTTPError as error:
                    answer = error.response
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                    # Some exceptions of requests are ValueErrors, too. They belong to `connection_errors`, unless
                    # they are about JSON.
                    if isinstance(error, requests.exceptions.RequestException) and not isinstance(
                        error, requests.exceptions.JSONDecodeError
                    ):
                        raise
                    raise SourceError(
                        "Kaggle does not answer as its API does. Check whether a proxy or a sign-in page intercepts "
                        "the request.",
                        code="kaggle.invalid-response",
                    ) from None
        except Broken as broken:
            retries.wait(str(broken))
            continue
        assert answer is not None, "the client always gives one"
        if answer.status_code not in STATUSES:
            raise _refusal(location, answer.status_code) from None
        retries.wait(f"Kaggle answers {answer.status_code}", headers=answer.headers)


def _refusal(location: SourceLocation, status: int) -> SourceError:
    """Return the error that says why Kaggle answers a request with this HTTP status, and what to do."""
    from kagglehub.config import get_kaggle_credentials

    has_credentials = get_kaggle_credentials() is not None
    if status == 401:
        code, problem = "kaggle.invalid-credentials", f"Kaggle rejects the credentials ({status}). {_TOKEN_ADVICE}"
    elif status == 403 and has_credentials:
        code, problem = (
            "kaggle.access-denied",
            "Kaggle denies access (403): the dataset is private, or requires consent. Accept its terms at "
            f"https://www.kaggle.com/datasets/{location.name}, or use another token.",
        )
    elif status in (403, 404) and not has_credentials:
        code, problem = (
            "kaggle.missing-credentials",
            f"Kaggle shows no such dataset without credentials ({status}). If the name is right, it is private. {_TOKEN_ADVICE}",
        )
    elif status == 404:
        code, problem = (
            "kaggle.not-found",
            f"Kaggle has no such dataset, version or file (404). Check https://www.kaggle.com/datasets/{location.name}",
        )
    else:
        code, problem = "kaggle.unavailable", f"Kaggle answers {status}. Run this again later."
    return SourceError(f"{location.uri}: {problem}", code=code)

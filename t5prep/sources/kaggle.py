"""Read Kaggle datasets through its API, with the credentials that kagglehub finds.

kagglehub's own client is not used. It waits for ever, reads answers of any size (and a file that is JSON as an answer),
follows redirects to http, unpacks archives of any size to disk, and fails at the first 429.
"""

import base64
import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence

from t5prep.errors import SourceError
from t5prep.json_values import JSONObject
from t5prep.sources import archives, http, local
from t5prep.sources.http import Blob, Download, Refused, fetch
from t5prep.sources.raw import RawFile, Resolved, SourceLocation, checked

API = "https://api.kaggle.com/v1/datasets.DatasetApiService"
_TOKEN_ADVICE = (
    "Make an API token on your Kaggle settings page, and save it as ~/.kaggle/access_token "
    "or in the environment variable KAGGLE_API_TOKEN."
)


def resolve(location: SourceLocation, *, include: Sequence[str], progress: bool | None) -> Resolved:
    """Return a dataset (with `#file`, one file of it) at its latest or the given version. Raises SourceError."""
    owner, _, slug = location.name.partition("/")
    request: dict[str, str | int] = {"ownerSlug": owner, "datasetSlug": slug}
    headers = _authorization()
    with _refusals(location, has_credentials=bool(headers)):
        dataset = http.get_json(f"{API}/GetDataset", display_name=location.uri, headers=headers, post=request)
    latest = dataset.get("currentVersionNumber") or 0
    licence, creator, title = (dataset.get(name) or "" for name in ("licenseName", "creatorName", "title"))
    if type(latest) is not int or not all(isinstance(text, str) for text in (licence, creator, title)):
        raise _invalid()
    version = int(location.revision or latest)
    if version < 1:
        raise _invalid()
    if latest and version > latest:
        raise SourceError(
            f"{location.uri} names a version that does not exist. Use version {latest} or an earlier one.",
            code="kaggle.not-found",
        )
    request |= {"datasetVersionNumber": version, **({"fileName": location.part} if location.part else {})}
    try:
        blob, arrived, checksum = _fetch(location, request, headers, progress=progress)
    except Refused as refused:
        raise SourceError(f"{location.uri}: {refused} Run this again later.", code="kaggle.unavailable") from None
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
        licence=licence,
        citation=f"{creator or owner}. {title or location.name} (version {version}). Kaggle. {address}",
        is_named=bool(location.part) and not archives.is_archive(location.part),
    )


def _fetch(
    location: SourceLocation, request: JSONObject, headers: dict[str, str], *, progress: bool | None
) -> tuple[Blob, str, str]:
    """Return the cached bytes, the name of what arrived (`data.csv` or `data.csv.zip`), and the published MD5."""

    def signed_address() -> str:
        """Return the address that Kaggle redirects to. It expires, so it is requested before each try."""
        with (
            _refusals(location, has_credentials=bool(headers)),
            http.get(f"{API}/DownloadDataset", display_name=location.uri, headers=headers, post=request) as response,
        ):
            address = response.headers.get("Location", "")
        if not address.startswith("https://"):
            raise _invalid()
        http.check_redirect(API, address, display_name=location.uri)
        return address

    with http.get(signed_address(), display_name=location.uri) as answer:
        pass  # only its headers are needed
    arrived = location.part or f"{location.name.partition('/')[2]}.zip"
    if location.part and answer.url.partition("?")[0].endswith(".zip") and not archives.is_zip(location.part):
        arrived = f"{location.part}.zip"
    # x-goog-hash: crc32c=...,md5=<base64>
    md5 = re.search(r"md5=([A-Za-z0-9+/]{22}==)", answer.headers.get("x-goog-hash", ""))
    checksum = f"md5:{base64.b64decode(md5.group(1)).hex()}" if md5 else ""
    key = f"kaggle:{location.name}@{request['datasetVersionNumber']}#{location.part} {checksum}"
    download = Download(signed_address, arrived, checksum, http.total_bytes_of(answer), progress=progress)
    return fetch(key, download), arrived, checksum


def _authorization() -> dict[str, str]:
    """Return the header with the user's credentials, {} without ones. Raises SourceError."""
    from kagglehub.config import get_kaggle_credentials

    try:
        credentials = get_kaggle_credentials()
    except (ValueError, OSError) as error:  # its message has the name of the file, never its content
        raise SourceError(f"{error}. {_TOKEN_ADVICE}", code="kaggle.invalid-credentials") from None
    if not credentials:
        return {}
    user_key = f"{credentials.username}:{credentials.key}"
    basic = f"Basic {base64.b64encode(user_key.encode()).decode()}"
    return {"Authorization": f"Bearer {credentials.api_key.strip()}" if credentials.api_key else basic}


def _invalid() -> SourceError:
    """Return the error about an answer that is not one of Kaggle's API."""
    return SourceError(
        "Kaggle does not answer as its API does. Check whether a proxy or a sign-in page intercepts the request.",
        code="kaggle.invalid-response",
    )


@contextlib.contextmanager
def _refusals(location: SourceLocation, *, has_credentials: bool) -> Iterator[None]:
    """Convert Refused into the SourceError that says why Kaggle refuses a request, and what to do."""
    try:
        yield
    except Refused as refused:
        status = refused.status
    else:
        return
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
    raise SourceError(f"{location.uri}: {problem}", code=code)

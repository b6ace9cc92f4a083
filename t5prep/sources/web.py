"""Download one file from an https:// address, or a record of Zenodo."""

import email.message
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TypedDict
from urllib.parse import quote, unquote, urlsplit

import requests

from t5prep.errors import SourceError
from t5prep.sources import archives, http, local
from t5prep.sources.http import Blob, Download, fetch
from t5prep.sources.raw import RawFile, Resolved, SourceLocation, checked, is_requested

# Web pages that describe a corpus, and the scheme of the corpus on each.
_PAGES = {
    re.compile(r"https?://(?:www\.)?kaggle\.com/datasets/([\w-]+/[\w-]+)(?:[/?#].*)?"): "kaggle:",
    re.compile(r"https?://huggingface\.co/datasets/([\w.-]+/[\w.-]+)/?(?:tree/.*|viewer/.*)?(?:[?#].*)?"): "hf:",
    re.compile(r"https?://(?:www\.)?zenodo\.org/records?/(\d+)/?(?:[?#].*)?"): "zenodo:",
}


def resolve(location: SourceLocation, *, url: str, include: Sequence[str], progress: bool | None) -> Resolved:
    """Return a downloaded file, from the cache while its host (ETag, Last-Modified) shows no change.

    `url` may contain credentials: it is sent to its host and stored nowhere. Raises SourceError.
    """
    for page, scheme in _PAGES.items():
        if match := page.fullmatch(url):
            raise SourceError(
                f"{location.uri} is a web page about a dataset, not its data. Name the dataset as "
                f"{scheme}{match.group(1)}",
                code="source.corpus-page",
            )
    try:
        with http.get(url, display_name=location.uri) as answer:
            etag, date = answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", "")
            name = _name(url, answer)
            version = etag or (date and f"{date} {answer.headers.get('Content-Length', '')}")
        # Without a version nothing shows that a cached file is current, so each run downloads it.
        blob = fetch(f"{url} {version or uuid.uuid4().hex}", Download(lambda: url, name, progress=progress))
    except http.Refused as refused:
        raise SourceError(f"{refused} {_advice(refused.status)}", code="source.request-refused") from None
    checksum = f"etag:{etag}" if etag else ""
    files, offered = local.expand(blob.path, name=name, include=include, sha256=blob.sha256, checksum=checksum)
    files_found = checked(files, location.uri, include=include, offered=offered)
    is_named = not archives.is_archive(name)
    return Resolved(
        location.uri, f"sha256:{blob.sha256}", files_found, licence="", citation=location.uri, is_named=is_named
    )


def _name(url: str, answer: requests.Response) -> str:
    """Return the file name in the address, or in Content-Disposition if the address has none."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if "." not in name:
        header = email.message.Message()
        header["Content-Disposition"] = answer.headers.get("Content-Disposition", "")
        name = PurePosixPath(header.get_filename() or name or "data").name
    packed = answer.headers.get("Content-Encoding", "") == "gzip" and not name.endswith(".gz")
    return f"{name}.gz" if packed else name  # some hosts compress all the same; the suffix unpacks it


def _advice(status: int) -> str:
    """Return the advice for a status."""
    if status in (401, 403, 407):
        return "If the file is yours to read, download it with your browser and name it here."
    return "Check the address in a browser."


# Records of Zenodo, by its records API: files with an MD5 each, a licence and a citation.

API = "https://zenodo.org/api/records"


def resolve_zenodo(location: SourceLocation, *, include: Sequence[str], progress: bool | None) -> Resolved:
    """Return the requested files of a record, and of its archives, which are always downloaded to be searched. Raises SourceError."""
    record = _record(location)
    entries = [entry for entry in record.get("files") or [] if not location.part or _key(entry) == location.part]
    offered = [_key(entry) for entry in record.get("files") or []]
    if not entries:
        raise SourceError(
            f"zenodo:{location.name} has no file {location.part}. It has {', '.join(offered)}."
            if location.part and offered
            else f"zenodo:{location.name} has no files to download: it is restricted, or only a description. {_TOKEN_ADVICE}",
            code="zenodo.missing-file",
        )
    files: list[RawFile] = []
    for entry in entries:
        key = _key(entry)
        if archives.is_archive(key) or is_requested(key, include):
            blob, checksum = _fetch(location, entry, progress=progress)
            expanded_files, names = local.expand(
                blob.path, name=key, include=include, sha256=blob.sha256, checksum=checksum
            )
            files += expanded_files
            offered += names
    metadata = record.get("metadata") or {}
    doi = record.get("doi") or f"10.5281/zenodo.{record.get('id', location.name)}"
    return Resolved(
        location.uri,
        revision=f"doi:{doi}",
        files=checked(files, location.uri, include=include, offered=offered),
        licence=str((metadata.get("license") or {}).get("id", "")),
        citation=_citation(metadata, doi),
        is_named=bool(location.part) and not archives.is_archive(location.part),
    )


_TOKEN_ADVICE = "For a restricted record put your own token in the environment variable ZENODO_TOKEN."


class _Metadata(TypedDict, total=False):
    """Fields of a record's metadata that are used here."""

    title: str
    creators: list[dict[str, str]]
    publication_date: str
    version: str
    license: dict[str, str]


class _Entry(TypedDict, total=False):
    """A file of a record; older records have `filename` and `filesize`."""

    key: str
    filename: str
    checksum: str
    size: int
    filesize: int
    links: dict[str, str]


class _Record(TypedDict, total=False):
    """A record in the form of Zenodo's API, and of its older versions."""

    id: int
    doi: str
    metadata: _Metadata
    files: list[_Entry]


def _record(location: SourceLocation) -> _Record:
    """Return the record of a source. Raises SourceError."""
    try:
        record: _Record = http.get_json(
            f"{API}/{location.name}", display_name=f"zenodo:{location.name}", headers=_token()
        )
        return record
    except http.Refused as refused:
        if refused.status in (404, 410):
            raise SourceError(
                f"Zenodo has no record {location.name}. Use the number in the address of the record.",
                code="zenodo.not-found",
            ) from None
        if refused.status in (401, 403):
            raise SourceError(
                f"Zenodo denies access to the record {location.name} ({refused.status}). {_TOKEN_ADVICE}",
                code="zenodo.access-denied",
            ) from None
        raise SourceError(str(refused), code="zenodo.unavailable") from None


def _fetch(location: SourceLocation, entry: _Entry, *, progress: bool | None) -> tuple[Blob, str]:
    """Return the cached file of an entry, and its checksum. Raises SourceError."""
    key, checksum = _key(entry), str(entry.get("checksum") or "")
    link = (entry.get("links") or {}).get("self") or f"{API}/{location.name}/files/{quote(key)}/content"
    size = entry.get("size", entry.get("filesize"))
    # Older records have a bare digest; the records API returns "md5:<digest>".
    checksum = checksum if ":" in checksum or not checksum else f"md5:{checksum}"
    download = Download(lambda: link, key, checksum, size, headers=_token(), progress=progress)
    try:
        return fetch(f"zenodo:{location.name}/{key} {checksum}", download), checksum
    except http.Refused as refused:
        raise SourceError(
            f"{refused} {_TOKEN_ADVICE if refused.status in (401, 403) else 'Run this again later.'}",
            code="zenodo.access-denied" if refused.status in (401, 403) else "zenodo.unavailable",
        ) from None


def _key(entry: _Entry) -> str:
    """Return the file name of an entry."""
    return str(entry.get("key") or entry.get("filename"))


def _token() -> dict[str, str]:
    """Return the header with the user's token, {} without one."""
    token = os.environ.get("ZENODO_TOKEN", "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _citation(metadata: _Metadata, doi: str) -> str:
    """Return the citation in Zenodo's form: creators (year). title (version). Zenodo. DOI."""
    creators = "; ".join(str(creator.get("name", "")) for creator in metadata.get("creators") or [])
    year = str(metadata.get("publication_date") or "")[:4]
    version = f" ({metadata['version']})" if metadata.get("version") else ""
    attribution = f"{creators} ({year}). " if creators else ""
    return f"{attribution}{metadata.get('title', '')}{version}. Zenodo. https://doi.org/{doi}"

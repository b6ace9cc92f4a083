"""Download one file from an https:// address, or a record of Zenodo."""

import dataclasses
import email.message
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
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
    return Resolved(location.uri, f"sha256:{blob.sha256}", files_found, citation=location.uri, is_named=is_named)


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
    entries = [entry for entry in record.files if location.part in ("", entry.key)]
    offered = [entry.key for entry in record.files]
    if not entries:
        raise SourceError(
            f"zenodo:{location.name} has no file {location.part}. It has {', '.join(offered)}."
            if location.part and offered
            else f"zenodo:{location.name} has no files to download: it is restricted, or only a description. {_TOKEN_ADVICE}",
            code="zenodo.missing-file",
        )
    files: list[RawFile] = []
    for entry in entries:
        if archives.is_archive(entry.key) or is_requested(entry.key, include):
            blob = _fetch(location, entry, progress=progress)
            expanded_files, names = local.expand(
                blob.path, name=entry.key, include=include, sha256=blob.sha256, checksum=entry.checksum
            )
            files += expanded_files
            offered += names
    return Resolved(
        location.uri,
        revision=f"doi:{record.doi}",
        files=checked(files, location.uri, include=include, offered=offered),
        licence=record.licence,
        citation=record.citation,
        is_named=bool(location.part) and not archives.is_archive(location.part),
    )


_TOKEN_ADVICE = "For a restricted record put your own token in the environment variable ZENODO_TOKEN."


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A file of a record. `checksum` is "" and `size` is None if they are unknown."""

    key: str
    checksum: str
    size: int | None
    address: str


@dataclasses.dataclass(frozen=True)
class _Record:
    """Hold the facts of a record that are used here."""

    doi: str
    licence: str
    citation: str
    files: list[_Entry]


def _record(location: SourceLocation) -> _Record:
    """Return the record of a source. Raises SourceError."""
    source = f"zenodo:{location.name}"
    try:
        facts = http.get_json(f"{API}/{location.name}", display_name=source, headers=_token())
        metadata = facts.get("metadata") or {}
        doi = facts.get("doi") or f"10.5281/zenodo.{facts.get('id', location.name)}"
        licence = str((metadata.get("license") or {}).get("id", ""))
        files = [_entry(location, entry) for entry in facts.get("files") or []]
        return _Record(str(doi), licence, _citation(metadata, doi), files)
    except (AttributeError, TypeError, ValueError):
        raise SourceError(
            f"The host of {source} does not answer as Zenodo does. Check whether a proxy or a sign-in page intercepts "
            "the request.",
            code="source.invalid-response",
        ) from None
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


def _entry(location: SourceLocation, entry: Any) -> _Entry:
    """Return a file of a record; older records have `filename` and `filesize`. Raises AttributeError, TypeError or ValueError."""
    key = str(entry.get("key") or entry.get("filename"))
    size, checksum = entry.get("size", entry.get("filesize")), entry.get("checksum") or ""
    # Older records have a bare digest; the records API returns "md5:<digest>".
    checksum = checksum if ":" in checksum or not checksum else f"md5:{checksum}"
    if not re.fullmatch(r"((md5|sha1|sha256|sha512):[0-9a-fA-F]+)?", checksum) or type(size) not in (int, type(None)):
        raise ValueError
    # The user's token is sent with the request, so no other host is asked.
    address = str((entry.get("links") or {}).get("self"))
    is_known = address.startswith("https://zenodo.org/")
    return _Entry(key, checksum, size, address if is_known else f"{API}/{location.name}/files/{quote(key)}/content")


def _fetch(location: SourceLocation, entry: _Entry, *, progress: bool | None) -> Blob:
    """Return the cached file of an entry. Raises SourceError."""
    download = Download(
        lambda: entry.address, entry.key, entry.checksum, entry.size, headers=_token(), progress=progress
    )
    try:
        return fetch(f"zenodo:{location.name}/{entry.key} {entry.checksum}", download)
    except http.Refused as refused:
        raise SourceError(
            f"{refused} {_TOKEN_ADVICE if refused.status in (401, 403) else 'Run this again later.'}",
            code="zenodo.access-denied" if refused.status in (401, 403) else "zenodo.unavailable",
        ) from None


def _token() -> dict[str, str]:
    """Return the header with the user's token, {} without one."""
    token = os.environ.get("ZENODO_TOKEN", "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _citation(metadata: Any, doi: str) -> str:
    """Return the citation in Zenodo's form: creators (year). title (version). Zenodo. DOI."""
    creators = "; ".join(str(creator.get("name", "")) for creator in metadata.get("creators") or [])
    year = str(metadata.get("publication_date") or "")[:4]
    version = f" ({metadata['version']})" if metadata.get("version") else ""
    attribution = f"{creators} ({year}). " if creators else ""
    return f"{attribution}{metadata.get('title', '')}{version}. Zenodo. https://doi.org/{doi}"

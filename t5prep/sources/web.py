"""Download one file from an https:// address."""

import email.message
import re
import uuid
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import requests

from t5prep.errors import SourceError
from t5prep.sources import http, local
from t5prep.sources.download import Download, fetch
from t5prep.sources.raw import Place, Resolved, checked

# Web pages about a corpus, and the scheme of the corpus on each.
_PAGES = {
    re.compile(r"https?://(?:www\.)?kaggle\.com/datasets/([\w-]+/[\w-]+)(?:[/?#].*)?"): "kaggle:",
    re.compile(r"https?://huggingface\.co/datasets/([\w.-]+/[\w.-]+)/?(?:tree/.*|viewer/.*)?(?:[?#].*)?"): "hf:",
    re.compile(r"https?://(?:www\.)?zenodo\.org/records?/(\d+)/?(?:[?#].*)?"): "zenodo:",
}


def resolve(place: Place, *, url: str, cache: Path | None, include: Sequence[str], progress: bool | None) -> Resolved:
    """Download the file, or take it from the cache while its host says (ETag, Last-Modified) that it is unchanged.

    `url` may hold credentials: it is sent to its host and written nowhere. Raises SourceError.
    """
    for page, scheme in _PAGES.items():
        if match := page.fullmatch(url):
            raise SourceError(f"{place.uri} is a page for people. The corpus on it is written {scheme}{match.group(1)}")
    try:
        with http.get(url, what=place.uri, stream=True) as answer:
            etag, date = answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", "")
            name = _name(url, answer)
            version = etag or (date and f"{date} {answer.headers.get('Content-Length', '')}")
        blob = fetch(
            f"{url} {version or uuid.uuid4().hex}",
            lambda part: Download(lambda: url, part, name, progress=progress).run(),
            cache=cache,
        )
    except http.Refused as refused:
        raise SourceError(f"{refused} {_advice(refused.status)}") from None
    checksum = f"etag:{etag}" if etag else ""
    files, offered = local.expand(blob.path, name=name, include=include, sha256=blob.sha256, checksum=checksum)
    files_found = checked(files, place.uri, include=include, offered=offered)
    return Resolved(place.uri, f"sha256:{blob.sha256}", files_found, licence="", citation=place.uri)


def _name(url: str, answer: requests.Response) -> str:
    """Return the name of the file: from its address, or if that has no file name, from Content-Disposition."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if "." not in name:
        header = email.message.Message()
        header["Content-Disposition"] = answer.headers.get("Content-Disposition", "")
        name = PurePosixPath(header.get_filename() or name or "data").name
    packed = answer.headers.get("Content-Encoding", "") == "gzip" and not name.endswith(".gz")
    return f"{name}.gz" if packed else name  # some hosts send it packed all the same; the suffix unpacks it


def _advice(status: int) -> str:
    if status in (401, 403, 407):
        return "If the file is yours to read, download it with your browser and name it here."
    return "Check the address in a browser."

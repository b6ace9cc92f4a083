"""Read records of Zenodo by its records API: files with an MD5 each, a licence and a citation."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from t5prep.errors import SourceError
from t5prep.sources import archives, http, local
from t5prep.sources.download import Blob, Download, fetch
from t5prep.sources.raw import Place, RawFile, Resolved, checked, wanted

API = "https://zenodo.org/api/records"


def resolve(place: Place, *, cache: Path | None, include: Sequence[str], progress: bool | None) -> Resolved:
    """Fetch the files of a record that are asked for, and every zip that may hold one. Raises SourceError."""
    record = _record(place)
    entries = [entry for entry in record.get("files") or [] if not place.part or _key(entry) == place.part]
    offered = [_key(entry) for entry in record.get("files") or []]
    if not entries:
        raise SourceError(
            f"zenodo:{place.name} has no file {place.part}. It has {', '.join(offered)}."
            if place.part and offered
            else f"zenodo:{place.name} has no files to download: it is restricted, or only a description. {_WHERE}"
        )
    files: list[RawFile] = []
    for entry in entries:
        key = _key(entry)
        if archives.is_zip(key) or wanted(key, include):
            blob, checksum = _fetch(place, entry, cache=cache, progress=progress)
            some, names = local.expand(blob.path, name=key, include=include, sha256=blob.sha256, checksum=checksum)
            files += some
            offered += names
    metadata = record.get("metadata") or {}
    doi = record.get("doi") or f"10.5281/zenodo.{record.get('id', place.name)}"
    return Resolved(
        place.uri,
        revision=f"doi:{doi}",
        files=checked(files, place.uri, include=include, offered=offered),
        licence=str((metadata.get("license") or {}).get("id", "")),
        citation=_citation(metadata, doi),
    )


_WHERE = "For a restricted record put your own token in the environment variable ZENODO_TOKEN."


def _record(place: Place) -> dict[str, Any]:
    try:
        return http.json(f"{API}/{place.name}", what=f"zenodo:{place.name}", headers=_token())
    except http.Refused as refused:
        if refused.status in (404, 410):
            raise SourceError(
                f"Zenodo has no record {place.name}. Take the number from the record's address."
            ) from None
        if refused.status in (401, 403):
            raise SourceError(f"Zenodo does not give record {place.name} to you ({refused.status}). {_WHERE}") from None
        raise SourceError(str(refused)) from None


def _fetch(place: Place, entry: dict[str, Any], *, cache: Path | None, progress: bool | None) -> tuple[Blob, str]:
    key, checksum = _key(entry), str(entry.get("checksum") or "")
    link = (entry.get("links") or {}).get("self") or f"{API}/{place.name}/files/{quote(key)}/content"
    size = entry.get("size", entry.get("filesize"))
    # Older records give the bare digest; the records API gives "md5:<digest>".
    checksum = checksum if ":" in checksum or not checksum else f"md5:{checksum}"

    def download(part: Path) -> Any:
        return Download(lambda: link, part, key, checksum, size, headers=_token(), progress=progress).run()

    try:
        return fetch(f"zenodo:{place.name}/{key} {checksum}", download, cache=cache), checksum
    except http.Refused as refused:
        raise SourceError(f"{refused} {_WHERE if refused.status in (401, 403) else 'Run this again later.'}") from None


def _key(entry: dict[str, Any]) -> str:
    return str(entry.get("key") or entry.get("filename"))


def _token() -> dict[str, str]:
    token = os.environ.get("ZENODO_TOKEN", "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _citation(metadata: dict[str, Any], doi: str) -> str:
    """Return the citation in Zenodo's own form: creators (year). title (version). Zenodo. DOI."""
    creators = "; ".join(str(creator.get("name", "")) for creator in metadata.get("creators") or [])
    year = str(metadata.get("publication_date") or "")[:4]
    version = f" ({metadata['version']})" if metadata.get("version") else ""
    who = f"{creators} ({year}). " if creators else ""
    return f"{who}{metadata.get('title', '')}{version}. Zenodo. https://doi.org/{doi}"

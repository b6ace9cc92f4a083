"""Resolve a source to pinned and checked raw files, and open them (for the grammar see `t5prep.sources.raw`).

`resolve` finds the raw files of a source and fetches them where needed; `open_stream` and `open_random` read one.
"""

import os
from collections.abc import Iterable

from t5prep.io import addresses
from t5prep.io.addresses import Address
from t5prep.sources import raw
from t5prep.sources.archives import is_archive
from t5prep.sources.opening import (
    check_unchanged,
    checksum,
    content_of_small,
    open_random,
    open_stream,
    sha256,
    unpacked_name,
)
from t5prep.sources.raw import RawFile, Resolved, parse

__all__ = [
    "RawFile",
    "Resolved",
    "check_unchanged",
    "checksum",
    "content_of_small",
    "open_random",
    "open_stream",
    "resolve",
    "sha256",
    "unpacked_name",
]


def resolve(
    uri: str, *, include: str | Iterable[str] = (), progress: bool | None = None, ignore_card: bool = False
) -> Resolved:
    """Return a source as pinned raw files, in the order of their names.

    include: fnmatch patterns over the files' names, or over the last parts of them; none means every file
    ignore_card: read every file of a dataset with a card, unless the source names a config of it
    progress: draw a bar on stderr; None draws it on a terminal only

    Raises SourceError, one sentence: what is wrong, and what to type next.
    """
    raw.quiet_logs()
    uri = Address(uri)
    addresses.remember(uri)
    if uri == "sample:":
        return _sample()
    if os.path.isfile(uri) and not is_archive(uri):
        include = ()  # one file that the user names is read whatever its name
    place, include = parse(uri), (include,) if isinstance(include, str) and include else tuple(include)
    match place.scheme:
        case "":
            from t5prep.sources import local

            return local.resolve(place, include=include, ignore_card=ignore_card)
        case "gs":
            from t5prep.sources import google_storage

            return google_storage.resolve(place, include=include)
        case "hf":
            from t5prep.sources import hub

            return hub.resolve(place, include=include, progress=progress, ignore_card=ignore_card)
        case "kaggle":
            from t5prep.sources import kaggle

            return kaggle.resolve(place, include=include, progress=progress)
        case "zenodo":
            from t5prep.sources import web

            return web.resolve_zenodo(place, include=include, progress=progress)
        case _:
            from t5prep.sources import web

            return web.resolve(place, url=uri.request, include=include, progress=progress)


def _sample() -> Resolved:
    """Write the built-in sample into the cache and return it as a source."""
    from t5prep.io import cache_folder
    from t5prep.sources import local, sample

    path = sample.write(cache_folder.root() / "sample" / "questions.csv")
    files, _ = local.expand(path, name="questions.csv")
    return Resolved(
        uri="sample:",
        revision="1",
        files=tuple(files),
        licence="Apache-2.0",
        citation="written for t5prep, t5prep/sources/sample",
    )

"""Resolve a source to pinned and checked raw files, and open them.

`resolve` finds the raw files of a source and downloads them where needed. `open_stream` and `open_random` read one
file. The forms of a source are described in `t5prep.sources.raw`.
"""

import collections
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from t5prep.errors import SourceError
from t5prep.io import addresses
from t5prep.io.addresses import Address
from t5prep.sources import raw, split_names
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

T = TypeVar("T")

__all__ = [
    "RawFile",
    "Resolved",
    "check_unchanged",
    "checksum",
    "content_of_small",
    "open_random",
    "open_stream",
    "resolve",
    "resolve_all",
    "sha256",
    "unpacked_name",
    "uris_of",
]


def resolve(
    uri: str, *, include: str | Iterable[str] = (), progress: bool | None = None, ignore_card: bool = False
) -> Resolved:
    """Return a source as pinned raw files, in the order of their names.

    include: fnmatch patterns that match a whole name or its last parts; none means all files ignore_card: read all
    files of a dataset with a card, unless the source names a config of it progress: draw a bar on stderr; None draws
    it on a terminal only

    Raises SourceError: one sentence with the problem and the fix.
    """
    raw.quiet_logs()
    uri = Address(uri)
    addresses.remember(uri)
    if uri == "sample:":
        return _sample()
    if os.path.isfile(uri) and not is_archive(uri):
        include = ()  # a file that the user names is read, whatever its name
    location, include = parse(uri), (include,) if isinstance(include, str) and include else tuple(include)
    match location.scheme:
        case "":
            from t5prep.sources import local

            return local.resolve(location, include=include, ignore_card=ignore_card)
        case "gs":
            from t5prep.sources import google_storage

            return google_storage.resolve(location, include=include)
        case "hf":
            from t5prep.sources import hub

            return hub.resolve(location, include=include, progress=progress, ignore_card=ignore_card)
        case "kaggle":
            from t5prep.sources import kaggle

            return kaggle.resolve(location, include=include, progress=progress)
        case "zenodo":
            from t5prep.sources import web

            return web.resolve_zenodo(location, include=include, progress=progress)
        case _:
            from t5prep.sources import web

            return web.resolve(location, url=uri.request, include=include, progress=progress)


_JOINED = " + "


def uris_of(uri: str) -> list[str]:
    """Return the source URIs in the URI of a Resolved, which joins several by " + ".

    >>> uris_of("a.csv + b.csv")
    ['a.csv', 'b.csv']
    """
    return [uri] if _JOINED not in uri or os.path.exists(uri) else uri.split(_JOINED)


def resolve_all(
    uris: Sequence[str], *, include: str | Iterable[str] = (), progress: bool | None = None, ignore_card: bool = False
) -> Resolved:
    """Return several sources as one. If two have files of the same name, all names are prefixed by the number of their source.

    Raises SourceError, also for a source that is given twice.
    """
    if repeated := [uri for uri, count in collections.Counter(uris).items() if count > 1]:
        raise SourceError(
            f"--source {addresses.public(repeated[0])} appears twice. Name each source once.", code="option.repeated"
        )
    parts = [resolve(uri, include=include, progress=progress, ignore_card=ignore_card) for uri in uris]
    if len(parts) == 1:
        return parts[0]
    names = [file.name for part in parts for file in part.files]
    # Names must be unique, because row ids and the manifest contain them.
    are_unique = len(set(names)) == len(names)
    files: list[RawFile] = []
    origins: dict[str, int] = {}
    for number, part in enumerate(parts, 1):
        for file in part.files:
            name = file.name if are_unique else f"{number}/{file.name}"
            origins[name] = number
            files.append(dataclasses.replace(file, name=name))
    joined = _JOINED.join(part.uri for part in parts)
    class_names = _merge([part.class_names for part in parts], uri=joined)
    parameters = _merge([part.parameters for part in parts], uri=joined)
    has_splits = [any(file.split for file in part.files) for part in parts]
    if any(has_splits) and not all(has_splits):
        raise SourceError(
            f"Some of the sources {joined} have splits, but others have none. {split_names.ADVICE}",
            code="split.ambiguous",
        )
    return Resolved(
        uri=joined,
        revision=_JOINED.join(part.revision for part in parts) if any(part.revision for part in parts) else "",
        files=raw.checked(files, joined, include=(), offered=()),
        licence=", ".join(dict.fromkeys(part.licence for part in parts if part.licence)),
        citation=" ".join(dict.fromkeys(part.citation for part in parts if part.citation)),
        class_names=class_names,
        parameters=parameters,
        is_named=all(part.is_named for part in parts),
        origins=origins,
    )


def _merge(cards: Iterable[Mapping[str, T]], *, uri: str) -> dict[str, T]:
    """Return the joined entries of several cards. Raises SourceError if two have different values for one name."""
    merged: dict[str, T] = {}
    for card in cards:
        for name, value in card.items():
            if merged.setdefault(name, value) != value:
                raise SourceError(
                    f"The dataset cards of {uri} differ in {name}. Prepare each source separately.",
                    code="source.card-conflict",
                )
    return merged


def _sample() -> Resolved:
    """Return the built-in sample as a source, after writing it into the cache."""
    from t5prep.io import store
    from t5prep.sources import local, sample

    path = sample.write(store.root() / "sample" / "questions.csv")
    files, _ = local.expand(path, name="questions.csv")
    return Resolved(
        uri="sample:",
        revision="1",
        files=tuple(files),
        licence="Apache-2.0",
        citation="written for t5prep, t5prep/sources/sample",
    )

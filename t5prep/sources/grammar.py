"""Parse the names of sources.

kaggle:owner/slug[@version][#file]      zenodo:RECORD[#file]   zenodo:10.5281/zenodo.RECORD[#file]
hf:owner/name[@revision][#config]       https://host/file      gs://bucket/prefix or glob
a file, a directory or a glob
"""

import dataclasses
import re
from pathlib import Path

from t5prep.errors import SourceError, did_you_mean
from t5prep.sources import redact

EXAMPLES = {
    "kaggle": "kaggle:imoore/60k-stack-overflow-questions-with-quality-rate",
    "zenodo": "zenodo:7186761",
    "hf": "hf:nyu-mll/glue#sst2",
    "https": "https://example.org/corpus.csv.gz",
    "http": "http://localhost:8000/corpus.csv.gz",
    "gs": "gs://bucket/corpus/*.parquet",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_SHAPES = {
    "kaggle": re.compile(r"(?P<name>[\w-]+/[\w-]+)(?:@(?P<revision>\d+))?(?:#(?P<part>.+))?"),
    "zenodo": re.compile(r"(?:(?:https?://doi\.org/)?10\.5281/zenodo\.)?(?P<name>\d+)(?:#(?P<part>.+))?"),
    "hf": re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?:#(?P<part>[^#]+))?"),
    "https": re.compile(r"(?P<name>//[^/\s]+/\S*)"),
    "http": re.compile(r"(?P<name>//[^/\s]+/\S*)"),
    "gs": re.compile(r"//(?P<name>[^/\s@]+(?:/.*)?)"),
}


@dataclasses.dataclass(frozen=True)
class Place:
    """Hold a source as the user wrote it: `scheme` "" is a path. `revision` and `part` are "" where none is given."""

    scheme: str
    name: str
    revision: str = ""
    part: str = ""
    uri: str = ""


def parse(uri: str) -> Place:
    """Parse the name of a source. Raises SourceError, with an example, for an unknown scheme or a malformed address.

    >>> parse("hf:wmt/wmt16@main#ro-en")
    Place(scheme='hf', name='wmt/wmt16', revision='main', part='ro-en', uri='hf:wmt/wmt16@main#ro-en')
    >>> parse("zenodo:10.5281/zenodo.7186761").name
    '7186761'
    """
    scheme_match = _SCHEME.match(uri)
    if not uri.strip():
        raise SourceError(f"The source is empty. Name a file, or a corpus such as {EXAMPLES['hf']}.")
    if not scheme_match or Path(uri).exists():
        return Place("", uri, uri=uri)
    scheme = scheme_match.group(1).lower()
    if scheme not in _SHAPES:
        raise SourceError(
            f'"{scheme}:" is not a kind of source.{did_you_mean(scheme, EXAMPLES)} '
            f"Name a file, a directory, a glob, or a corpus such as {EXAMPLES['kaggle']}, {EXAMPLES['zenodo']}, "
            f"{EXAMPLES['hf']} or {EXAMPLES['https']}."
        )
    shape = _SHAPES[scheme].fullmatch(uri[scheme_match.end() :])
    if not shape:
        raise SourceError(f"{redact.text(uri)} is not a whole {scheme}: source. Write it like {EXAMPLES[scheme]}")
    groups = {key: value or "" for key, value in shape.groupdict().items()}
    return Place(scheme, uri=redact.address(uri) if scheme in ("http", "https") else uri, **groups)

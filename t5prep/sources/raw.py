"""Name a source as the user writes it, and describe what it resolves to: raw files with stable names, revision, licence.

The log lines of the HTTP libraries are shown without credentials; what a user gives is an `Address` (t5prep.io.addresses).
"""

import dataclasses
import itertools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from t5prep.errors import SourceError, did_you_mean
from t5prep.io import installation
from t5prep.io.addresses import Address
from t5prep.json_values import JSONObject

_USERINFO = re.compile(r"(?<=://)[^/\s@\"']+@")
_QUERY = re.compile(r"(?<=\?)[^\s\"'<>)\]]+")
_AUTHORIZATION = re.compile(r"\b(Bearer|Basic)\s+[^\s\"',]+", re.IGNORECASE)

# The loggers that log addresses with their queries: urllib3 at DEBUG, httpx at INFO, httpcore (redirects) at DEBUG.
_TALKERS = (
    "urllib3.connectionpool",
    "urllib3.util.retry",
    "httpx2",
    "httpx",
    *(f"httpcore{two}.{part}" for two in ("2", "") for part in ("connection", "proxy", "http11", "http2")),
)


def text(message: str) -> str:
    """Return a line of a log without the credentials of every address, path and header in it."""
    return _AUTHORIZATION.sub(r"\1 …", _QUERY.sub("…", _USERINFO.sub("", message)))


class _Redacted(logging.Filter):
    """Rewrite a log record in place; never drop one."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = text(record.getMessage()), ()
        return True


_FILTER = _Redacted()


def quiet_logs() -> None:
    """Make the loggers of the HTTP libraries leave credentials out. Calling it again does no harm."""
    for name in _TALKERS:
        logging.getLogger(name).addFilter(_FILTER)
    for handler in logging.getLogger("huggingface_hub").handlers:
        handler.addFilter(_FILTER)


# Name a source as the user writes it, and describe what it resolves to: raw files with stable names, revision, licence.
#
# kaggle:owner/slug[@version][#file]      zenodo:RECORD[#file]   zenodo:10.5281/zenodo.RECORD[#file]
# hf:owner/name[@revision][#config]       https://host/file      gs://bucket/prefix or glob
# a file, a directory or a glob

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
class SourceLocation:
    """A source as the user wrote it: `scheme` "" is a path. `revision` and `part` are "" if none is given."""

    scheme: str
    name: str
    revision: str = ""
    part: str = ""
    uri: str = ""


def parse(uri: str) -> SourceLocation:
    """Parse the name of a source. Raises SourceError, with an example, for an unknown scheme or a malformed address.

    >>> parse("hf:wmt/wmt16@main#ro-en")
    SourceLocation(scheme='hf', name='wmt/wmt16', revision='main', part='ro-en', uri='hf:wmt/wmt16@main#ro-en')
    >>> parse("zenodo:10.5281/zenodo.7186761").name
    '7186761'
    """
    request = Address(uri).request
    uri = str(Address(uri))
    scheme_match = _SCHEME.match(request)
    if not uri.strip():
        raise SourceError(f"The source is empty. Name a file, or a corpus such as {EXAMPLES['hf']}.")
    if not scheme_match or Path(request).exists():
        return SourceLocation("", uri, uri=uri)
    scheme = scheme_match.group(1).lower()
    if scheme not in _SHAPES:
        raise SourceError(
            f'"{scheme}:" is not a kind of source.{did_you_mean(scheme, EXAMPLES)} '
            f"Name a file, a directory, a glob, or a corpus such as {EXAMPLES['kaggle']}, {EXAMPLES['zenodo']}, "
            f"{EXAMPLES['hf']} or {EXAMPLES['https']}."
        )
    shape = _SHAPES[scheme].fullmatch(request[scheme_match.end() :])
    if not shape:
        raise SourceError(f"{uri} is not a whole {scheme}: source. Write it like {EXAMPLES[scheme]}")
    groups = {key: value or "" for key, value in shape.groupdict().items()}
    if scheme in ("http", "https"):
        groups["name"] = uri[scheme_match.end() :]  # what is sent to the host is the address's request
    return SourceLocation(scheme, uri=uri, **groups)


@dataclasses.dataclass(frozen=True)
class RawFile:
    """Describe one file, or one member of an archive, from which rows are read.

    name: its name inside the source: unique, `/`-separated, stable across machines (row ids and the manifest hold it)
    path: the place of the bytes: a local path, or what is read by range (`hf://`, `gs://`)
    bytes: its size; for a member the unpacked size
    member: the member inside the archive at `path`; "" means the file itself
    sha256: hex, where it is already known
    checksum: as the publisher gives it ("md5:..." or "sha256:..."; of the archive, for a member)
    offset: where the bytes of a tar's member begin in the archive, unpacked if it is packed; 0 for any other file
    modified: when the local file at `path` was last written, in nanoseconds since 1970; 0 for any other
    split: its split, where a card or the user says it; "" where it is not known yet, or where rows are drawn
    """

    name: str
    path: str
    bytes: int
    member: str = ""
    sha256: str = ""
    checksum: str = ""
    modified: int = 0
    offset: int = 0
    split: str = ""

    @property
    def archive(self) -> str:
        """Return the name of the archive that this is a member of, "" where it is none or where its name is not kept.

        >>> RawFile("a/b.zip/c.csv", "/tmp/b.zip", 3, member="c.csv").archive
        'a/b.zip'
        """
        member = self.member.replace("\\", "/").removeprefix("./")
        return self.name.removesuffix(member).rstrip("/") if self.member and self.name.endswith(member) else ""


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A pinned source: the URI asked for (without credentials), revision, files, licence, citation, and what its card says.

    class_names: the names of classes of columns that hold numbers
    parameters: what its card says of reading its files, such as `sep`
    base: the folder of its config, "" for the top: names tell splits from there on
    is_named: the user named one file or a glob, so one file's name alone tells no split
    origins: of several sources, the number of the one that each file is of, by its name
    """

    uri: str
    revision: str
    files: tuple[RawFile, ...]
    licence: str
    citation: str
    class_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    parameters: JSONObject = dataclasses.field(default_factory=dict)
    base: str = ""
    is_named: bool = False
    origins: Mapping[str, int] = dataclasses.field(default_factory=dict)


def is_requested(name: str, include: Sequence[str]) -> bool:
    """Check whether a file of this name was asked for: by its whole name or by the last parts of it.

    >>> is_requested("a.zip/input/squad2_train.csv", ["squad2_*.csv"])
    True
    >>> is_requested("a.zip/input/squad2_train.csv", ["*/eli5_*.csv"])
    False
    """
    return not include or any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for pattern in include)


# Files that lie beside data and hold no rows, whatever their format.
METADATA = re.compile(
    r"(^|/)(licen[cs]e|copying|notice|readme|citation|changelog|authors|contributing|requirements|(sha\d+|md5)sums?)(\.(txt|md|rst))?$"
    r"|(^|/)(readme\.md|config\.json|state\.json|dataset_dict\.json|dataset_infos?\.json|dummy_data\.zip)$",
    re.IGNORECASE,
)


def is_set_aside(name: str, pattern: str = "") -> bool:
    """Check whether a file is hidden, or lies in a folder as `.git` or `__pycache__`, and its pattern does not say so.

    `datasets` passes over the same files.

    >>> is_set_aside(".cache/a.csv"), is_set_aside("__MACOSX/a.csv"), is_set_aside("__a.csv"), is_set_aside(".a.csv", ".*.csv")
    (True, True, False, False)
    """
    marks = tuple(mark for mark in (".", "__") if f"/{mark}" not in f"/{pattern}")
    *folders, base = name.split("/")
    return any(folder.startswith(marks) and folder != "." for folder in folders) or (
        base.startswith(".") and "." in marks
    )


def glob_pattern(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob over whole names: `*` stays inside a folder, `**` does not.

    Raises SourceError for a range that cannot be, as in `[z-a]`. A `[` that is not closed stands for itself.

    >>> bool(glob_pattern("data/train-*").fullmatch("data/train-0.parquet"))
    True
    >>> bool(glob_pattern("*.csv").fullmatch("a/b.csv")), bool(glob_pattern("**/*.csv").fullmatch("b.csv"))
    (False, True)
    >>> bool(glob_pattern("[!a]*.csv").fullmatch("b.csv")), bool(glob_pattern("[!a]*.csv").fullmatch("a.csv"))
    (True, False)
    """
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    is_set = re.compile(r"\[[^\]]+\]").fullmatch
    sets = {part: "(?!/)" + re.sub(r"^\[!", "[^", part.replace("\\", r"\\")) for part in parts if is_set(part)}
    try:
        return re.compile("".join({**special, **sets}.get(part) or re.escape(part) for part in parts))
    except re.error as error:
        raise SourceError(f"{pattern} is not a glob ({error}).") from None


def checked(
    files: Iterable[RawFile], uri: str, *, include: Sequence[str], offered: Sequence[str]
) -> tuple[RawFile, ...]:
    """Return the files in the order of their names.

    Raises SourceError when there is none, when two share a name, and for a name that is not UTF-8.
    """
    ordered = tuple(sorted(files, key=lambda file: file.name))
    for name in (uri, *(file.name for file in ordered)):
        try:
            name.encode()
        except UnicodeEncodeError:
            escaped_name = name.encode(errors="backslashreplace").decode()
            installation.check_names_are_utf8()
            raise SourceError(
                f"{escaped_name} has a name that is not UTF-8, which no manifest can hold. Rename it."
            ) from None
    if not ordered:
        sought = f"no file like {', '.join(include)}" if include else "no file that rows could be read from"
        offered_note = (
            f" It has {', '.join(sorted(offered)[:5])}{', …' if len(offered) > 5 else ''}." if offered else ""
        )
        raise SourceError(f"{uri} has {sought}.{offered_note}")
    for raw_file, two in itertools.pairwise(ordered):
        if raw_file.name == two.name:
            raise SourceError(f"{uri} has two files named {raw_file.name}; rename one of them.")
    return ordered

"""Parse a source as the user writes it, and define the result of resolving it: raw files with stable names.

Log lines of the HTTP libraries are shown without credentials. The user's input is an `Address` (t5prep.io.addresses).
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

# Loggers that print addresses with their queries: urllib3 at DEBUG, httpx at INFO, httpcore (redirects) at DEBUG.
_TALKERS = (
    "urllib3.connectionpool",
    "urllib3.util.retry",
    "httpx2",
    "httpx",
    *(f"httpcore{two}.{part}" for two in ("2", "") for part in ("connection", "proxy", "http11", "http2")),
)


def redact(message: str) -> str:
    """Return a log line without the credentials in addresses, queries and headers."""
    return _AUTHORIZATION.sub(r"\1 …", _QUERY.sub("…", _USERINFO.sub("", message)))


class _Redacted(logging.Filter):
    """A log filter that removes credentials from records, and keeps all records."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()), ()
        return True


_FILTER = _Redacted()


def quiet_logs() -> None:
    """Make the loggers of the HTTP libraries omit credentials. Repeated calls have no further effect."""
    for name in _TALKERS:
        logging.getLogger(name).addFilter(_FILTER)
    for handler in logging.getLogger("huggingface_hub").handlers:
        handler.addFilter(_FILTER)


# The forms of a source:
#     kaggle:owner/slug[@version][#file]      zenodo:RECORD[#file]   zenodo:10.5281/zenodo.RECORD[#file]
#     hf:owner/name[@revision][#config]       https://host/file      gs://bucket/prefix or glob
#     a file, a directory or a glob

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
    "kaggle": re.compile(r"(?P<name>[\w-]+/[\w-]+)(?:@(?P<revision>[0-9]{1,9}))?(?:#(?P<part>.+))?"),
    "zenodo": re.compile(r"(?:(?:https?://doi\.org/)?10\.5281/zenodo\.)?(?P<name>\d+)(?:#(?P<part>.+))?"),
    "hf": re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?:#(?P<part>[^#]+))?"),
    "https": re.compile(r"(?P<name>//[^/\s]+/\S*)"),
    "http": re.compile(r"(?P<name>//[^/\s]+/\S*)"),
    "gs": re.compile(r"//(?P<name>[^/\s@]+(?:/.*)?)"),
}


@dataclasses.dataclass(frozen=True)
class SourceLocation:
    """A parsed source. `scheme` is "" for a path; `revision` and `part` are "" if they are not given."""

    scheme: str
    name: str
    revision: str = ""
    part: str = ""
    uri: str = ""


def parse(uri: str) -> SourceLocation:
    """Return a parsed source. Raises SourceError, with an example, for an unknown scheme or a malformed source.

    >>> parse("hf:wmt/wmt16@main#ro-en")
    SourceLocation(scheme='hf', name='wmt/wmt16', revision='main', part='ro-en', uri='hf:wmt/wmt16@main#ro-en')
    >>> parse("zenodo:10.5281/zenodo.7186761").name
    '7186761'
    """
    # `request` may contain credentials, `uri` does not.
    request = Address(uri).request
    uri = str(Address(uri))
    scheme_match = _SCHEME.match(request)
    if not uri.strip():
        raise SourceError(
            f"The source is empty. Name a file, or a corpus such as {EXAMPLES['hf']}.", code="option.missing"
        )
    # An existing file is a path, even if its name begins like a scheme.
    if not scheme_match or Path(request).exists():
        return SourceLocation("", uri, uri=uri)
    scheme = scheme_match.group(1).lower()
    if scheme not in _SHAPES:
        raise SourceError(
            f'"{scheme}:" is not a kind of source.{did_you_mean(scheme, EXAMPLES)} '
            f"Name a file, a directory, a glob, or a corpus such as {EXAMPLES['kaggle']}, {EXAMPLES['zenodo']}, "
            f"{EXAMPLES['hf']} or {EXAMPLES['https']}.",
            code="source.unknown-scheme",
        )
    shape = _SHAPES[scheme].fullmatch(request[scheme_match.end() :])
    if not shape:
        raise SourceError(
            f"{uri} is not a complete {scheme}: source. Write it like {EXAMPLES[scheme]}", code="source.invalid-address"
        )
    groups = {key: value or "" for key, value in shape.groupdict().items()}
    if scheme in ("http", "https"):
        groups["name"] = uri[scheme_match.end() :]  # the public form; the request is sent to the host
    return SourceLocation(scheme, uri=uri, **groups)


@dataclasses.dataclass(frozen=True)
class RawFile:
    """A file, or a member of an archive, from which rows are read.

    name: its name in the source: unique, `/`-separated, equal on all machines (row ids and the manifest contain it)
    path: the location of the bytes: a local path, or a URI that is read by ranges (`hf://`, `gs://`) bytes: its size;
    for a member, the unpacked size member: the member's name in the archive at `path`; "" for the file itself sha256:
    hex, if it is known already checksum: the publisher's ("md5:..." or "sha256:..."; for a member, that of the
    archive) offset: the first byte of a tar's member in the (unpacked) archive; 0 for all other files modified: the
    modification time of the local file at `path`, in nanoseconds since 1970; 0 for all other files split: its split
    in a card or in the user's options; "" if it is unknown, or if rows are drawn
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
        """The name of the archive of this member; "" for other files, and if the name does not contain that of the archive.

        >>> RawFile("a/b.zip/c.csv", "/tmp/b.zip", 3, member="c.csv").archive
        'a/b.zip'
        """
        member = self.member.replace("\\", "/").removeprefix("./")
        return self.name.removesuffix(member).rstrip("/") if self.member and self.name.endswith(member) else ""


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A pinned source: its URI (without credentials), revision, files, licence, citation, and facts from its card.

    class_names: the class names of columns with numbers parameters: options of its card for reading files, such as
    `sep` base: the folder of its config, "" for the top: names show splits below it is_named: the user named one file
    or a glob, so the name of a single file shows no split origins: if several sources are joined, the number of each
    file's source, by file name
    """

    uri: str
    revision: str
    files: tuple[RawFile, ...]
    licence: str = ""
    citation: str = ""
    class_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    parameters: JSONObject = dataclasses.field(default_factory=dict)
    base: str = ""
    is_named: bool = False
    origins: Mapping[str, int] = dataclasses.field(default_factory=dict)


def is_requested(name: str, include: Sequence[str]) -> bool:
    """Check whether a file is requested: a pattern matches its whole name or its last parts.

    >>> is_requested("a.zip/input/squad2_train.csv", ["squad2_*.csv"])
    True
    >>> is_requested("a.zip/input/squad2_train.csv", ["*/eli5_*.csv"])
    False
    """
    return not include or any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for pattern in include)


# Files beside data that have no rows, whatever their format.
METADATA = re.compile(
    r"(^|/)(licen[cs]e|copying|notice|readme|citation|changelog|authors|contributing|requirements|(sha\d+|md5)sums?)(\.(txt|md|rst))?$"
    r"|(^|/)(readme\.md|config\.json|state\.json|dataset_dict\.json|dataset_infos?\.json|dummy_data\.zip)$",
    re.IGNORECASE,
)


def is_set_aside(name: str, pattern: str = "") -> bool:
    """Check whether a file is hidden, or is in a folder such as `.git` or `__pycache__`, unless `pattern` names such ones.

    `datasets` skips the same files.

    >>> is_set_aside(".cache/a.csv"), is_set_aside("__MACOSX/a.csv"), is_set_aside("__a.csv"), is_set_aside(".a.csv", ".*.csv")
    (True, True, False, False)
    """
    marks = tuple(mark for mark in (".", "__") if f"/{mark}" not in f"/{pattern}")
    *folders, base = name.split("/")
    return any(folder.startswith(marks) and folder != "." for folder in folders) or (
        base.startswith(".") and "." in marks
    )


def glob_pattern(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob for whole names: `*` matches inside of a folder, `**` across folders.

    Raises SourceError for an impossible range, such as `[z-a]`. An unclosed `[` stands for itself.

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
        raise SourceError(f"{pattern} is not a glob ({error}).", code="source.invalid-glob") from None


def checked(
    files: Iterable[RawFile], uri: str, *, include: Sequence[str], offered: Sequence[str]
) -> tuple[RawFile, ...]:
    """Return the files, ordered by name.

    Raises SourceError if there is none, if two have the same name, and for a name that is not UTF-8.
    """
    ordered = tuple(sorted(files, key=lambda file: file.name))
    for name in (uri, *(file.name for file in ordered)):
        try:
            name.encode()
        except UnicodeEncodeError:
            escaped_name = name.encode(errors="backslashreplace").decode()
            installation.check_names_are_utf8()
            raise SourceError(
                f"The name {escaped_name} is not UTF-8, so a manifest cannot record it. Rename the file.",
                code="file.invalid-name",
            ) from None
    if not ordered:
        sought = f"no file like {', '.join(include)}" if include else "no file that rows could be read from"
        offered_note = (
            f" It has {', '.join(sorted(offered)[:5])}{', …' if len(offered) > 5 else ''}." if offered else ""
        )
        raise SourceError(f"{uri} has {sought}.{offered_note}", code="source.files-missing")
    for raw_file, two in itertools.pairwise(ordered):
        if raw_file.name == two.name:
            raise SourceError(
                f"{uri} has two files named {raw_file.name}. Rename one of them.", code="source.duplicate-name"
            )
    return ordered

"""Describe what a source resolves to: raw files with stable names, the revision, the licence and the citation."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from t5prep.errors import SourceError


@dataclasses.dataclass(frozen=True)
class RawFile:
    """Describe one file, or one member of an archive, from which rows are read.

    name: its name inside the source: unique, `/`-separated, stable across machines (row ids and the manifest hold it)
    path: the place of the bytes: a local path, or a URL readable by range (`hf://`, `gs://`, `https://`)
    bytes: its size; for a member the unpacked size
    member: the member inside the zip at `path`; "" means the file itself
    sha256: hex, where it is already known
    checksum: as the publisher gives it ("md5:..." or "sha256:..."; of the archive, for a member)
    modified: when the local file at `path` was last written, in nanoseconds since 1970; 0 for any other
    """

    name: str
    path: str
    bytes: int
    member: str = ""
    sha256: str = ""
    checksum: str = ""
    modified: int = 0


@dataclasses.dataclass(frozen=True)
class Resolved:
    """Hold a pinned source: the URI asked for (without credentials), revision, files, licence, citation, and names of classes.

    `class_names` are those of columns that hold numbers, as a Hub dataset's card gives them."""

    uri: str
    revision: str
    files: tuple[RawFile, ...]
    licence: str
    citation: str
    class_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


def wanted(name: str, include: Sequence[str]) -> bool:
    """Check whether a file of this name was asked for: by its whole name or by the last parts of it.

    >>> wanted("a.zip/input/squad2_train.csv", ["squad2_*.csv"])
    True
    >>> wanted("a.zip/input/squad2_train.csv", ["*/eli5_*.csv"])
    False
    """
    return not include or any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for pattern in include)


def patterns(include: str | Iterable[str]) -> tuple[str, ...]:
    """Return one pattern or several as a tuple."""
    return (include,) if isinstance(include, str) and include else tuple(include)


def glob_pattern(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob over whole names: `*` stays inside a folder, `**` does not.

    Raises SourceError for a range that cannot be, as in `[z-a]`. A `[` that is not closed stands for itself.

    >>> bool(glob_pattern("data/train-*").fullmatch("data/train-0.parquet"))
    True
    >>> bool(glob_pattern("*.csv").fullmatch("a/b.csv")), bool(glob_pattern("**/*.csv").fullmatch("b.csv"))
    (False, True)
    """
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    is_set = re.compile(r"\[[^\]]+\]").fullmatch
    try:
        return re.compile("".join(special.get(part, part if is_set(part) else re.escape(part)) for part in parts))
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
            shown = name.encode(errors="backslashreplace").decode()
            raise SourceError(f"{shown} has a name that is not UTF-8, which no manifest can hold. Rename it.") from None
    if not ordered:
        sought = f"no file like {', '.join(include)}" if include else "no file that rows could be read from"
        some = f" It has {', '.join(sorted(offered)[:5])}{', …' if len(offered) > 5 else ''}." if offered else ""
        raise SourceError(f"{uri} has {sought}.{some}")
    for one, two in itertools.pairwise(ordered):
        if one.name == two.name:
            raise SourceError(f"{uri} has two files named {one.name}; ask for them one at a time.")
    return ordered

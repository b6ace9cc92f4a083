"""List the file formats, and detect the format of a file by its name."""

import dataclasses
import re
from collections.abc import Sequence

from t5prep.errors import UsageError

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
}
KINDS = ("csv", "tsv", "jsonl", "parquet", "text")
# Documents that lie beside data.
_ABOUT = re.compile(
    r"(^|/)(licen[cs]e|copying|notice|readme|citation|changelog|authors|contributing|(sha\d+|md5)sums?)(\.txt)?$"
    r"|\.(md|rst|pdf|bib|cff|html?)$",
    re.IGNORECASE,
)
PACKED = (".gz", ".bz2", ".xz", ".zst")


@dataclasses.dataclass(frozen=True)
class Format:
    """Describe how the bytes of a file become rows.

    TSV has no quoting (GLUE's files and IANA's registration have none).

    `delimiter` divides the columns of CSV; "" where the beginning of the file tells it.

    `written` is the encoding of the file itself, where its blocks have been recoded to `encoding`. `records` is the path
    to the rows of a JSON document, "" for JSON lines and for an array.
    """

    kind: str
    encoding: str = "utf-8"
    written: str = ""
    records: str = ""
    delimiter: str = ","

    @property
    def quoted(self) -> bool:
        """Check whether a newline may occur inside a row."""
        return self.kind == "csv"

    @property
    def headed(self) -> bool:
        """Check whether the first row names the columns."""
        return self.kind in ("csv", "tsv")


def detect(name: str, *, kind: str = "", encoding: str = "utf-8", delimiter: str = "") -> Format:
    """Return the format of a file by its name, or `kind` where the user names it. Raises UsageError."""
    if kind and kind not in KINDS:
        raise UsageError(f'--format "{kind}": it is one of {", ".join(KINDS)}')
    known = kind or _kind(name)
    if not known:
        raise UsageError(f"the name {name} does not say what format it is in. Say it: --format {'|'.join(KINDS)}")
    if delimiter and known != "csv":
        raise UsageError(f"--delimiter divides the columns of CSV, and {name} is {known}.")
    return Format(known, encoding, delimiter=delimiter)


def without_documents(names: Sequence[str], *, kind: str = "") -> tuple[list[str], list[str]]:
    """Return the names of files with rows, and those of documents about them; none are documents where `kind` is given.

    >>> without_documents(["LICENSE", "a.csv", "README.txt", "notes"])
    (['a.csv', 'notes'], ['LICENSE', 'README.txt'])
    """
    documents = [name for name in names if _ABOUT.search(name)] if not kind else []
    rows = [name for name in names if name not in set(documents)]
    return (rows, documents) if any(_kind(name) for name in rows) else (list(names), [])


def check_names(names: Sequence[str], *, uri: str) -> None:
    """Raise UsageError where the names of some files of a source tell their format and others, a LICENSE, do not."""
    strangers = [name for name in names if not _kind(name)]
    known = sorted({f"*{suffix}" for name in names for suffix in SUFFIXES if unpacked(name).endswith(suffix)})
    if strangers and known:
        raise UsageError(
            f"the name {strangers[0]} does not say what format it is in, and {len(names) - len(strangers):,} files beside "
            f'it do. Leave it out by a glob in quotes: --source "{uri.rstrip("/")}/**/{known[0]}"'
        )


def unpacked(name: str) -> str:
    """Return a name in lower case, without the suffix of a compressed file."""
    stem = name.lower()
    for suffix in PACKED:
        stem = stem.removesuffix(suffix)
    return stem


def _kind(name: str) -> str:
    """Return the kind of format that a name tells, or ""."""
    return next((kind for suffix, kind in SUFFIXES.items() if unpacked(name).endswith(suffix)), "")

"""Files on this machine: one file, a directory, or a glob."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5prep.errors import SourceError
from t5prep.io import suggestions
from t5prep.sources import archives
from t5prep.sources.grammar import Place
from t5prep.sources.raw import RawFile, Resolved, checked, wanted


def resolve(place: Place, *, include: Sequence[str]) -> Resolved:
    """Every file below the place. A file is named by its path from the directory, or from the glob's fixed part.

    Raises SourceError when there is nothing, or nothing that may be read.
    """
    files: list[RawFile] = []
    offered: list[str] = []
    try:
        for path, name in _named(place.name):
            some, known = expand(path, name=name, include=include)
            files += some
            offered += known
    except (OSError, RuntimeError) as error:  # a name that is too long, `~nobody`
        raise SourceError(f"{place.uri} cannot be read ({getattr(error, 'strerror', '') or error}).") from error
    return Resolved(place.uri, "", checked(files, place.uri, include=include, offered=offered), licence="", citation="")


def expand(
    path: Path, *, name: str, include: Sequence[str] = (), sha256: str = "", checksum: str = ""
) -> tuple[list[RawFile], list[str]]:
    """A file on disk as raw files: itself, or the members of a zip as `name/member`; and all names there are."""
    archives.refuse_tar(name)
    try:
        size = path.stat().st_size
        if archives.is_zip(name):
            with path.open("rb") as archive:
                return archives.members(
                    archive, path=str(path), name=name, include=include, prefix=f"{name}/", checksum=checksum
                )
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}).") from error
    file = RawFile(name, str(path), size, sha256=sha256, checksum=checksum)
    return ([file] if wanted(name, include) else []), [name]


def _named(source: str) -> Iterator[tuple[Path, str]]:
    path = Path(source).expanduser()
    if path.is_file():
        yield path, path.name
    elif path.is_dir():
        yield from _below(path, "**/*")
    elif re.search(r"[*?\[]", source):
        parts = path.parts
        fixed = next(i for i, part in enumerate(parts) if re.search(r"[*?\[]", part))
        yield from _below(Path(*parts[:fixed]) if fixed else Path(), "/".join(parts[fixed:]))
    elif path.exists():
        raise SourceError(f"{source} is neither a file nor a directory; what comes by a pipe must be saved to a file.")
    else:
        raise SourceError(
            f"{source} does not exist. Name a file, a directory, or a glob in quotes.{suggestions.instead(path)}"
        )


def _below(root: Path, pattern: str) -> Iterator[tuple[Path, str]]:
    """Files below a directory that match; hidden ones (`.git`, `.DS_Store`) only when the pattern names them."""
    hidden = any(part.startswith(".") for part in pattern.split("/"))
    for path in sorted(root.glob(pattern)):
        name = path.relative_to(root).as_posix()
        if path.is_file() and (hidden or not re.search(r"(^|/)\.", name)):
            yield path, name

"""Read files on this machine: one file, a directory, or a glob."""

import dataclasses
import hashlib
import operator
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from t5prep.errors import OutputError, SourceError
from t5prep.io import atomic_files, paths, store
from t5prep.json_values import JSONObject
from t5prep.sources import archives, card
from t5prep.sources.raw import RawFile, Resolved, SourceLocation, checked, glob_pattern, is_requested, is_set_aside


def resolve(location: SourceLocation, *, include: Sequence[str], ignore_card: bool = False) -> Resolved:
    """Return all files of a path, directory or glob. Their names are relative to the directory, or to the glob's fixed part.

    For a directory with a dataset card (README.md) that has configs, only files of the `#config` or of the default
    one.

    ignore_card: read no configs of a card, unless the source names one

    Raises SourceError if there is no file, or if one is not readable.
    """
    folder, part = _folder_and_config(location.name)
    files: list[RawFile] = []
    offered: list[str] = []
    try:
        facts = _card(folder) if folder else {}
        config = card.choose(facts, part, source=str(folder)) if part or not ignore_card else None
        if part not in ("", "default") and config is None:
            raise card.several(location.name, part, [])
        named_paths = list(_list_files(location.name.removesuffix(f"#{part}") if part else location.name))
        splits = config.files([name for _, name in named_paths], source=str(folder)) if config else {}
        for path, name in named_paths:
            if config and name not in splits:
                continue
            expanded_files, names = expand(path, name=name, include=include)
            files += (
                [dataclasses.replace(file, split=splits[name]) for file in expanded_files] if config else expanded_files
            )
            offered += names
    except (OSError, RuntimeError) as error:  # a name that is too long, or an unknown `~user`
        raise SourceError(
            f"{location.uri} cannot be read ({getattr(error, 'strerror', '') or error}).", code="source.unreadable"
        ) from error
    return Resolved(
        location.uri,
        "",
        checked(files, location.uri, include=include, offered=offered),
        class_names=card.class_names(facts, config.name if config else part),
        parameters=config.parameters if config else {},
        base=config.folder if config else "",
        is_named=folder is None and not archives.is_archive(location.name),
    )


def _card(folder: Path) -> JSONObject:
    """Return the metadata of a folder's card. Raises SourceError."""
    readme, standalone = folder / "README.md", folder / card.STANDALONE
    facts = card.read(readme if readme.is_file() else None, standalone if standalone.is_file() else None)
    return card.with_infos(facts, infos) if (infos := folder / card.INFOS).is_file() else facts


def _folder_and_config(name: str) -> tuple[Path | None, str]:
    """Return the directory that a source names (None for anything else), and the config after a `#`."""
    try:
        if (path := Path(name).expanduser()).is_dir():
            return path, ""
        folder, mark, part = name.rpartition("#")
        if mark and part and not path.exists() and (path := Path(folder).expanduser()).is_dir():
            return path, part
    except (OSError, RuntimeError, ValueError):
        pass  # the error is reported when the source is read
    return None, ""


def expand(
    path: Path | str,
    *,
    name: str,
    include: Sequence[str] = (),
    sha256: str = "",
    checksum: str = "",
    budget: archives.Budget | None = None,
) -> tuple[list[RawFile], list[str]]:
    """Return a file on disk as raw files: itself, or the members of an archive as `name/member`; and all names in it.

    Raises SourceError if it cannot be read.
    """
    archives.refuse_others(name)
    try:
        status = os.stat(path)
        if archives.is_archive(name):
            with open(path, "rb") as archive:
                return expand_archive(
                    archive,
                    path=str(path),
                    name=name,
                    include=include,
                    prefix=f"{name}/",
                    checksum=checksum,
                    modified=status.st_mtime_ns,
                    budget=budget,
                )
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}).", code="source.unreadable") from error
    file = RawFile(name, str(path), status.st_size, sha256=sha256, checksum=checksum, modified=status.st_mtime_ns)
    return ([file] if is_requested(name, include) else []), [name]


# Maximum depth of archives in archives, because an archive may contain itself.
_MOST_NESTED = 3


def expand_archive(
    archive: BinaryIO,
    *,
    path: str,
    name: str,
    include: Sequence[str] = (),
    prefix: str = "",
    checksum: str = "",
    modified: int = 0,
    budget: archives.Budget | None = None,
) -> tuple[list[RawFile], list[str]]:
    """Return the requested members of an archive (archives.members), and the names of all.

    Members of an archive in it are named `archive/member`. Such an inner archive is copied to the cache folder, and has the
    `budget` of the outermost one.
    Raises SourceError.
    """
    budget = budget or archives.Budget(name, packed=archive.seek(0, os.SEEK_END))
    members, names = archives.members(
        archive, path=path, name=name, include=include, prefix=prefix, checksum=checksum, budget=budget
    )
    files: list[RawFile] = []
    offered = [name for name in names if not archives.is_archive(name)]
    for member in (dataclasses.replace(member, modified=modified) for member in members):
        if not archives.is_archive(member.name):
            files.append(member)
            continue
        if sum(map(archives.is_archive, member.name.split("/"))) > _MOST_NESTED:
            raise SourceError(
                f"{member.name} is nested in more than {_MOST_NESTED} archives. Unpack it, and name the directory.",
                code="file.unsupported-archive",
            )
        inner, inner_names = expand(
            _unpacked(archive, member), name=member.name, include=include, checksum=member.checksum, budget=budget
        )
        files += inner
        offered += inner_names
    return files, offered


def _unpacked(archive: BinaryIO, member: RawFile) -> Path:
    """Return the path of a copy of a member in the cache folder. Raises SourceError."""
    identity = (member.path, member.member, member.offset, member.bytes, member.modified, member.checksum)
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:40]
    path = store.root() / "sources" / "unpacked" / digest
    try:
        if not (path.is_file() and path.stat().st_size == member.bytes):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_files.open_atomic(path) as copy:
                archives.copy_member(archive, member, copy)
    except (OSError, OutputError) as error:
        raise SourceError(
            f"{member.name} cannot be unpacked to {path.parent} "
            f"({getattr(error, 'strerror', '') or error}). Free some space, or set T5PREP_CACHE to "
            "another folder.",
            code="cache.unwritable",
        ) from error
    return path


def _list_files(source: str) -> Iterator[tuple[Path | str, str]]:
    """Yield the path and the name of each file that a source names. Raises SourceError."""
    path = Path(source).expanduser()
    if path.is_file():
        yield path, path.name
    elif path.is_dir():
        if (path / "manifest.json").is_file() and (path / "shards.index").is_file():
            raise SourceError(
                f"{source} is a prepared dataset, not a source. To write its texts as a table: t5prep table "
                f"{source} rows.csv",
                code="source.dataset-folder",
            )
        yield from _below(path, "**/*")
    elif re.search(r"[*?\[]", source):
        parts = path.parts
        fixed = next(i for i, part in enumerate(parts) if re.search(r"[*?\[]", part))
        yield from _below(Path(*parts[:fixed]) if fixed else Path(), "/".join(parts[fixed:]))
    elif path.exists():
        raise SourceError(
            f"{source} is neither a file nor a directory. If it is a pipe, save its output to a file.",
            code="source.special-file",
        )
    else:
        raise SourceError(
            f"{source} does not exist. Name a file, a directory, or a glob in quotes.{paths.nearby(path)}",
            code="source.not-found",
        )


def _below(root: Path, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the path and relative name of files below a directory that match, without hidden ones (`.git`, `__pycache__`).

    Raises SourceError for an unreadable folder and for a broken link, because their content would be missing
    silently.
    """
    shape, depth = glob_pattern(pattern), pattern.count("/")
    anywhere = "**" in pattern
    walked = []

    def refuse(error: OSError) -> None:
        raise SourceError(
            f"{error.filename} cannot be read ({error.strerror}), so its files would be missing. Make it "
            "readable, or name the files to read with a quoted glob.",
            code="source.unreadable",
        ) from error

    # Links to folders are not followed for `**`, because a link to a parent folder would never end.
    for folder, folders, names in os.walk(root, onerror=refuse, followlinks=not anywhere):
        folder_path = Path(folder)
        relative_path = folder_path.relative_to(root)
        directory, prefix = (
            ("" if folder_path == Path() else str(folder_path)),
            ("" if folder_path == root else f"{relative_path.as_posix()}/"),
        )
        folders[:] = [name for name in folders if not is_set_aside(f"{name}/", pattern)]
        if not anywhere and len(relative_path.parts) >= depth:
            folders.clear()
        for name in names:
            relative_name = prefix + name
            if not shape.fullmatch(relative_name) or is_set_aside(name, pattern):
                continue
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                walked.append((path, relative_name))
            elif os.path.islink(path) and not os.path.exists(path):
                raise SourceError(
                    f"{path} is a link to a file that does not exist. Remove it, or restore it.",
                    code="source.broken-link",
                )
    yield from sorted(walked, key=operator.itemgetter(1))

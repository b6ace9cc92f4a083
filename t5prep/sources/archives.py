"""Read zip archives in place: list, check and stream their members without unpacking to disk.

A member whose path leaves the archive, an absolute path or a symbolic link refuses the whole archive: it is malicious,
or made by a tool that cannot be trusted. An encrypted member or a decompression bomb is refused when it is asked for.
"""

import re
import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from t5prep.errors import SourceError
from t5prep.sources.limits import limits
from t5prep.sources.raw import RawFile, wanted

ENCRYPTED = 0x1  # general purpose flag, bit 0 (APPNOTE.TXT 4.4.4)
_NOISE = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$|Thumbs\.db$)")
_CLIMBS = re.compile(r"(^|[/\\])\.\.([/\\]|$)")
_ABSOLUTE = re.compile(r"^([/\\]|[A-Za-z]:)")


def is_zip(name: str) -> bool:
    """Check whether a file of this name is read as a zip archive."""
    return name.lower().endswith(".zip")


def refuse_tar(name: str) -> None:
    """Raise SourceError for a tar: a member of it cannot be read without reading everything before it."""
    if re.search(r"\.(tar(\.\w+)?|tgz|tbz2?|txz|7z|rar)$", name, re.IGNORECASE):
        raise SourceError(f"{name} is an archive that cannot be read in place. Unpack it, and name the directory.")


def members(
    archive: BinaryIO, *, path: str, name: str, include: Sequence[str] = (), prefix: str = "", checksum: str = ""
) -> tuple[list[RawFile], list[str]]:
    """Return the members asked for, each named `prefix` + its name in the archive, and the names of all members.

    Raises SourceError for a damaged archive, and for one that holds a refused member (see above).
    """
    members, offered, bounds = [], [], limits()
    with _opened(archive, name) as opened:
        for info in opened.infolist():
            _check_name(info, name)
            if info.is_dir() or _NOISE.search(info.filename):
                continue
            full = prefix + info.filename.replace("\\", "/")  # some archivers on Windows write backslashes
            offered.append(full)
            if wanted(full, include):
                _check_content(info, name)
                bounds.check(f"{info.filename} in {name}", packed=info.compress_size, unpacked=info.file_size)
                members.append(RawFile(full, path, info.file_size, member=info.filename, checksum=checksum))
    return members, offered


def open_member(archive: BinaryIO, member: str, name: str) -> tuple[BinaryIO, int]:
    """Return a stream of one member's unpacked bytes, and the number of its packed bytes. Raises SourceError."""
    with _readable(name):
        opened = zipfile.ZipFile(archive)
    try:
        info = opened.getinfo(member)
    except KeyError:
        raise SourceError(f"{name} has no member {member}; it was changed since it was listed.") from None
    _check_name(info, name)
    _check_content(info, name)
    limits().check(f"{member} in {name}", packed=info.compress_size, unpacked=info.file_size)
    with _readable(name):
        return opened.open(info), info.compress_size  # type: ignore[return-value]


@contextmanager
def _opened(archive: BinaryIO, name: str) -> Iterator[zipfile.ZipFile]:
    with _readable(name), zipfile.ZipFile(archive) as opened:
        yield opened


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, EOFError, ValueError, OSError) as error:
        raise SourceError(f"{name} is not a whole zip archive ({error}). Fetch it again.") from error
    except NotImplementedError as error:
        raise SourceError(f"{name} is packed in a way that cannot be read ({error}). Unpack it yourself.") from error


def _check_name(info: zipfile.ZipInfo, name: str) -> None:
    spelled = info.orig_filename.split("\0")[0]
    wrong = (
        "climbs out of the archive"
        if _CLIMBS.search(spelled)
        else "is an absolute path"
        if _ABSOLUTE.match(spelled)
        else "is a symbolic link"
        if stat.S_ISLNK(info.external_attr >> 16)
        else ""
    )
    if wrong:
        raise SourceError(f'{name} is refused: its member "{spelled}" {wrong}. Ask its publisher for a sound archive.')


def _check_content(info: zipfile.ZipInfo, name: str) -> None:
    if info.flag_bits & ENCRYPTED:
        raise SourceError(
            f"{info.filename} in {name} is encrypted. Unpack it with its password, and name the directory."
        )

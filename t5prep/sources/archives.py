"""Read archives in place: list, check and stream their members without unpacking to disk, within limits.

A member whose path leaves the archive, an absolute path or a symbolic link refuses the whole archive: it is malicious,
or made by a tool that cannot be trusted. An encrypted member or a decompression bomb is refused when it is asked for.
"""

import dataclasses
import os
import re
import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from t5prep.errors import SourceError, UsageError
from t5prep.sources.raw import RawFile, wanted

MAX_BYTES = "T5PREP_MAX_UNPACKED_BYTES"
MAX_RATIO = "T5PREP_MAX_UNPACKED_RATIO"


@dataclasses.dataclass(frozen=True)
class Limits:
    """`max_bytes` of one unpacked file and `max_ratio` of unpacked to packed bytes.

    Files below `any_ratio_below` unpacked bytes may have any ratio. Text packs 3 to 20 times; a ratio above 200 over
    more than 64 MiB is not text that anyone would train on.
    """

    max_bytes: int = 64 << 30
    max_ratio: float = 200.0
    any_ratio_below: int = 64 << 20

    def allowed(self, packed: int) -> int:
        """Return how many bytes `packed` bytes may unpack to at most."""
        return min(self.max_bytes, max(self.any_ratio_below, int(self.max_ratio * packed)))

    def check(self, name: str, *, packed: int, unpacked: int) -> None:
        """Raise SourceError when `unpacked` is more than `packed` bytes may unpack to."""
        if unpacked <= self.allowed(packed):
            return
        if unpacked > self.max_bytes:
            raise SourceError(
                f"{name} unpacks to more than {self.max_bytes:,} bytes. "
                f"If you trust it, raise the limit: export {MAX_BYTES}={max(unpacked, 2 * self.max_bytes)}"
            )
        enough = int(2 * max(unpacked / max(packed, 1), self.max_ratio))
        raise SourceError(
            f"{name} unpacks to more than {self.max_ratio:g} times its {packed:,} bytes, as a decompression bomb does. "
            f"If you trust it, raise the limit: export {MAX_RATIO}={enough}"
        )


def limits() -> Limits:
    """Return the limits: the defaults, or those of the environment.

    Raises UsageError if a variable holds no number.
    """
    return Limits(max_bytes=int(_number(MAX_BYTES, Limits.max_bytes)), max_ratio=_number(MAX_RATIO, Limits.max_ratio))


def _number(variable: str, default: float) -> float:
    value = os.environ.get(variable, "")
    try:
        number = float(value) if value else float(default)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UsageError(f'{variable} is "{value}", which is not a number above 0. Unset it, or set it to {default:g}.')
    return number


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
    seen: set[str] = set()
    with _opened(archive, name) as opened:
        for info in opened.infolist():
            _check_name(info, name)
            if info.is_dir() or _NOISE.search(info.filename):
                continue
            full = prefix + info.filename.replace("\\", "/")  # some archivers on Windows write backslashes
            if full in seen:
                raise SourceError(
                    f"{name} holds two members named {info.filename}. Unpack it, keep the one you mean, and name the directory."
                )
            seen.add(full)
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

"""Read zip and tar archives: list, check and stream their members, within limits.

Members are read from the archive. Only archives inside of archives are copied to the cache (local.expand_archive).

A member whose path leaves the archive, an absolute path, a link or a device refuses the whole archive. It is
malicious, or was made by a tool that cannot be trusted. An encrypted member or a decompression bomb is refused when
it is requested.
"""

import bz2
import dataclasses
import gzip
import io
import lzma
import os
import re
import stat
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast

from t5prep.errors import SourceError, UsageError
from t5prep.io.ranges import RangedFile
from t5prep.sources.raw import RawFile, is_requested, is_set_aside

MAX_BYTES = "T5PREP_MAX_UNPACKED_BYTES"
MAX_RATIO = "T5PREP_MAX_UNPACKED_RATIO"


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of unpacking: bytes of one unpacked file, and the ratio of unpacked to packed bytes.

    Files below `any_ratio_below` unpacked bytes may have any ratio. Text is packed 3 to 20 times. A ratio above 200
    over more than 64 MiB is not text that anyone would train on.
    """

    max_bytes: int = 64 << 30
    max_ratio: float = 200.0
    any_ratio_below: int = 64 << 20

    def allowed(self, packed: int) -> int:
        """Return the maximum number of bytes that `packed` bytes may unpack to."""
        return min(self.max_bytes, max(self.any_ratio_below, int(self.max_ratio * packed)))

    def check(self, name: str, *, packed: int, unpacked: int) -> None:
        """Raise SourceError if `unpacked` exceeds the limit for `packed` bytes."""
        if unpacked <= self.allowed(packed):
            return
        if unpacked > self.max_bytes:
            raise SourceError(
                f"{name} unpacks to more than {self.max_bytes:,} bytes. "
                f"If you trust it, raise the limit: export {MAX_BYTES}={max(unpacked, 2 * self.max_bytes)}",
                code="file.oversized-archive",
            )
        enough = int(2 * max(unpacked / max(packed, 1), self.max_ratio))
        raise SourceError(
            f"{name} unpacks to more than {self.max_ratio:g} times its {packed:,} bytes, as a decompression bomb does. "
            f"If you trust it, raise the limit: export {MAX_RATIO}={enough}",
            code="file.oversized-archive",
        )


@dataclasses.dataclass
class Budget:
    """The bytes that an archive and the archives in it unpack to, which its own bytes limit."""

    name: str
    packed: int
    unpacked: int = 0

    def add(self, unpacked: int) -> None:
        """Count a member. Raises SourceError if the members together exceed the maximum ratio."""
        self.unpacked += unpacked
        bounds = dataclasses.replace(limits(), max_bytes=sys.maxsize)  # a corpus of many files may be of any size
        bounds.check(self.name, packed=self.packed, unpacked=self.unpacked)


def limits() -> Limits:
    """Return the limits, with those of the environment variables instead of the defaults.

    Raises UsageError if a variable is not a number.
    """
    return Limits(max_bytes=int(_number(MAX_BYTES, Limits.max_bytes)), max_ratio=_number(MAX_RATIO, Limits.max_ratio))


def _number(variable: str, default: float) -> float:
    """Return the number in an environment variable, or the default. Raises UsageError."""
    value = os.environ.get(variable, "")
    try:
        number = float(value) if value else float(default)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UsageError(
            f'{variable} is "{value}", which is not a number above 0. Unset it, or set it to {default:g}.',
            code="option.invalid-variable",
        )
    return number


_TAR = re.compile(r"\.(tar|tar\.gz|tgz|tar\.bz2|tbz2?|tar\.xz|txz)$", re.IGNORECASE)
ENCRYPTED = 0x1  # general purpose flag, bit 0 (APPNOTE.TXT 4.4.4)
_CLIMBS = re.compile(r"(^|[/\\])\.\.([/\\]|$)")
_ABSOLUTE = re.compile(r"^([/\\]|[A-Za-z]:)")


def is_zip(name: str) -> bool:
    """Check whether a file of this name is read as a zip archive."""
    return name.lower().endswith(".zip")


def is_tar(name: str) -> bool:
    """Check whether a file of this name is read as a tar archive, compressed or not.

    >>> is_tar("a.tar"), is_tar("b.tar.gz"), is_tar("c.tgz"), is_tar("d.gz")
    (True, True, True, False)
    """
    return bool(_TAR.search(name))


def is_archive(name: str) -> bool:
    """Check whether a file of this name is read as an archive."""
    return is_zip(name) or is_tar(name)


def refuse_others(name: str) -> None:
    """Raise SourceError for an archive of an unsupported format."""
    if re.search(r"\.(tar\.\w+|7z|rar)$", name, re.IGNORECASE) and not is_tar(name):
        raise SourceError(
            f"{name} is an archive of a format that t5prep does not support. Unpack it, and name the directory.",
            code="file.unsupported-archive",
        )


def members(
    archive: BinaryIO,
    *,
    path: str,
    name: str,
    include: Sequence[str] = (),
    prefix: str = "",
    checksum: str = "",
    budget: Budget,
) -> tuple[list[RawFile], list[str]]:
    """Return the requested members, named `prefix` + their name in the archive, and the names of all members.

    `budget` counts the requested ones.

    Archives among the members are always returned, because requested files may be inside (see local.expand_archive).

    Raises SourceError for a damaged archive, and for one with a refused member (see the module).
    """
    files_by_name: dict[str, RawFile] = {}
    for file, packed, is_encrypted in (_in_tar if is_tar(name) else _in_zip)(archive, path, name):
        if all(is_set_aside(file.name, pattern) for pattern in include or [""]) or file.name.endswith("Thumbs.db"):
            continue
        full = prefix + file.name
        if full in files_by_name:
            raise SourceError(
                f"{name} holds two members named {file.member}. Unpack it, keep the one you mean, and name the directory.",
                code="file.duplicate-member",
            )
        files_by_name[full] = dataclasses.replace(file, name=full, checksum=checksum)
        if is_requested(full, include) or is_archive(full):
            _check_content(f"{file.member} in {name}", packed, file.bytes, is_encrypted=is_encrypted)
            budget.add(file.bytes)
    return [file for full, file in files_by_name.items() if is_requested(full, include) or is_archive(full)], list(
        files_by_name
    )


def _in_zip(archive: BinaryIO, path: str, name: str) -> Iterator[tuple[RawFile, int, bool]]:
    """Yield each file in a zip, its packed size, and whether it is encrypted."""
    with _translate_errors(name, "zip"), zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            _check_name(info, name)
            if not info.is_dir():
                member_name = info.filename.replace("\\", "/")  # some archivers on Windows write backslashes
                file = RawFile(member_name, path, info.file_size, member=info.filename)
                yield file, info.compress_size, bool(info.flag_bits & ENCRYPTED)


def open_member(archive: BinaryIO, member: str, name: str) -> tuple[BinaryIO, int]:
    """Return a stream of a member's unpacked bytes, and its packed size. Raises SourceError."""
    with _translate_errors(name, "zip"):
        opened = zipfile.ZipFile(archive)
    try:
        info = opened.getinfo(member)
    except KeyError:
        raise SourceError(
            f"{name} changed after its files were listed: the member {member} is missing. Run the command again.",
            code="source.concurrent-change",
        ) from None
    _check_name(info, name)
    encrypted = bool(info.flag_bits & ENCRYPTED)
    _check_content(f"{member} in {name}", info.compress_size, info.file_size, is_encrypted=encrypted)
    with _translate_errors(name, "zip"):
        return opened.open(info), info.compress_size  # type: ignore[return-value]


def copy_member(archive: BinaryIO, file: RawFile, copy: BinaryIO) -> None:
    """Write the bytes of a member into `copy`, within the limits. Raises SourceError."""
    opened, packed = (
        open_member_of_tar(archive, file)
        if file.offset
        else open_member(archive, file.member, file.archive or file.path)
    )
    count, bounds = 0, limits()
    with _translate_errors(file.name, "zip"), opened:
        while chunk := opened.read(1 << 20):
            count += len(chunk)
            bounds.check(file.name, packed=packed, unpacked=count)
            copy.write(chunk)


@contextmanager
def _translate_errors(name: str, kind: str) -> Iterator[None]:
    """Convert the exceptions of reading a damaged zip or tar into SourceError."""
    try:
        yield
    except NotImplementedError as error:
        raise SourceError(
            f"{name} uses a compression that t5prep does not support ({error}). Unpack it, and name the directory.",
            code="file.unsupported-archive",
        ) from error
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, ValueError, OSError, zlib.error, lzma.LZMAError) as error:
        raise SourceError(
            f"{name} is not a complete {kind} archive ({error}). Fetch it again.", code="file.damaged"
        ) from error


def _check_name(info: zipfile.ZipInfo, name: str) -> None:
    """Raise SourceError for a link, or for a name that leaves the archive."""
    # The original name: zipfile normalizes `filename`, and cuts it at NUL.
    member_name = info.orig_filename.split("\0")[0]
    _refuse(member_name, "is a symbolic link" if stat.S_ISLNK(info.external_attr >> 16) else "", name)


def _refuse(member_name: str, wrong: str, name: str) -> None:
    """Raise SourceError for a member with a problem (`wrong`), or with a name that leaves the archive."""
    if _CLIMBS.search(member_name):
        wrong = "climbs out of the archive"
    elif _ABSOLUTE.match(member_name):
        wrong = "is an absolute path"
    if wrong:
        raise SourceError(
            f'{name} is refused: its member "{member_name}" {wrong}. Ask its publisher for a sound archive.',
            code="file.unsafe-archive",
        )


def _check_content(member: str, packed: int, unpacked: int, *, is_encrypted: bool) -> None:
    """Raise SourceError for an encrypted member, or for one that unpacks to more than the limits allow."""
    if is_encrypted:
        raise SourceError(
            f"{member} is encrypted. Unpack it with its password, and name the directory.",
            code="file.encrypted-archive",
        )
    limits().check(member, packed=packed, unpacked=unpacked)


# Tar archives. A member is read from its offset. A compressed archive is first unpacked to an unnamed temporary file,
# once in each process, because a member cannot be reached without all bytes before it.

_BLOCK = 512
_UNPACKED: dict[tuple[str | int, ...], BinaryIO] = {}
_UNPACKING = threading.Lock()


def _in_tar(archive: BinaryIO, path: str, name: str) -> Iterator[tuple[RawFile, int, bool]]:
    """Yield for a tar archive what `_in_zip` yields for a zip."""
    with _translate_errors(name, "tar"):
        content = _content_of_tar(archive, path=path, name=name)
        content.seek(0)
        with tarfile.open(fileobj=content, mode="r:") as opened:
            for info in opened:
                _refuse(info.name, _no_file(info), name)
                if not info.isdir():
                    member_name = info.name.removeprefix("./")
                    yield RawFile(member_name, path, info.size, info.name, offset=info.offset_data), info.size, False
            content.seek(opened.offset)
            if content.read(_BLOCK) != bytes(_BLOCK):  # tarfile ignores a truncated archive
                raise tarfile.ReadError("its end is missing")


def _no_file(info: tarfile.TarInfo) -> str:
    """Return the description of a member that is neither a file nor a folder, or ""."""
    if info.issym() or info.islnk():
        return "is a link"
    if info.issparse():
        return "is a sparse file"
    return "" if info.isreg() or info.isdir() else "is a device or a pipe"


def open_member_of_tar(archive: BinaryIO, file: RawFile) -> tuple[BinaryIO, int]:
    """Return a stream of a member's bytes, and their number. Raises SourceError."""
    name = file.archive or file.path
    with _translate_errors(name, "tar"):
        content = _content_of_tar(archive, path=file.path, name=name)
    return cast(BinaryIO, io.BufferedReader(_Slice(content, file.offset, file.bytes), 1 << 20)), file.bytes


def _content_of_tar(archive: BinaryIO, *, path: str, name: str) -> BinaryIO:
    """Return the archive, or the temporary file that it was unpacked to. Raises SourceError for a decompression bomb."""
    archive.seek(0)
    head = archive.read(6)
    archive.seek(0)
    unpack = next((unpacker for magic, unpacker in _PACKED_TAR.items() if head.startswith(magic)), None)
    if unpack is None:
        return archive
    size = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    # The modification time: a changed archive must not be read from its previous unpacked copy.
    stamp = () if "://" in path else (os.fstat(archive.fileno()).st_mtime_ns,)
    with _UNPACKING:
        if (path, size, *stamp) not in _UNPACKED:
            unpacked, count, bounds = tempfile.TemporaryFile(), 0, limits()  # noqa: SIM115 - later members need it
            stream = unpack(archive)
            while chunk := stream.read(1 << 20):
                count += len(chunk)
                bounds.check(name, packed=size, unpacked=count)
                unpacked.write(chunk)
            unpacked.flush()
            # Only the last archive stays unpacked, to bound the disk.
            _UNPACKED.clear()
            _UNPACKED[path, size, *stamp] = cast(BinaryIO, unpacked)
        return _UNPACKED[path, size, *stamp]


_PACKED_TAR: dict[bytes, Callable[[BinaryIO], BinaryIO | io.BufferedIOBase]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


class _Slice(RangedFile):
    """A range of bytes of a file. Each read seeks first, so that several slices can share an unpacked archive."""

    def __init__(self, file: BinaryIO, begin: int, size: int) -> None:
        super().__init__(size)
        self._file, self._begin = file, begin

    def range(self, begin: int, size: int) -> bytes:
        """Return some bytes. Raises EOFError if the archive has become shorter."""
        with _UNPACKING:
            self._file.seek(self._begin + begin)
            data = self._file.read(size)
        if not data:
            raise EOFError("the archive is shorter than it was")
        return data

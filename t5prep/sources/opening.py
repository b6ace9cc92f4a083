"""Open a raw file, local or remote, as a stream of unpacked bytes or as a seekable file."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from typing import BinaryIO, cast

from t5prep.errors import SourceError
from t5prep.sources.archives import limits, open_member, open_member_of_tar
from t5prep.sources.raw import RawFile, quiet_logs

_UNPACK: dict[str, Callable[[BinaryIO], BinaryIO]] = {
    ".gz": cast(Callable[[BinaryIO], BinaryIO], lambda raw: gzip.GzipFile(fileobj=raw)),
    ".bz2": cast(Callable[[BinaryIO], BinaryIO], bz2.BZ2File),
    ".zst": cast(Callable[[BinaryIO], BinaryIO], lambda raw: _Zstandard(raw)),
    ".xz": cast(Callable[[BinaryIO], BinaryIO], lzma.LZMAFile),
}
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile)
_BUFFER = 1 << 20
_PACKED_BYTES = 2048
_SMALL = 64 << 10  # smaller local files are read in one call, because allocating _BUFFER bytes takes longer
_AHEAD = 8 << 20  # bytes of one request for a remote file that is read from begin to end
_SPOOL = 64 << 20  # an unpacked member stays in memory up to this size, then moves to an unnamed file


def unpacked_name(name: str) -> str:
    """Return the name without the suffix of a compression that `open_stream` unpacks.

    >>> unpacked_name("a/train.jsonl.gz")
    'a/train.jsonl'
    """
    return name[: -len(suffix)] if (suffix := _packing(name)) else name


def _packing(name: str) -> str:
    """Return the suffix of _UNPACK at the end of a name, or ""."""
    suffix = name[name.rfind(".") :].lower()
    return suffix if suffix in _UNPACK else ""


def open_stream(file: RawFile, *, content: bytes | None = None) -> BinaryIO:
    """Return the bytes of a file or archive member from the begin, unpacked if its name ends in .gz, .bz2, .xz or .zst.

    `content` is the result of `content_of_small`, if that was called. Raises SourceError, here or while reading, if
    the file is damaged or unpacks to more than the limits allow.
    """
    container = _open_path(file, ahead=_AHEAD) if content is None else io.BytesIO(content)
    unpack = _UNPACK.get(_packing(file.name))
    if not unpack and not file.member:
        return container
    raw, packed = _stored(container, file)
    stream = _Bounded(unpack(raw) if unpack else raw, container, name=file.name, packed=packed)
    return cast(BinaryIO, io.BufferedReader(stream, _BUFFER))


def open_random(file: RawFile) -> BinaryIO:
    """Return the same bytes as a seekable file, as Parquet needs. Remote files are read by ranges and never completely.

    A compressed file or an archive member is unpacked first, to memory or, if it is large, to an unnamed temporary
    file.
    """
    if not file.member and unpacked_name(file.name) == file.name:
        return _open_path(file)
    spooled = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115 - the caller closes it
    with open_stream(file) as stream:
        while chunk := stream.read(_BUFFER):
            spooled.write(chunk)
    spooled.seek(0)
    return cast(BinaryIO, spooled)


def sha256(file: RawFile) -> str:
    """Return the SHA-256 (hex) of a file's own bytes (packed, for a .gz). For a remote file, return the known one or ""."""
    if file.sha256 or "://" in file.path:
        return file.sha256
    file_stream = _open_path(file)
    stream = (
        _Bounded(_stored(file_stream, file)[0], file_stream, name=file.name, packed=file.bytes)
        if file.member
        else file_stream
    )
    digest = hashlib.sha256()
    try:
        with stream:
            while chunk := stream.read(_BUFFER):
                digest.update(chunk)
    except OSError as error:
        raise SourceError(f"{file.name} cannot be read ({error.strerror}).", code="source.unreadable") from error
    return digest.hexdigest()


def checksum(file: RawFile) -> str:
    """Return the SHA-256 (hex) of a source file's bytes; of an archive's member, not of the archive.

    For a remote file without a known SHA-256, return the publisher's checksum.
    """
    return file.checksum if "://" in file.path and not file.sha256 else sha256(file)


def _stored(container: BinaryIO, file: RawFile) -> tuple[BinaryIO, int]:
    """Return the file's own bytes as a stream, and their stored size. `container` is the opened file or archive at its path."""
    if not file.member:
        return container, file.bytes
    try:
        return open_member_of_tar(container, file) if file.offset else open_member(container, file.member, file.name)
    except BaseException:
        container.close()
        raise


def _open_path(file: RawFile, *, ahead: int = _BUFFER) -> BinaryIO:
    """Return the file or archive at `path` as a seekable file. A remote one is read `ahead` bytes at a time."""
    scheme = file.path.partition("://")[0] if "://" in file.path else ""
    if scheme == "gs":
        from t5prep.sources.google_storage import open_blob

        return open_blob(file.path)
    if scheme == "hf":
        from t5prep.sources.hub import open_range  # imports requests, which local files do not need

        quiet_logs()  # a worker may not have called `resolve`, which also does this
        return open_range(file.path, size=file.bytes, ahead=ahead)
    if (content := content_of_small(file)) is not None:
        return io.BytesIO(content)
    try:
        opened = open(file.path, "rb")  # noqa: SIM115 - the caller closes it
        _check_status(file, os.fstat(opened.fileno()))
    except OSError as error:
        raise SourceError(f"{file.path} cannot be read ({error.strerror}).", code="source.unreadable") from error
    return opened


def content_of_small(file: RawFile) -> bytes | None:
    """Return the bytes of a small local file (packed, for a .gz), None for any other file. Raises SourceError.

    A corpus may have very many small files, so this makes as few system calls as possible.
    """
    if not 0 < file.bytes < _SMALL or file.member or "://" in file.path:
        return None
    try:
        opened = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check_status(file, os.fstat(opened))
            content = os.read(opened, file.bytes)
            # A file system may return only a part of the bytes.
            while len(content) < file.bytes and (chunk := os.read(opened, _SMALL)):
                content += chunk
            return content
        finally:
            os.close(opened)
    except OSError as error:
        raise SourceError(f"{file.path} cannot be read ({error.strerror}).", code="source.unreadable") from error


def check_unchanged(file: RawFile) -> None:
    """Raise SourceError if a local file has changed since it was listed, because its checksum would be of other bytes."""
    if "://" in file.path:
        return
    try:
        _check_status(file, os.stat(file.path))
    except OSError as error:
        raise SourceError(
            f"{file.path} was removed during reading ({error.strerror}). Restore the file, and run the command again.",
            code="source.concurrent-change",
        ) from error


def _check_status(file: RawFile, status: os.stat_result) -> None:
    """Raise SourceError if the size or the modification time of a file or archive has changed."""
    size = status.st_size if file.member else file.bytes
    if file.modified and (status.st_size, status.st_mtime_ns) != (size, file.modified):
        raise SourceError(
            f"{file.path} changed during reading: it now has {status.st_size:,} bytes. Wait until the "
            "file is complete, and run the command again.",
            code="source.concurrent-change",
        )


class _Zstandard(io.RawIOBase):
    """A stream that unpacks Zstandard, with windows up to 2 GiB (`zstd --long=31`), which Arrow refuses."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw, self._ended = raw, zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = self._unpacked = b""

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, b"" at the end. Raises EOFError if the stream ends inside of a frame."""
        while not self._unpacked:
            # Few bytes at a time, because each may unpack to thirty thousand.
            self._packed = self._packed or self._raw.read(_PACKED_BYTES)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("it ends before its last frame does")
                return b""
            self._frame = self._frame or self._decompressor.decompressobj()
            try:
                self._unpacked = self._frame.decompress(self._packed)
            except self._ended as error:
                raise EOFError(str(error)) from error
            self._packed = self._frame.unused_data
            self._frame = None if self._frame.eof else self._frame
        read, self._unpacked = self._unpacked[:size], self._unpacked[size:] if size >= 0 else b""
        return read


class _Bounded(io.RawIOBase):
    """A stream that unpacks the file `container`, counts its bytes, and raises SourceError above the limits."""

    def __init__(self, stream: BinaryIO, container: BinaryIO, *, name: str, packed: int):
        self._stream, self._whole, self._name, self._packed, self._bounds = stream, container, name, packed, limits()
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except _DAMAGE as error:
            raise SourceError(f"{self._name} is damaged ({error}). Fetch it again.", code="file.damaged") from error
        except OSError as error:
            if error.errno is None:  # bz2 reports damaged bytes so
                raise SourceError(f"{self._name} is damaged ({error}). Fetch it again.", code="file.damaged") from error
            raise SourceError(f"{self._name} cannot be read ({error.strerror}).", code="source.unreadable") from error
        self._count += len(data)
        self._bounds.check(self._name, packed=self._packed, unpacked=self._count)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._whole.close()  # Python's unpackers do not close the stream that they read
        super().close()

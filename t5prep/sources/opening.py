"""Open a raw file: as a stream of unpacked bytes, or seekable, also where it is remote."""

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
_SMALL = 64 << 10  # a file of this machine with fewer bytes is read at once: room for a read of _BUFFER takes longer
_AHEAD = 8 << 20  # bytes requested at once from a remote file that is read from its start to its end
_SPOOL = 64 << 20  # an unpacked member stays in memory up to this size, then it goes to an unnamed file


def unpacked_name(name: str) -> str:
    """Return the name without the suffix that `open_stream` unpacks.

    >>> unpacked_name("a/train.jsonl.gz")
    'a/train.jsonl'
    """
    return name[: -len(suffix)] if (suffix := _packing(name)) else name


def _packing(name: str) -> str:
    """Return the suffix of _UNPACK that a name ends with, or ""."""
    suffix = name[name.rfind(".") :].lower()
    return suffix if suffix in _UNPACK else ""


def open_stream(file: RawFile, *, content: bytes | None = None) -> BinaryIO:
    """Return the bytes of a file or a zip member from its start, unpacked where its name ends in .gz, .bz2, .xz or .zst.

    `content` is what `content_of_small` returned, if that was called.

    Raises SourceError, here or while reading, when the file is damaged or unpacks to more than the limits allow.
    """
    container = _open_path(file, ahead=_AHEAD) if content is None else io.BytesIO(content)
    unpack = _UNPACK.get(_packing(file.name))
    if not unpack and not file.member:
        return container
    raw, packed = _stored(container, file)
    stream = _Bounded(unpack(raw) if unpack else raw, container, name=file.name, packed=packed)
    return cast(BinaryIO, io.BufferedReader(stream, _BUFFER))


def open_random(file: RawFile) -> BinaryIO:
    """Return the same bytes, seekable, as Parquet needs. Remote files are read by range; nothing is downloaded whole.

    A packed file or a zip member is unpacked first, to memory or, when large, to an unnamed temporary file.
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
    """Return the SHA-256 (hex) of the file's own bytes (packed, for a .gz); for a remote file the known one or ""."""
    if file.sha256 or "://" in file.path:
        return file.sha256
    whole = _open_path(file)
    stream = _Bounded(_stored(whole, file)[0], whole, name=file.name, packed=file.bytes) if file.member else whole
    digest = hashlib.sha256()
    try:
        with stream:
            while chunk := stream.read(_BUFFER):
                digest.update(chunk)
    except OSError as error:
        raise SourceError(f"{file.name} cannot be read ({error.strerror}).") from error
    return digest.hexdigest()


def checksum(file: RawFile) -> str:
    """Return the SHA-256 (hex) of a source file's bytes (of a zip's member, not of the zip for each of its members).

    For a file that is not on this machine, return what its publisher says of it.
    """
    return file.checksum if "://" in file.path and not file.sha256 else sha256(file)


def _stored(container: BinaryIO, file: RawFile) -> tuple[BinaryIO, int]:
    """Return the file's own bytes as a stream, and how many bytes are stored, given the file or archive at its path."""
    if not file.member:
        return container, file.bytes
    try:
        return open_member_of_tar(container, file) if file.offset else open_member(container, file.member, file.name)
    except BaseException:
        container.close()
        raise


def _open_path(file: RawFile, *, ahead: int = _BUFFER) -> BinaryIO:
    """Return the file or archive at `path`, seekable, local or remote; a remote one is read `ahead` bytes at a time."""
    scheme = file.path.partition("://")[0] if "://" in file.path else ""
    if scheme == "gs":
        from t5prep.sources.google_storage import open_blob

        return open_blob(file.path)
    if scheme == "hf":
        from t5prep.sources.hub import open_range  # loads requests, which a file of this machine does not need

        quiet_logs()  # a worker reads without calling resolve, which does this elsewhere
        return open_range(file.path, size=file.bytes, ahead=ahead)
    if (content := content_of_small(file)) is not None:
        return io.BytesIO(content)
    try:
        opened = open(file.path, "rb")  # noqa: SIM115 - the caller closes it
        _check_status(file, os.fstat(opened.fileno()))
    except OSError as error:
        raise SourceError(f"{file.path} cannot be read ({error.strerror}).") from error
    return opened


def content_of_small(file: RawFile) -> bytes | None:
    """Return the bytes of a small file of this machine, packed ones for a .gz; None for any other. Raises SourceError.

    A corpus may have very many of them: as few calls of the system are made as can be.
    """
    if not 0 < file.bytes < _SMALL or file.member or "://" in file.path:
        return None
    try:
        opened = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check_status(file, os.fstat(opened))
            content = os.read(opened, file.bytes)
            while len(content) < file.bytes and (chunk := os.read(opened, _SMALL)):  # a file system may give a part
                content += chunk
            return content
        finally:
            os.close(opened)
    except OSError as error:
        raise SourceError(f"{file.path} cannot be read ({error.strerror}).") from error


def check_unchanged(file: RawFile) -> None:
    """Raise SourceError if a local file was changed since it was listed: its checksum must be of the bytes read."""
    if "://" in file.path:
        return
    try:
        _check_status(file, os.stat(file.path))
    except OSError as error:
        raise SourceError(f"{file.path} was removed while it was read ({error.strerror}).") from error


def _check_status(file: RawFile, status: os.stat_result) -> None:
    size = status.st_size if file.member else file.bytes
    if file.modified and (status.st_size, status.st_mtime_ns) != (size, file.modified):
        raise SourceError(
            f"{file.path} was changed while it was read: it has {status.st_size:,} bytes now. Let it be written to its "
            "end, and run this again."
        )


class _Zstandard(io.RawIOBase):
    """Unpack a stream that Zstandard packed, also with a window of 2 GiB (`zstd --long=31`), which Arrow refuses."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw, self._ended = raw, zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = self._unpacked = b""

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, b"" at the end. Raises EOFError where the stream ends inside of a frame."""
        while not self._unpacked:
            # So few at a time, because each may stand for thirty thousand.
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
    """Count the bytes of a stream that unpacks the file `whole`, and raise SourceError above the limits."""

    def __init__(self, stream: BinaryIO, container: BinaryIO, *, name: str, packed: int):
        self._stream, self._whole, self._name, self._packed, self._bounds = stream, container, name, packed, limits()
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except _DAMAGE as error:
            raise SourceError(f"{self._name} is damaged ({error}). Fetch it again.") from error
        except OSError as error:
            if error.errno is None:  # bz2 says so what is wrong with the bytes
                raise SourceError(f"{self._name} is damaged ({error}). Fetch it again.") from error
            raise SourceError(f"{self._name} cannot be read ({error.strerror}).") from error
        self._count += len(data)
        self._bounds.check(self._name, packed=self._packed, unpacked=self._count)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._whole.close()  # the streams of Python's unpackers do not close what they are given
        super().close()

"""Open a raw file: as a stream of unpacked bytes, or seekable, also where it is remote.

A file of the Hub at one commit, or any https:// file whose host allows it, is read by ranges. HfFileSystem is not used: in
every thread it first asks the Hub's API for the repository and for the listing of each folder, then for the address of
every range again, and it accepts a range of any length as the one asked for. Here the Hub is asked once per file, and the
storage host after that, so hundreds of workers do not reach the Hub's rate limits.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from typing import BinaryIO, cast

import requests

from t5prep.errors import SourceError
from t5prep.io.ranges import RangedFile
from t5prep.sources.archives import limits, open_member, open_member_of_tar
from t5prep.sources.http import Broken, Refused, Retries, connection_errors, get
from t5prep.sources.raw import RawFile, quiet_logs

_SMALL = 32 << 20  # bytes: the largest file that is read whole from a host that does not serve ranges
_HUB = re.compile(r"hf://datasets/(?P<repo>[^@]+)@(?P<revision>[^/]+)/(?P<file>.+)")
_ADVICE = "Set HF_TOKEN in the environment of every worker to a token that may read it."


def open_range(path: str, *, size: int | None, ahead: int = 1 << 20) -> BinaryIO:
    """Return a seekable file of `hf://datasets/OWNER/NAME@COMMIT/FILE` or `https://`; if `size` is None, ask the host.

    A request costs a round trip, so each asks for at least `ahead` bytes.

    Raises SourceError here and while reading; broken connections, 429 and 5xx are retried without an error.
    """
    url, headers = path, {}
    if match := _HUB.fullmatch(path):
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        url = hf_hub_url(
            match["repo"], match["file"], repo_type="dataset", revision=match["revision"], endpoint=hub_endpoint()
        )
        headers = build_hf_headers()
    return cast(BinaryIO, io.BufferedReader(_Ranges(url, headers, what=path, size=size), ahead))


def _is_whole(response: requests.Response, size: int) -> bool:
    return response.status_code == 200 and response.headers.get("Content-Length") == str(size)


def hub_endpoint() -> str | None:
    """Return the Hub's address in HF_ENDPOINT, or None for the usual one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


class _Ranges(RangedFile):
    """Read by one request each, sent to the last redirect as long as that signed address works."""

    def __init__(self, url: str, headers: dict[str, str], *, what: str, size: int | None):
        self._url, self._headers, self._what = url, headers, what
        self._session = requests.Session()  # one connection for all reads
        self._redirected = ""
        self._whole = b""  # the content of a small file whose host does not serve ranges
        super().__init__(self._ask_size() if size is None else size)

    def range(self, start: int, length: int) -> bytes:
        """Return exactly these bytes. Raises SourceError."""
        retries = Retries(self._what)
        while True:
            if self._whole:
                return self._whole[start : start + length]
            response = self._get(f"bytes={start}-{start + length - 1}", retries)
            if self._size <= _SMALL and _is_whole(response, self._size):
                self._whole = self._content(response, self._size, retries)
                continue
            if response.status_code != 206:
                response.close()
                raise SourceError(f"{self._what}: its host does not send parts of it. Download it: name a local copy.")
            whole = re.fullmatch(
                rf"bytes {start}-{start + length - 1}/(\d+)", response.headers.get("Content-Range", "")
            )
            if not whole or int(whole.group(1)) != self._size:
                response.close()
                raise SourceError(
                    f"{self._what} is not the {self._size:,} bytes that were listed: it changed. "
                    "Run this again from the start."
                )
            if data := self._content(response, length, retries):
                return data

    def _content(self, response: requests.Response, length: int, retries: Retries) -> bytes:
        """Return a body of this length, or wait and return b"" when fewer bytes came."""
        try:
            with connection_errors(), response:
                data = response.raw.read(length, decode_content=False)
        except Broken as broken:
            retries.wait(str(broken))
            return b""
        if len(data) == length:
            return bytes(data)
        retries.wait("less came than was asked for")
        return b""

    def close(self) -> None:
        self._session.close()
        super().close()

    def _get(self, asked: str, retries: Retries) -> requests.Response:
        if self._redirected:
            try:
                return self._ask(self._redirected, {"Range": asked}, retries)
            except Refused:
                self._redirected = ""  # signed addresses expire: ask for a new one
        try:
            response = self._ask(self._url, {**self._headers, "Range": asked}, retries)
        except Refused as refused:
            raise SourceError(f"{refused} {_ADVICE if refused.status in (401, 403) else ''}".rstrip()) from None
        self._redirected = response.url if response.history else ""
        return response

    def _ask(self, url: str, headers: dict[str, str], retries: Retries) -> requests.Response:
        return get(url, what=self._what, headers=headers, stream=True, retries=retries, session=self._session)

    def _ask_size(self) -> int:
        with self._get("bytes=0-0", Retries(self._what)) as response:
            match = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
            if not match:
                raise SourceError(f"{self._what}: its host does not send parts of it. Download it: name a local copy.")
            return int(match.group(1))


# Any file.

_UNPACK: dict[str, Callable[[BinaryIO], BinaryIO]] = {
    ".gz": cast(Callable[[BinaryIO], BinaryIO], lambda raw: gzip.GzipFile(fileobj=raw)),
    ".bz2": cast(Callable[[BinaryIO], BinaryIO], bz2.BZ2File),
    ".zst": cast(Callable[[BinaryIO], BinaryIO], lambda raw: _Zstd(raw)),
    ".xz": cast(Callable[[BinaryIO], BinaryIO], lzma.LZMAFile),
}
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile)
_BUFFER = 1 << 20
_AHEAD = 8 << 20  # bytes requested at once from a remote file that is read from its start to its end
_SPOOL = 64 << 20  # an unpacked member stays in memory up to this size, then it goes to an unnamed file


def unpacked_name(name: str) -> str:
    """Return the name without the suffix that `open_stream` unpacks.

    >>> unpacked_name("a/train.jsonl.gz")
    'a/train.jsonl'
    """
    return next((name[: -len(suffix)] for suffix in _UNPACK if name.lower().endswith(suffix)), name)


def open_stream(file: RawFile) -> BinaryIO:
    """Return the bytes of a file or a zip member from its start, unpacked where its name ends in .gz, .bz2, .xz or .zst.

    Raises SourceError, here or while reading, when the file is damaged or unpacks to more than the limits allow.
    """
    whole = _open_path(file, ahead=_AHEAD)
    unpack = next((how for suffix, how in _UNPACK.items() if file.name.lower().endswith(suffix)), None)
    if not unpack and not file.member:
        return whole
    raw, packed = _stored(whole, file)
    stream = _Bounded(unpack(raw) if unpack else raw, whole, name=file.name, packed=packed)
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
    digest = hashlib.sha256()
    with _Bounded(_stored(whole, file)[0], whole, name=file.name, packed=file.bytes) as bounded:
        while chunk := bounded.read(_BUFFER):
            digest.update(chunk)
    return digest.hexdigest()


def checksum(file: RawFile) -> str:
    """Return the SHA-256 (hex) of a source file's bytes (of a zip's member, not of the zip for each of its members).

    For a file that is not on this machine, return what its publisher says of it.
    """
    return file.checksum if "://" in file.path and not file.sha256 else sha256(file)


def _stored(whole: BinaryIO, file: RawFile) -> tuple[BinaryIO, int]:
    """Return the file's own bytes as a stream, and how many bytes are stored, given the file or archive at its path."""
    if not file.member:
        return whole, file.bytes
    try:
        return open_member_of_tar(whole, file) if file.offset else open_member(whole, file.member, file.name)
    except BaseException:
        whole.close()
        raise


def _open_path(file: RawFile, *, ahead: int = _BUFFER) -> BinaryIO:
    """Return the file or archive at `path`, seekable, local or remote; a remote one is read `ahead` bytes at a time."""
    scheme = file.path.partition("://")[0] if "://" in file.path else ""
    if scheme == "gs":
        from t5prep.sources.google_storage import open_blob

        return open_blob(file.path)
    if scheme in ("hf", "http", "https"):
        quiet_logs()  # a worker reads without calling resolve, which does this elsewhere
        return open_range(file.path, size=None if file.member else file.bytes, ahead=ahead)
    try:
        opened = open(file.path, "rb")  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise SourceError(f"{file.path} cannot be read ({error.strerror}).") from error
    _check_status(file, os.fstat(opened.fileno()))
    return opened


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


class _Zstd:
    """Unpack a stream that Zstandard packed, by Arrow: Python has no reader of it before 3.14."""

    def __init__(self, raw: BinaryIO) -> None:
        import pyarrow

        self._raw = raw
        self._stream = pyarrow.CompressedInputStream(raw, "zstd")

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes. Raises EOFError for a stream that is damaged or ends too early."""
        try:
            return bytes(self._stream.read(size))
        except OSError as error:
            raise EOFError(str(error)) from error

    def close(self) -> None:
        """Close the packed stream too."""
        self._stream.close()
        self._raw.close()


class _Bounded(io.RawIOBase):
    """Count the bytes of a stream that unpacks the file `whole`, and raise SourceError above the limits."""

    def __init__(self, stream: BinaryIO, whole: BinaryIO, *, name: str, packed: int):
        self._stream, self._whole, self._name, self._packed, self._bounds = stream, whole, name, packed, limits()
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except _DAMAGE as error:
            raise SourceError(f"{self._name} is damaged ({error}). Fetch it again.") from error
        except OSError as error:
            if error.errno is None:  # bz2 says so what is wrong with its bytes
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

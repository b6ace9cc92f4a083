"""Download files once: each complete, with the right length and checksum, into a cache that several processes share.

Files of the cache are named by content, written once, and never seen half full:

ROOT/blobs/<sha256>       the bytes, read-only
ROOT/refs/<key>.json      the blob of a published name (the key is a hash and shows no address)
ROOT/parts/<key>.part     a download in progress, or one that a later run will continue
ROOT/locks/<key>.lock     held while downloading; the system releases it when a process dies
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import requests
from filelock import AcquireReturnProxy, FileLock, Timeout

from t5prep.errors import SourceError
from t5prep.io import atomic_files, cache_folder
from t5prep.io.progress import Progress
from t5prep.sources.http import CHUNK, Broken, Checksum, Retries, connection_errors, get, looks_like_a_page


@dataclasses.dataclass(frozen=True)
class Fetched:
    """Hold the size of a downloaded file in bytes, and its SHA-256."""

    bytes: int
    sha256: str


@dataclasses.dataclass
class Download:
    """Download one file.

    address: called before every try, because signed addresses expire
    name: shown to the user; its suffix says whether a web page may be the wanted content
    checksum, size: as the publisher gives them; "" and None where it gives none
    """

    address: Callable[[], str]
    part: Path
    name: str
    checksum: str = ""
    size: int | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    progress: bool | None = None
    _furthest: int = 0

    def run(self) -> Fetched:
        """Fetch the file to `part`, continuing an earlier run. Raises SourceError.

        After an error, any part that is left can be continued by a later run.
        """
        retries = Retries(self.name)
        resumed = clean = False
        with contextlib.closing(self._bar()) as bar:
            while True:
                start = self._start()
                resumed = resumed or start > 0
                try:
                    expected = self._receive(start, retries, bar)
                except Broken as broken:
                    retries.wait(str(broken))
                    continue
                except OSError as error:
                    raise SourceError(
                        f"{self.part.parent} cannot be written ({error.strerror}). "
                        "Make room, or set T5PREP_CACHE to another place."
                    ) from error
                have = self.part.stat().st_size
                if expected is not None and have < expected:
                    retries.wait("the connection broke in the middle")
                    continue
                wrong, sha256 = self._wrong(have, expected)
                if not wrong:
                    self._validator.unlink(missing_ok=True)
                    return Fetched(have, sha256)
                self.discard()
                if resumed and not clean:  # the first half may be of another version: try once from the start
                    clean = True
                    continue
                raise SourceError(
                    f"{self.name}: {wrong}. What arrived was deleted. "
                    "Run this again; if it persists, tell its publisher."
                )

    def discard(self) -> None:
        """Delete the downloaded part."""
        self.part.unlink(missing_ok=True)
        self._validator.unlink(missing_ok=True)

    def _receive(self, start: int, retries: Retries, bar: Progress) -> int | None:
        """Append the bytes that the host sends, and return the length of the whole file, None if unknown.

        Raises Broken.
        """
        headers = dict(self.headers)
        if start:
            headers["Range"] = f"bytes={start}-"
            if not self.checksum:
                headers["If-Range"] = self._validator.read_text()
        response = get(self.address(), what=self.name, headers=headers, stream=True, retries=retries)
        with response:
            if response.status_code == 416:  # the part is as long as the whole file, or longer
                whole = _whole(response)
                if whole != start:
                    self.discard()
                    raise Broken("the host has fewer bytes than were fetched before")
                return whole
            continues = response.status_code == 206 and start > 0
            if continues and _first(response) != start:
                self.discard()
                raise Broken("the host sends another range than was asked for")
            if response.headers.get("Content-Encoding", "identity") != "identity" and not self.name.endswith(".gz"):
                raise SourceError(
                    f"{self.name}: the host sends it compressed although asked not to. Download it yourself."
                )
            whole = _whole(response)
            self._remember(response)
            self._check_room((whole or self.size or 0) - (start if continues else 0))
            bar.restart(bytes=start if continues else 0, total=whole or self.size or 0)
            with self.part.open("ab" if continues else "wb") as out:
                self._copy(response, out, retries, bar, first=not continues)
            return whole

    def _copy(
        self, response: requests.Response, out: IO[bytes], retries: Retries, bar: Progress, *, first: bool
    ) -> None:
        """Write the bytes of a response; `first` means that the file begins here.

        Raises Broken, and SourceError where a web page came instead of the file.
        """
        chunks = response.raw.stream(CHUNK, decode_content=False)
        while True:
            with connection_errors():
                chunk = next(chunks, b"")
            if not chunk:
                return
            if first and looks_like_a_page(response, chunk, self.name):
                out.close()
                self.discard()
                raise SourceError(
                    f"{self.name}: the host sends a web page instead of the data: a sign-in, a form or a notice. "
                    "Open the address in a browser to see it, or download the file there and name it here."
                )
            first = False
            out.write(chunk)
            if out.tell() > self._furthest:  # a host that restarts from zero and breaks each time makes no progress
                self._furthest = out.tell()
                retries.progressed()
            bar.add(bytes=len(chunk))

    def _check_room(self, missing: int) -> None:
        free = shutil.disk_usage(self.part.parent).free
        if missing > free:
            raise SourceError(
                f"{self.name} needs {missing:,} bytes more, and {self.part.parent} has {free:,}. "
                "Make room, or set T5PREP_CACHE to another place."
            )

    def _start(self) -> int:
        """Return how many downloaded bytes can be continued: only bytes that are known to be of the same version."""
        if not self.part.exists():
            return 0
        return self.part.stat().st_size if self.checksum or self._validator.exists() else 0

    def _remember(self, response: requests.Response) -> None:
        """Save the name of this version (RFC 9110, 13.1.5: a strong ETag, or a date): no other version is continued."""
        etag = response.headers.get("ETag", "")
        version = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
        if version:
            self._validator.write_text(version)
        else:
            self._validator.unlink(missing_ok=True)

    def _wrong(self, have: int, expected: int | None) -> tuple[str, str]:
        """Return what is wrong with the bytes ("" for nothing), and their SHA-256."""
        published = self.size if self.size is not None else expected
        if published is not None and have != published:
            return f"{have:,} bytes arrived where its publisher says {published:,}", ""
        checksum = Checksum(self.checksum, size=have)
        with self.part.open("rb") as arrived:
            while chunk := arrived.read(CHUNK):
                checksum.update(chunk)
        mismatch = checksum.mismatch()
        return (f"its bytes give {mismatch}, its publisher says {self.checksum}" if mismatch else ""), checksum.sha256

    @property
    def _validator(self) -> Path:
        return self.part.with_suffix(".version")

    def _bar(self) -> Progress:
        return Progress(self.name[-40:], shown=self.progress)


def _first(response: requests.Response) -> int | None:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match.group(1)) if match else None


def _whole(response: requests.Response) -> int | None:
    """Return the length of the whole file from Content-Range or Content-Length, None where neither gives it."""
    match = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
    if match:
        return int(match.group(1))
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() and response.status_code == 200 else None


_PATIENCE = 5.0  # seconds of waiting for the lock before a line says why


@dataclasses.dataclass(frozen=True)
class Blob:
    """Describe a cached file."""

    path: Path
    bytes: int
    sha256: str


def root(cache: Path | None) -> Path:
    """Return the folder of downloads: `cache` if given, else `sources` in t5prep's cache folder."""
    return Path(cache).expanduser() if cache else cache_folder.root() / "sources"


def fetch(key: str, download: Callable[[Path], Fetched], *, cache: Path | None) -> Blob:
    """Return the bytes of `key` from the cache; if they are not there, call `download` with the path of a part file.

    `key` must name a version ("zenodo:1/a.zip md5:..."), so that a cached file never becomes outdated.
    Raises SourceError when the cache cannot be written, and what `download` raises.
    """
    place, name = root(cache), hashlib.sha256(key.encode()).hexdigest()[:40]
    try:
        for folder in ("blobs", "refs", "parts", "locks"):
            (place / folder).mkdir(parents=True, exist_ok=True)
        with _locked(place / "locks" / f"{name}.lock", place):
            if found := _known(place, name):
                return found
            part = place / "parts" / f"{name}.part"
            fetched = download(part)
            return _keep(place, name, part, fetched)
    except OSError as error:
        raise SourceError(
            f"The cache {place} cannot be written ({error.strerror or error}). "
            "Make room, or set T5PREP_CACHE to another place."
        ) from error


def _locked(path: Path, place: Path) -> AcquireReturnProxy:
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=_PATIENCE)
    except Timeout:
        print(f"Waiting for another process that is downloading the same file to {place} ...", file=sys.stderr)
        return lock.acquire(timeout=-1)


def _known(place: Path, name: str) -> Blob | None:
    try:
        known = json.loads((place / "refs" / f"{name}.json").read_text())
        blob = Blob(place / "blobs" / known["sha256"], known["bytes"], known["sha256"])
        return blob if blob.path.stat().st_size == blob.bytes else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(place: Path, name: str, part: Path, fetched: Fetched) -> Blob:
    """Move a complete part to its place, then write its ref: a reader sees the ref only when the bytes are there."""
    blob = Blob(place / "blobs" / fetched.sha256, fetched.bytes, fetched.sha256)
    with part.open("rb") as arrived:
        os.fsync(arrived.fileno())
    part.chmod(0o444)
    part.replace(blob.path)
    ref = place / "refs" / f"{name}.json"
    known = json.dumps({"sha256": blob.sha256, "bytes": blob.bytes}) + "\n"
    atomic_files.write_whole(ref, known.encode(), option="T5PREP_CACHE")
    return blob

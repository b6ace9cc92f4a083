"""Cache downloads for several processes at once: files are named by content, written once, and never seen half full.

ROOT/blobs/<sha256>       the bytes, read-only
ROOT/refs/<key>.json      the blob of a published name (the key is a hash and shows no address)
ROOT/parts/<key>.part     a download in progress, or one that a later run will continue
ROOT/locks/<key>.lock     held while downloading; the system releases it when a process dies
"""

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from t5prep.errors import SourceError
from t5prep.io import atomic_files, cache_folder
from t5prep.sources.download import Fetched

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

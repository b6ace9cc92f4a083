"""Cache files that can be computed again, each named by a digest of its inputs. Most lie in the cache folder (`root`)."""

import collections
import contextlib
import dataclasses
import math
import operator
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from t5prep.errors import OutputError, UsageError
from t5prep.io import atomic_files, byte_sizes, paths, signed_files

DEFAULT_LIMIT = "20GB"
# Kind, which is a folder of the cache → its description in `t5prep cache show`. All may be removed at any time.
KINDS = {
    "tokenized": "tokenized blocks, for runs that begin again",
    "sources": "downloaded corpora",
    "plan": "answers of the TPU compiler",
    "tables": "tables of texts, for `explore`",
    "programs": "compiled programs of training and predicting",
    "answers": "counts of finished files of `predict`",
}
_LEFTOVER_SECONDS = 600  # an unfinished file of this age was left by a killed process


class CacheUsage(NamedTuple):
    """Describe one kind of cached files. `description` names their content, `files` is their number."""

    kind: str
    description: str
    files: int
    bytes: int
    folder: Path


@dataclasses.dataclass(frozen=True)
class Store:
    """Get and put signed files in a folder, on this machine or under gs://. Damaged and wrongly signed files are not found.

    `suffix` ends the name of each file. `key` is that of `signed_files.sign`: None for this user's own, CHECKSUM to detect
    damage only.
    """

    folder: str
    suffix: str = ""
    key: bytes | None = None

    def path(self, name: str) -> str:
        """Return the path of the file that holds `name`."""
        return paths.join(self.folder, name + self.suffix)

    def names(self) -> set[str]:
        """Return the names of all files directly in the folder, including damaged ones; none if it cannot be listed."""
        try:
            return {name.removesuffix(self.suffix) for name in paths.names(self.folder) if name.endswith(self.suffix)}
        except (OSError, OutputError):
            return set()

    def get(self, name: str) -> bytes | None:
        """Return the content stored under `name`; None if it is missing, damaged or wrongly signed."""
        path = self.path(name)
        try:
            return signed_files.check(paths.read(path), name=os.path.basename(path), key=self.key)
        except (OSError, OutputError):
            return None

    def put(self, name: str, content: bytes) -> bool:
        """Store `content` under `name` atomically, and return True. Without a key, store nothing and return False.

        Raises OutputError.
        """
        path = self.path(name)
        signed = signed_files.sign(content, name=os.path.basename(path), key=self.key)
        if signed is not None:
            with paths.scratch(path) as file:  # without fsync: a file that a power cut damaged is not found by `get`
                file.write(signed)
        return signed is not None

    def trim(
        self,
        limit: int,
        *,
        cutoff: float = math.inf,
        weigh: Callable[[os.stat_result], int] = operator.attrgetter("st_size"),
    ) -> int:
        """Remove files, longest unused first, until the rest weighs at most `limit`; return the weight of the rest.

        * cutoff: only files last used before this time, in seconds of `time.time`, are removed.
        * weigh: the weight of a file by its status; by default its size in bytes.

        Leftovers of killed processes are removed too.
        """
        # There may be a million files, so no list of them is made. The first pass adds up their weight by second of last use.
        # This gives `latest`, the second up to which files must go. The second pass removes them.
        total, unused, now = 0, collections.Counter[int](), time.time()
        for path, status in _files(self.folder):
            if os.path.basename(path).startswith(atomic_files.UNFINISHED):
                if now - _last_used(status, now=now) > _LEFTOVER_SECONDS:
                    _remove(path)
            elif path.endswith(self.suffix):
                total += weigh(status)
                if (used := _last_used(status, now=now)) < cutoff:
                    unused[int(used)] += weigh(status)
        excess, latest, seconds = total - limit, -1, sorted(unused, reverse=True)
        while seconds and excess > 0:
            latest = seconds.pop()
            excess -= unused[latest]
        for path, status in _files(self.folder) if latest >= 0 else ():
            used = _last_used(status, now=now)
            if total > limit and used < cutoff and int(used) <= latest and path.endswith(self.suffix) and _remove(path):
                total -= weigh(status)
        return total


def root() -> Path:
    """Return the cache folder: $T5PREP_CACHE, else $XDG_CACHE_HOME/t5prep, else ~/.cache/t5prep.

    Raises UsageError if this user has no home.
    """
    if folder := os.environ.get("T5PREP_CACHE"):
        return Path(folder)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "t5prep"
    except RuntimeError:
        raise UsageError(
            "The cache needs a home directory, but this user has none. Name a folder: export T5PREP_CACHE=FOLDER",
            code="cache.missing-home",
        ) from None


def limit() -> int:
    """Return the maximum size of the cached tokenized blocks in bytes: $T5PREP_CACHE_LIMIT (`50GB`), else 20 GB.

    Raises UsageError.
    """
    return byte_sizes.parse(os.environ.get("T5PREP_CACHE_LIMIT") or DEFAULT_LIMIT, name="T5PREP_CACHE_LIMIT")


def show() -> list[CacheUsage]:
    """Return the number and size of the cached files of each kind."""
    usages = []
    for kind, description in KINDS.items():
        folder = root() / kind
        sizes = [status.st_size for _, status in _files(folder)]
        usages.append(CacheUsage(kind, description, len(sizes), sum(sizes), folder))
    return usages


def _files(folder: Path | str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and status of each file below `folder`. Files that another process removes meanwhile are skipped."""
    for parent, _, names in os.walk(folder):
        for path in (os.path.join(parent, name) for name in names):
            with contextlib.suppress(OSError):
                yield path, os.stat(path)


def _last_used(status: os.stat_result, *, now: float) -> float:
    """Return the time of a file's last use, in seconds; 0 for a time in the future, which a wrong clock has set.

    With 0 such a file is removed first. With its own time it would stay for ever.
    """
    return status.st_mtime if status.st_mtime < now + _LEFTOVER_SECONDS else 0.0


def _remove(path: str) -> bool:
    """Remove a file, and return whether that succeeded."""
    with contextlib.suppress(OSError):
        os.unlink(path)
        return True
    return False


def clear(kinds: list[str]) -> list[CacheUsage]:
    """Remove all cached files of `kinds`, and return their former usage. Raises UsageError for an unknown kind."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(
            f'"{unknown[0]}" is not a part of the cache. Choose one of: {", ".join(KINDS)}.',
            code="option.unknown-choice",
        )
    usages = [usage for usage in show() if usage.kind in kinds]
    for usage in usages:
        shutil.rmtree(usage.folder, ignore_errors=True)
    return usages

"""Every shard of a dataset held against its manifest."""

import concurrent.futures
import fnmatch
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

from t5prep.dataset import manifest
from t5prep.errors import DatasetError
from t5prep.io import storage

# Hashing frees the interpreter's lock, and a bucket answers many at once.
_SIDE_BY_SIDE = 8


def verify(
    data: str | Path,
    *,
    started: Callable[[int], None] = lambda total: None,
    progress: Callable[[int], None] = lambda read: None,
) -> manifest.Manifest:
    """The manifest of a dataset whose every shard has the size and SHA-256 it says, with no shard missing or too many.

    The dataset is in a directory or under gs://, where all of it is read. `started` hears how many bytes there are,
    `progress` of each piece that was read, in any thread.
    Raises DatasetError naming the first shard that differs, OutputError where a bucket may not be read.
    """
    made = manifest.load(data)
    data = manifest.folder_of(data) or "."
    shards = [shard for split in made.splits.values() for shard in split.shards]
    stray = sorted(set(fnmatch.filter(storage.names(data), "*.tfrecord-*")) - {shard.name for shard in shards})
    if stray:
        raise DatasetError(
            f"{storage.within(data, stray[0])} is no shard that the manifest names. Remove it, or prepare again."
        )
    started(sum(shard.bytes for shard in shards))
    with concurrent.futures.ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for _ in pool.map(functools.partial(_check, data, progress=progress), shards):
            pass
    return made


def _check(data: str | Path, shard: manifest.Shard, *, progress: Callable[[int], None]) -> None:
    again = "Prepare the dataset again, or copy this file again from where it was made."
    path, read, size = storage.within(data, shard.name), hashlib.sha256(), 0
    try:
        with storage.opened(data, shard.name) as file:
            while piece := file.read(1 << 20):
                read.update(piece)
                size += len(piece)
                progress(len(piece))
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read ({error.strerror or 'not found'}), but the manifest names it. {again}"
        ) from error
    sha256 = read.hexdigest()
    if size != shard.bytes:
        raise DatasetError(f"{path} has {size:,} bytes, the manifest says {shard.bytes:,}. {again}")
    if sha256 != shard.sha256:
        raise DatasetError(f"{path} has SHA-256 {sha256[:12]}…, the manifest says {shard.sha256[:12]}…. {again}")

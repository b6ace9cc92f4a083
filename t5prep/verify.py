"""Every shard of a dataset held against its manifest."""

import hashlib
from pathlib import Path

from t5prep import manifest
from t5prep.errors import DatasetError


def verify(data: str | Path) -> manifest.Manifest:
    """The manifest of a dataset whose every shard has the size and SHA-256 it says, with no shard missing or too many.

    Raises DatasetError naming the first shard that differs.
    """
    made = manifest.load(data)
    folder = Path(data)
    named = {shard.name for split in made.splits.values() for shard in split.shards}
    stray = sorted(path.name for path in folder.glob("*.tfrecord-*") if path.name not in named)
    if stray:
        raise DatasetError(f"{folder / stray[0]} is no shard that the manifest names. Remove it, or prepare again.")
    for split in made.splits.values():
        for shard in split.shards:
            _check(folder / shard.name, shard)
    return made


def _check(path: Path, shard: manifest.Shard) -> None:
    again = "Prepare the dataset again, or copy this file again from where it was made."
    try:
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}), but the manifest names it. {again}") from error
    if size != shard.bytes:
        raise DatasetError(f"{path} has {size:,} bytes, the manifest says {shard.bytes:,}. {again}")
    if sha256 != shard.sha256:
        raise DatasetError(f"{path} has SHA-256 {sha256[:12]}…, the manifest says {shard.sha256[:12]}…. {again}")

"""Name shards, and read their names: `train.tfrecord-00003-of-00016`."""

import re
from collections.abc import Iterable

_SHARD = re.compile(r".+\.tfrecord-\d{5,}-of-\d{5,}")


def name(split: str, number: int, shards: int) -> str:
    """Return the file name of one of a split's shards.

    >>> name("train", 3, 16)
    'train.tfrecord-00003-of-00016'
    """
    return f"{split}.tfrecord-{number:05d}-of-{shards:05d}"


def is_shard(file: str) -> bool:
    """Return whether a file's name is that of a shard.

    >>> is_shard("train.tfrecord-00003-of-00016"), is_shard("manifest.json")
    (True, False)
    """
    return bool(_SHARD.fullmatch(file))


def strays(files: Iterable[str], named: Iterable[str]) -> list[str]:
    """Return the shards among some files that are not among those that a manifest names, in order."""
    return sorted(set(filter(is_shard, files)) - set(named))

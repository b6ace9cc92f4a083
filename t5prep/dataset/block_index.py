"""Keep the index of a dataset: how many bytes each block of records has, so that a reader can begin at any of them.

The file `shards.index` stands beside the manifest, which names it with its checksum. It holds one little-endian uint32 a
block: splits in the order of their names, shards in the order of their numbers, blocks in the order of the shard.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from t5prep.dataset import checked_file
from t5prep.errors import DatasetError
from t5prep.io import paths

NAME = "shards.index"
# A split has about this many blocks, so that an order of blocks is nearly an order of records ...
_BLOCKS = 4096
# ... but a block has at least 8 records and at most 64, or in a split of more than 2^20 such blocks at most 256: then the
# index of two terabytes of 512 tokens each has 32 MB.
_FEWEST, _USUAL, _MOST, _MOST_BLOCKS = 8, 64, 256, 1 << 20


@dataclasses.dataclass(frozen=True)
class Index:
    """Describe the file of an index: its name, its bytes and SHA-256, and the number of records in a block of each split.

    The last block of a shard may have fewer.
    """

    name: str
    bytes: int
    sha256: str
    every: dict[str, int]


class _Shard(Protocol):
    """Describe what the index needs to know of a shard."""

    @property
    def name(self) -> str: ...
    @property
    def records(self) -> int: ...
    @property
    def bytes(self) -> int: ...


def spacing(records: int) -> int:
    """Return how many records a block of a split with this many records has: a power of two.

    >>> [spacing(records) for records in (100, 100_000, 1_000_000, 2_000_000_000)]
    [8, 16, 64, 256]
    """
    wanted = min(_USUAL, records // _BLOCKS)
    if records > _USUAL * _MOST_BLOCKS:
        wanted = min(_MOST, records // _MOST_BLOCKS)
    return 1 << (max(_FEWEST, wanted).bit_length() - 1)


def block_sizes(sizes: np.ndarray, *, every: int) -> np.ndarray:
    """Return the bytes of each block, `uint32[blocks]`, from the bytes of each record of a shard, `int[records]`.

    >>> block_sizes(np.array([5, 6, 7, 8, 9]), every=2).tolist()
    [11, 15, 9]
    """
    if not len(sizes):
        return np.zeros(0, "<u4")
    return np.add.reduceat(sizes.astype(np.int64), np.arange(0, len(sizes), every)).astype("<u4")


def write(out: str, shards: Iterable[bytes], *, every: Mapping[str, int]) -> Index:
    """Write the index of a dataset, whole, and return its description.

    `shards` are the block sizes of each shard as bytes, splits in the order of their names. Raises OutputError.
    """
    size, sha256 = 0, hashlib.sha256()
    with paths.whole(paths.at(out, NAME)) as file:
        for blocks in shards:
            file.write(blocks)
            sha256.update(blocks)
            size += len(blocks)
    return Index(NAME, size, sha256.hexdigest(), dict(sorted(every.items())))


def read(data: str | Path, index: Index, splits: Mapping[str, Sequence[_Shard]]) -> dict[str, list[np.ndarray]]:
    """Return the bytes of each block of each shard, `uint32[blocks]`, by split, after checking them against the shards.

    Raises DatasetError where the file is missing, altered, or not the index of these shards; OutputError.
    """
    content, path = checked_file.read(data, index), paths.at(data, index.name)
    ordered = [(split, shard) for split in sorted(splits) for shard in splits[split]]
    counts = [-(-shard.records // index.every.get(split, 1)) for split, shard in ordered]
    sizes, ends = np.frombuffer(content, "<u4", len(content) // 4), list(itertools.accumulate(counts, initial=0))
    read: dict[str, list[np.ndarray]] = {split: [] for split in splits}
    for (split, shard), begin, end in zip(ordered, ends, ends[1:], strict=False):
        blocks = sizes[begin:end]
        if len(sizes) != ends[-1] or int(blocks.sum(dtype=np.int64)) != shard.bytes:
            raise DatasetError(f"{path} is not the index of {shard.name}. {checked_file.AGAIN}")
        read[split].append(blocks)
    return read

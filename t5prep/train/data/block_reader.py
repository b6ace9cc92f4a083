"""Read the records of one dataset with an index, from wherever the order wants them: a block is one read."""

import collections
import concurrent.futures
import os

import numpy as np

from t5prep.dataset import block_index, record_blocks
from t5prep.errors import DatasetError
from t5prep.io import gcs
from t5prep.train.data.opening import Opened

# Requests to a bucket at the same time: at 50 ms each, 160 blocks a second.
_SIDE_BY_SIDE = 8
# Shards that are kept open.
_OPEN_FILES = 128


class BlockReader:
    """Read records by their block and their place in it; the blocks of the last call are kept for the next one.

    `sizes` are the records of each block, int64[blocks].
    """

    def __init__(self, opened: Opened) -> None:
        """Read the index. Raises DatasetError where it is missing or altered."""
        self._open: collections.OrderedDict[int, int] = collections.OrderedDict()
        made = opened.manifest
        assert made.index is not None
        read = block_index.read(opened.data, made.index, {key: one.shards for key, one in made.splits.items()})
        every, shards = made.index.every[opened.name], [sizes for sizes in read[opened.name] if len(sizes)]
        self._data, self._paths = opened.data, opened.paths
        self._shard = np.repeat(np.arange(len(shards)), [len(sizes) for sizes in shards])
        self._bytes = np.concatenate(shards).astype(np.int64)
        self._begin = np.concatenate([np.cumsum(sizes, dtype=np.int64) - sizes for sizes in shards])
        counts = [np.full(len(sizes), every, np.int64) for sizes in shards]
        for blocks, records in zip(counts, opened.counts, strict=True):
            blocks[-1] = records - every * (len(blocks) - 1)
        self.sizes = np.concatenate(counts)
        # The blocks of the last call, in rising order, and their records, one block after the other.
        self._kept_blocks, self._kept = np.zeros(0, np.int64), np.zeros(0, object)
        self._pool = concurrent.futures.ThreadPoolExecutor(_SIDE_BY_SIDE) if gcs.is_gs(opened.data) else None

    def __del__(self) -> None:
        for handle in self._open.values():
            os.close(handle)

    def records(self, blocks: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the records at some places of some blocks: an array of bytes objects of the same shape.

        Raises DatasetError where a shard is not what it was when it was prepared.
        """
        wanted, inverse = np.unique(blocks, return_inverse=True)
        sizes = self.sizes[wanted]
        begins = np.cumsum(sizes) - sizes
        kept = np.searchsorted(self._kept_blocks, wanted)
        old = kept < len(self._kept_blocks)
        old[old] = self._kept_blocks[kept[old]] == wanted[old]
        read = np.empty(int(sizes.sum()), object)
        kept_sizes = self.sizes[self._kept_blocks]
        kept_begins = np.cumsum(kept_sizes) - kept_sizes
        read[_ranges(begins[old], sizes[old])] = self._kept[_ranges(kept_begins[kept[old]], sizes[old])]
        read[_ranges(begins[~old], sizes[~old])] = self._read(wanted[~old])
        self._kept_blocks, self._kept = wanted, read
        found: np.ndarray = read[begins[inverse].reshape(blocks.shape) + places]
        return found

    def _read(self, blocks: np.ndarray) -> np.ndarray:
        """Return the records of some blocks, one after the other."""
        numbers = blocks.tolist()
        data = list(self._pool.map(self._bytes_of, numbers) if self._pool else map(self._bytes_of, numbers))
        try:
            return record_blocks.records(data, self.sizes[blocks])
        except record_blocks.BrokenBlockError as error:
            block = numbers[error.number]
            raise DatasetError(
                f"{self._paths[self._shard[block]]} was altered after byte {self._begin[block]:,}: its records are not what "
                f"was prepared. See what else was: t5prep verify {self._data}"
            ) from error

    def _bytes_of(self, block: int) -> bytes:
        """Return the bytes of a block. Raises DatasetError."""
        shard, begin, size = int(self._shard[block]), int(self._begin[block]), int(self._bytes[block])
        try:
            if self._pool:
                return gcs.read_range(self._paths[shard], begin, size)
            return os.pread(self._handle(shard), size, begin)
        except OSError as error:
            why = error.strerror or "not found"
            raise DatasetError(
                f"{self._paths[shard]} cannot be read any more ({why}). Put it back, and start the same command again."
            ) from error

    def _handle(self, shard: int) -> int:
        """Return the handle of an open shard."""
        if shard not in self._open:
            if len(self._open) == _OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
            self._open[shard] = os.open(self._paths[shard], os.O_RDONLY)
            if hasattr(os, "posix_fadvise"):  # else the system reads up to 128 kB at each place that is new to it
                os.posix_fadvise(self._open[shard], 0, 0, os.POSIX_FADV_RANDOM)
        return self._open[shard]


def _ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return all numbers of some ranges, one range after the other: int64[sum of sizes]."""
    behind = np.cumsum(sizes)
    return np.arange(behind[-1] if len(sizes) else 0) + np.repeat(begins - (behind - sizes), sizes)

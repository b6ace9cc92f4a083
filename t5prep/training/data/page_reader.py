"""Read records of one dataset in any order, by the dataset's index. A page, a few neighbouring records, is one read."""

import collections
import concurrent.futures
import os

import numpy as np

from t5prep.dataset import shard_files, tfrecord
from t5prep.dataset.prepared import DatasetSplit
from t5prep.dataset.tfrecord import Records
from t5prep.errors import DatasetError
from t5prep.io import gcs

# Concurrent requests to a bucket: at 50 ms each, they read 160 pages a second.
_SIDE_BY_SIDE = 8
# Shards that are open at the same time; the one opened first is closed for the next. Systems often allow 1,024 open files.
_OPEN_FILES = 128


class PageReader:
    """Read records by their page and their place in the page. The pages of the previous call stay in memory.

    `sizes` holds the number of records of each page, int64[pages].
    """

    def __init__(self, opened: DatasetSplit) -> None:
        """Read the index of the split `opened`. Raises DatasetError if it is missing or altered."""
        self._open: collections.OrderedDict[int, int] = collections.OrderedDict()
        dataset = opened.dataset
        every, shards = dataset.index.every[opened.name], [sizes for sizes in dataset.pages[opened.name] if len(sizes)]
        self._data, self._paths = opened.folder, opened.paths
        self._shard = np.repeat(np.arange(len(shards)), [len(sizes) for sizes in shards])
        self._bytes = np.concatenate(shards).astype(np.int64)
        self._begin = np.concatenate([np.cumsum(sizes, dtype=np.int64) - sizes for sizes in shards])
        shard_pages = zip(opened.shards, shards, strict=True)
        self.sizes = np.concatenate(
            [shard_files.page_records(shard, len(sizes), every=every) for shard, sizes in shard_pages]
        )
        # The pages of the previous call by number: their bytes, and the positions of their records. A window of a lane often
        # begins in the page where the previous window ended, so that page need not be read twice.
        self._cached_pages: dict[int, tuple[bytes, np.ndarray]] = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(_SIDE_BY_SIDE) if gcs.is_gs(opened.folder) else None

    def __del__(self) -> None:
        for handle in self._open.values():
            os.close(handle)

    def records(self, pages: np.ndarray, places: np.ndarray) -> Records:
        """Return the records at the given `places` of the given `pages`, int64 arrays of one shape, in the same shape.

        Raises DatasetError if a shard was altered after it was prepared.
        """
        unique_pages, inverse = np.unique(pages, return_inverse=True)
        numbers = unique_pages.tolist()
        read_pages = self._read([number for number in numbers if number not in self._cached_pages])
        self._cached_pages = {number: self._cached_pages.get(number) or read_pages[number] for number in numbers}
        sizes = self.sizes[unique_pages]
        table = np.concatenate([page_places for _, page_places in self._cached_pages.values()])
        table["page"] = np.repeat(np.arange(len(unique_pages)), sizes)
        begins = np.cumsum(sizes) - sizes
        return Records(
            [data for data, _ in self._cached_pages.values()], table[begins[inverse].reshape(pages.shape) + places]
        )

    def _read(self, numbers: list[int]) -> dict[int, tuple[bytes, np.ndarray]]:
        """Return by number the bytes of pages, and the positions of their records."""
        if not numbers:
            return {}
        data = list(self._pool.map(self._bytes_of, numbers) if self._pool else map(self._bytes_of, numbers))
        counts = self.sizes[numbers]
        try:
            places = np.split(tfrecord.cut_records(data, counts), np.cumsum(counts)[:-1])
        except tfrecord.BrokenPageError as error:
            page = numbers[error.number]
            raise DatasetError(
                f"{self._paths[self._shard[page]]} was altered after byte {self._begin[page]:,}, so its "
                f"records differ from the prepared ones. Check the whole dataset: t5prep verify {self._data}",
                code="dataset.altered",
            ) from error
        return dict(zip(numbers, zip(data, places, strict=True), strict=True))

    def _bytes_of(self, page: int) -> bytes:
        """Return the bytes of a page. Raises DatasetError."""
        shard, begin, size = int(self._shard[page]), int(self._begin[page]), int(self._bytes[page])
        try:
            if self._pool:
                return gcs.read_range(self._paths[shard], begin, size)
            return os.pread(self._handle(shard), size, begin)
        except OSError as error:
            reason = error.strerror or "not found"
            raise DatasetError(
                f"{self._paths[shard]} can no longer be read ({reason}). Restore the file, and run the same "
                "command again.",
                code="dataset.unreadable",
            ) from error

    def _handle(self, shard: int) -> int:
        """Return the handle of an open shard."""
        if shard not in self._open:
            if len(self._open) == _OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
            self._open[shard] = os.open(self._paths[shard], os.O_RDONLY)
            # Without this advice Linux reads up to 128 kB ahead at each new position, of which a page needs little.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._open[shard], 0, 0, os.POSIX_FADV_RANDOM)
        return self._open[shard]

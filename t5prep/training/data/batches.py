"""Compute the rows of each step: windows of lanes, buckets, and each host's part of a batch.

A *lane* is a contiguous range of an epoch's records, and a *window* the rows of some steps (`order`). A *bucket* holds the
records that fit into rows of its lengths; with buckets, all rows of a batch come from one bucket.
"""

import collections
import concurrent.futures
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from t5prep.dataset import shard_files, tfrecord
from t5prep.dataset.prepared import DatasetSplit
from t5prep.dataset.tfrecord import Records
from t5prep.errors import UsageError
from t5prep.training.data import features, order
from t5prep.training.data.features import RecordDecoder
from t5prep.training.data.order import PageOrder
from t5prep.training.data.page_reader import PageReader
from t5prep.training.settings.train_config import Lengths

# Pages that are read at once when lengths are counted: this bounds the memory.
_SCANNED = 64


def check_buckets(opened: Sequence[DatasetSplit], buckets: Sequence[Lengths]) -> None:
    """Raise UsageError if the split `opened` cannot be read in `buckets`, as pairs of lengths.

    Buckets need a single dataset without packed rows, and may not be longer than its rows.
    """
    if len(opened) > 1:
        raise UsageError(
            "buckets work with one dataset only, but this run has several. Remove the buckets setting.",
            code="setting.conflict",
        )
    dataset_split = opened[0]
    if dataset_split.settings.is_packed:
        raise UsageError(
            f"buckets have no effect on {dataset_split.folder}, because its rows are packed and all full. "
            "Remove the buckets setting.",
            code="setting.inapplicable",
        )
    longest = tuple(max(side) for side in zip(*buckets, strict=True))
    inputs, targets = dataset_split.lengths
    if longest[0] > inputs or longest[1] > targets:
        raise UsageError(
            f"buckets go up to {longest[0]}x{longest[1]}, but the rows of {dataset_split.folder} have at "
            f"most {inputs}x{targets} tokens. Find buckets that fit: t5prep plan --model MODEL --data "
            f"{dataset_split.folder} --lengths",
            code="setting.oversized-bucket",
        )


def lengths_kept(opened: DatasetSplit) -> bool:
    """Check whether the dataset has a file with the lengths of the split's records, so that no record must be read."""
    length_index = opened.manifest.lengths
    return length_index is not None and opened.name in length_index.records


def lengths_of(opened: DatasetSplit) -> np.ndarray:
    """Return the numbers of input and target tokens of each record of a split, int32[records, 2].

    They come from the file of lengths beside the index. Without that file the whole split is read. Raises DatasetError.
    """
    length_index = opened.manifest.lengths
    if length_index and lengths_kept(opened):
        splits = shard_files.read_lengths(opened.folder, length_index, records={opened.name: opened.records})
        return splits[opened.name].astype(np.int32)
    reader, decoder = PageReader(opened), features.decoder([opened], masks=False)
    fills, measured = features.fills_of(opened), []
    begins = np.cumsum(reader.sizes) - reader.sizes
    for first in range(0, len(begins), _SCANNED):
        sizes = reader.sizes[first : first + _SCANNED]
        pages = np.repeat(np.arange(first, first + len(sizes)), sizes)
        read = reader.records(pages, np.arange(len(pages)) + begins[first] - begins[pages])
        ids = dict(zip(decoder.names, decoder(read), strict=True))
        measured.append(np.stack([(ids[name] != fill).sum(axis=1) for name, fill in fills.items()], axis=1))
    return np.concatenate(measured)


def assign_buckets(lengths: np.ndarray, buckets: Sequence[Lengths]) -> np.ndarray:
    """Return the number of the first bucket that holds each record: int64[records], from `int[records, 2]`.

    Raises UsageError for records that no bucket holds.

    >>> assign_buckets(np.array([[5, 2], [5, 9], [20, 1]]), [(8, 4), (32, 16)]).tolist()
    [0, 1, 1]
    """
    fits = np.all(lengths[:, np.newaxis] <= np.array(buckets), axis=2)
    if not fits.any(axis=1).all():
        longest = lengths.max(axis=0)
        raise UsageError(
            f"{int((~fits.any(axis=1)).sum()):,} records do not fit into any bucket. The longest input "
            f"has {longest[0]} tokens and the longest target {longest[1]}. Add a bucket of that size: "
            f"--set buckets=...,{longest[0]}x{longest[1]}",
            code="setting.missing-bucket",
        )
    return fits.argmax(axis=1)


def turn_of(records: Sequence[int], step: int) -> tuple[int, int]:
    """Return the bucket of a step, and which of that bucket's batches it is, from 0.

    `records` holds the number of records of each bucket. Buckets take turns as evenly as possible, in proportion to their
    records: batch j of a bucket with n records has the rank (2 j + 1) / 2 n, and batches come in the order of their ranks.

    >>> [turn_of([300, 100], step) for step in range(8)]
    [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (0, 4), (1, 1), (0, 5)]
    """
    total = sum(records)
    # `sure` is a step that certainly comes before this one. The batches before it are counted by a formula, and only the few
    # after it one by one, so that the work does not grow with `step`.
    sure = max(0, step - 2 * len(records))
    batch_counts = [max(0, -((total - 2 * bucket_records * sure) // (2 * total))) for bucket_records in records]
    scales = [math.prod(records) // count for count in records]  # to compare fractions as whole numbers
    while True:
        bucket = min(range(len(records)), key=lambda b: ((2 * batch_counts[b] + 1) * scales[b], b))
        if sum(batch_counts) >= step:
            return bucket, batch_counts[bucket]
        batch_counts[bucket] += 1


class Reader(Protocol):
    """Read records by their page and their place in the page. `sizes` holds the number of records of each page."""

    sizes: np.ndarray

    def records(self, pages: np.ndarray, places: np.ndarray) -> Records:
        """Return records in the shape of the arguments."""


class Part:
    """Read the records of one bucket, by pages and places that count only this bucket's records.

    `sizes` holds the number of the bucket's records in each page that has any, int64[pages].
    """

    def __init__(self, reader: Reader, numbers: np.ndarray) -> None:
        """Select the records with these `numbers`, int64[n] in rising order, counted over the whole split."""
        self._reader = reader
        page = np.repeat(np.arange(len(reader.sizes)), reader.sizes)[numbers]
        self._places = numbers - (np.cumsum(reader.sizes) - reader.sizes)[page]
        self._pages, self.sizes = np.unique(page, return_counts=True)
        self._first = np.cumsum(self.sizes) - self.sizes

    def records(self, pages: np.ndarray, places: np.ndarray) -> Records:
        """Return the records at the given places of the given pages, in the shape of these arrays."""
        return self._reader.records(self._pages[pages], self._places[self._first[pages] + places])


# The least rows of a lane's window in a mixture. Each dataset gives a whole number of them, so rates are exact to 1 / 512.
_FINENESS = 512


class Host(NamedTuple):
    """The part of a global batch that this host reads: part `number`, from 0, of `hosts` equal parts."""

    number: int
    hosts: int


ALONE = Host(0, 1)


class Windows:
    """Compute one host's rows of all steps of a window, from one dataset or from a mixture."""

    def __init__(
        self,
        readers: Sequence[Reader],
        *,
        table: order.Table,
        seed: int,
        shares: Sequence[int],
        host: Host,
        stream: int = 0,
    ) -> None:
        """Define the windows: each reader gives the number of rows in `shares` to a lane's window.

        `stream` is the number of the first reader's order. Different streams have independent orders under one seed.
        """
        self.table, self._readers, self._seed, self._shares = table, readers, seed, shares
        self.local = table.lanes * table.width // host.hosts
        first = host.number * self.local // table.width
        last = ((host.number + 1) * self.local - 1) // table.width
        self._begin = host.number * self.local - first * table.width
        self._lanes = np.arange(first, last + 1)[:, np.newaxis]
        widths = shares if len(readers) > 1 else [table.width]
        self._orders = [
            PageOrder(reader.sizes, seed, table.lanes, width, stream + number)
            for number, (reader, width) in enumerate(zip(readers, widths, strict=True))
        ]

    def __call__(self, number: int) -> Records:
        """Return the rows of all steps of a window: [steps, local]. Raises DatasetError."""
        pages: list[bytes] = []
        parts = []
        for reader, lane_order, share in zip(self._readers, self._orders, self._shares, strict=True):
            index = number * share + np.arange(share)[np.newaxis]
            read = reader.records(*lane_order.records(self._lanes, index))
            read.places["page"] += len(pages)
            pages += read.pages
            parts.append(read.places)
        table = self.table
        index = number * table.lane_rows + np.arange(table.lane_rows)[np.newaxis]
        # Only a single dataset has epochs that end at a row; in a mixture, each dataset has its own epochs.
        epoch = self._orders[0].epoch(self._lanes, index) if len(parts) == 1 else np.zeros_like(index)
        permuted = order.shuffled(self._seed, self._lanes, index, epoch)
        places = np.take_along_axis(np.concatenate(parts, axis=1), permuted, axis=1)
        steps = places.reshape(len(self._lanes), table.steps, table.width).swapaxes(0, 1).reshape(table.steps, -1)
        return Records(tuple(pages), np.ascontiguousarray(steps[:, self._begin : self._begin + self.local]))


class Batches:
    """Give the records of any step. The step's window stays in memory, and a thread reads the next window ahead."""

    def __init__(self, windows: Windows) -> None:
        """Read from `windows`. The attribute `steps` is the number of steps in a window."""
        self.steps, self._windows = windows.table.steps, windows
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="window")
        self._reading: dict[int, concurrent.futures.Future[Records]] = {}

    def __call__(self, step: int) -> Records:
        """Return the records of a step's batch. Raises DatasetError."""
        number, offset = divmod(step, self.steps)
        for old in [window_number for window_number in self._reading if window_number < number]:
            del self._reading[old]
        window = self._window(number).result()
        self._window(number + 1)  # after the wait above, so that the first batch waits for its own window alone
        return Records(window.pages, window.places[offset])

    def _window(self, number: int) -> "concurrent.futures.Future[Records]":
        return self._reading.get(number) or self._reading.setdefault(number, self._pool.submit(self._windows, number))


class Reading:
    """This host's batches of a run as numpy arrays: the rows of any step, in the lengths of the step's bucket.

    `rows` is the number of this host's rows in a batch. `together` is the number of consecutive batches that have one
    shape and are cheap to read in one call. `names` holds the features and `lengths` their lengths, None with buckets.
    """

    def __init__(
        self,
        opened: Sequence[DatasetSplit],
        *,
        seed: int,
        global_batch: int,
        rates: Sequence[float] | None = None,
        host: Host = ALONE,
        buckets: Sequence[Lengths] = (),
        masks: bool = False,
        reader: Callable[[DatasetSplit], Reader] = PageReader,
    ) -> None:
        """Open the index of each dataset.

        Args:
            opened: The split of each dataset.
            seed: Decides the order.
            global_batch: Rows of a batch over all hosts.
            rates: Relative rates at which the datasets are drawn; by default their numbers of records.
            host: The part of each batch that this host reads.
            buckets: Pairs of lengths. Each bucket has an independent order; a bucket without records is never used.
            masks: Whether to add `attention_mask`, see `features.decoder`.
            reader: Makes the reader of a dataset's records.

        Raises:
            UsageError: The rows cannot be dealt to the hosts, or the datasets do not fit these rates or buckets.
            DatasetError: An index or a file of lengths is missing or damaged.
        """
        if global_batch < 1:
            raise UsageError(f"global_batch {global_batch} is too small. Use at least 1.", code="option.out-of-range")
        if not 0 <= host.number < host.hosts:
            raise UsageError(
                f"host {host.number} of {host.hosts} hosts does not exist. Hosts are numbered from 0 to hosts - 1.",
                code="option.out-of-range",
            )
        if global_batch % host.hosts:
            raise UsageError(
                f"A global batch of {global_batch} rows cannot be divided among {host.hosts} hosts. Choose a multiple of "
                f"{host.hosts}.",
                code="device.indivisible-batch",
            )
        self.rows = global_batch // host.hosts
        # One entry for each bucket that has records; a single entry without buckets.
        self._batches: list[Batches] = []
        self._sizes: list[int] = []  # number of records
        self._decoders: list[RecordDecoder] = []
        if buckets:
            check_buckets(opened, buckets)
            of_record = assign_buckets(lengths_of(opened[0]), buckets)
            for number, shape in enumerate(buckets):
                of_bucket = np.flatnonzero(of_record == number)
                if len(of_bucket):
                    part = Part(reader(opened[0]), of_bucket)
                    table = order.table(global_batch, records=len(of_bucket), every=int(part.sizes.max()))
                    windows = Windows(
                        [part], table=table, seed=seed, shares=[table.lane_rows], host=host, stream=number
                    )
                    self._batches.append(Batches(windows))
                    self._sizes.append(len(of_bucket))
                    self._decoders.append(features.decoder(opened, masks=masks, bucket=shape))
        else:
            every = max(dataset_split.dataset.index.every[dataset_split.name] for dataset_split in opened)
            least = _FINENESS if len(opened) > 1 else 1
            records = sum(dataset_split.records for dataset_split in opened)
            table = order.table(global_batch, records=records, every=every, least=least)
            shares = _shares(opened, rates, table.lane_rows)
            readers = [reader(dataset_split) for dataset_split in opened]
            self._batches = [Batches(Windows(readers, table=table, seed=seed, shares=shares, host=host))]
            self._sizes, self._decoders = [records], [features.decoder(opened, masks=masks)]
        self.together = 1 if buckets else table.steps
        decoder = self._decoders[0]
        self.names = decoder.names
        self.lengths: Sequence[int | None] = [None] * len(self.names) if buckets else decoder.lengths

    def records(self, step: int, steps: int = 1) -> tuple[Records, RecordDecoder]:
        """Return the records of `steps` batches from `step` on, and their decoder. Raises DatasetError.

        All these batches must have one shape: with buckets `steps` is 1.
        """
        turns = [turn_of(self._sizes, number) for number in range(step, step + steps)]
        parts = [self._batches[bucket](turn) for bucket, turn in turns]
        return parts[0] if steps == 1 else tfrecord.join_records(parts), self._decoders[turns[0][0]]

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        """Return the ids of a step's batch by name, int32[rows, length]. Raises DatasetError."""
        records, decoder = self.records(step)
        return dict(zip(decoder.names, decoder(records), strict=True))

    def batches(self, start_step: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batch of each step from `start_step` on, without end. Raises DatasetError."""
        return read_ahead(self.arrays, itertools.count(start_step))


def _shares(opened: Sequence[DatasetSplit], rates: Sequence[float] | None, rows: int) -> list[int]:
    """Return how many of the `rows` of a lane's window each dataset gives. Raises UsageError if one gives none."""
    weights = [float(dataset_split.records) for dataset_split in opened] if rates is None else list(rates)
    if len(weights) != len(opened) or min(weights) <= 0 or 0 in (shares := order.shares(weights, rows)):
        raise UsageError(
            f"{len(opened)} datasets cannot be mixed by the rates {weights}. Set one positive rate for "
            f"each dataset, each large enough for one row in {rows:,}.",
            code="setting.invalid-rates",
        )
    return shares


class WholeSplit:
    """Batches that hold every record of a split once, in the order of its shards, as numpy arrays.

    The last batch is filled up with rows that the loss ignores: only EOS (a softmax needs at least one token), no label.
    """

    def __init__(self, opened: DatasetSplit, *, rows: int, limit: int = 0) -> None:
        """Select the first `limit` records (0: all), a random sample, because shards are shuffled. Raises DatasetError."""
        self._reader, self._decoder = PageReader(opened), features.decoder([opened], masks=False)
        self._ends, self._rows, self._data = np.cumsum(self._reader.sizes), rows, opened.folder
        self._records = min(limit, opened.records) or opened.records
        self._fills, self._eos = features.fills_of(opened), opened.manifest.tokenizer.eos_id
        self._packed = opened.settings.is_packed
        self._references = "references" in opened.manifest.features

    def __len__(self) -> int:
        """Return the number of batches."""
        return -(-self._records // self._rows)

    def __call__(self, number: int) -> dict[str, np.ndarray]:
        """Return batch `number`: its features, int32[rows, length], and each record's `id` and `references`.

        Raises DatasetError.
        """
        places = np.arange(number * self._rows, min((number + 1) * self._rows, self._records))
        pages = np.searchsorted(self._ends, places, side="right")
        read = self._reader.records(pages, places - (self._ends - self._reader.sizes)[pages])
        padding_rows = self._rows - len(places)
        first, batch = {"input_ids": self._eos, "input_segment_ids": 1}, {}
        for name, ids in zip(self._decoder.names, self._decoder(read), strict=True):
            filling = np.full((padding_rows, ids.shape[1]), self._fills.get(name, 0), np.int32)
            filling[:, 0] = first.get(name, filling[:, 0])
            batch[name] = np.concatenate([ids, filling]) if padding_rows else ids
        return batch | self._texts(read, padding_rows)

    def _texts(self, read: Records, padding_rows: int) -> dict[str, np.ndarray]:
        """Return the `id` and `references` of records as bytes; nothing for packed rows, which hold several records."""
        if self._packed:
            return {}
        ids, references = features.texts_of(read, "id", "references", one_id=True, data=self._data)
        texts = {"id": features.filled([*ids, *[[b""]] * padding_rows])[:, 0]}
        if self._references:
            texts["references"] = features.filled([*references, *[[]] * padding_rows])
        return texts


# Batches that are read ahead.
AHEAD = 8


def read_ahead(batch: Callable[[int], dict[str, np.ndarray]], steps: Iterable[int]) -> Iterator[dict[str, np.ndarray]]:
    """Yield `batch(step)` for each of `steps`, made in a thread, up to AHEAD of them in advance. Raises the errors of `batch`."""
    pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="batch")
    ahead = collections.deque[concurrent.futures.Future[dict[str, np.ndarray]]]()
    try:
        for step in steps:
            ahead.append(pool.submit(batch, step))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

"""Compute the rows of each step from datasets with an index: windows of lanes, each host's part of a batch."""

import concurrent.futures
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from t5prep.dataset.tfrecord import Records
from t5prep.train.data import block_order, buckets, order
from t5prep.train.data.block_order import BlockOrder
from t5prep.train.data.block_reader import BlockReader
from t5prep.train.data.opening import Opened
from t5prep.train.settings.bucket_lengths import Lengths

# A mixture's rates are exact to 1 / _FINENESS: each dataset gives a whole number of rows to a lane's window.
_FINENESS = 512


class Reader(Protocol):
    """Read records by their block and their place in it; `sizes` are the records of each block."""

    sizes: np.ndarray

    def records(self, blocks: np.ndarray, places: np.ndarray) -> Records:
        """Return records in the shape of the arguments."""


class Host(NamedTuple):
    """Say which rows of a global batch this host reads: part `number` of `hosts` equal ones."""

    number: int
    hosts: int


class Windows:
    """Compute the rows of the steps of a window, on one host, from one dataset or from several that are mixed."""

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
        """Take `shares` rows of a lane's window from each reader; `stream` is the number of the first one's order."""
        self.table, self._readers, self._seed, self._shares = table, readers, seed, shares
        self.local = table.lanes * table.width // host.hosts
        first = host.number * self.local // table.width
        last = ((host.number + 1) * self.local - 1) // table.width
        self._begin = host.number * self.local - first * table.width
        self._lanes = np.arange(first, last + 1)[:, np.newaxis]
        widths = shares if len(readers) > 1 else [table.width]
        self._orders = [
            BlockOrder(reader.sizes, seed, table.lanes, width, stream + number)
            for number, (reader, width) in enumerate(zip(readers, widths, strict=True))
        ]

    def __call__(self, number: int) -> Records:
        """Return the rows of all steps of a window: [steps, local]. Raises DatasetError."""
        blocks: list[bytes] = []
        parts = []
        for reader, own, share in zip(self._readers, self._orders, self._shares, strict=True):
            index = number * share + np.arange(share)[np.newaxis]
            read = reader.records(*own.records(self._lanes, index))
            read.places["block"] += len(blocks)
            blocks += read.blocks
            parts.append(read.places)
        table = self.table
        index = number * table.lane_rows + np.arange(table.lane_rows)[np.newaxis]
        # Only a single dataset has epochs that end at a row; in a mixture, each dataset has its own epochs.
        epoch = self._orders[0].deal.epoch(self._lanes, index) if len(parts) == 1 else np.zeros_like(index)
        permuted = order.shuffled(np, self._seed, self._lanes, index, epoch)
        places = np.take_along_axis(np.concatenate(parts, axis=1), permuted, axis=1)
        steps = places.reshape(len(self._lanes), table.steps, table.width).swapaxes(0, 1).reshape(table.steps, -1)
        return Records(tuple(blocks), np.ascontiguousarray(steps[:, self._begin : self._begin + self.local]))


def table(opened: Sequence[Opened], global_batch: int) -> order.Table:
    """Return the layout of a global batch of datasets that all have an index."""
    every = max(one.manifest.index.every[one.name] for one in opened if one.manifest.index)
    least = _FINENESS if len(opened) > 1 else 1
    return block_order.table(global_batch, records=sum(sum(one.counts) for one in opened), every=every, least=least)


class Batches:
    """Give the records of one step after the other: a window's are kept, and the next one's are read meanwhile."""

    def __init__(self, windows: Windows) -> None:
        """Take the windows. `rows` are the rows of a batch on this host, and `steps` the batches of a window."""
        self.rows, self.steps, self._windows = windows.local, windows.table.steps, windows
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="window")
        self._reading: dict[int, concurrent.futures.Future[Records]] = {}

    def __call__(self, step: int) -> Records:
        """Return the records of a step's batch. Raises DatasetError."""
        number, place = divmod(step, self.steps)
        for old in [one for one in self._reading if one < number]:
            del self._reading[old]
        window = self._window(number).result()
        self._window(number + 1)  # begun now, so that the first batch waits for its own window alone
        return Records(window.blocks, window.places[place])

    def _window(self, number: int) -> "concurrent.futures.Future[Records]":
        return self._reading.get(number) or self._reading.setdefault(number, self._pool.submit(self._windows, number))


class BucketBatches:
    """Give the records of one step after the other, each batch from one bucket; the buckets take turns.

    Each bucket has an order of its own, as a dataset has. A bucket that holds no record has no turn.
    """

    def __init__(self, opened: Opened, lengths: Sequence[Lengths], *, seed: int, global_batch: int, host: Host) -> None:
        """Part the records. Raises UsageError where one fits into no bucket, and DatasetError."""
        of_record = buckets.assign(buckets.lengths(opened), lengths)
        self._batches, self._shapes, self._sizes = [], [], []
        for number, shape in enumerate(lengths):
            own = np.flatnonzero(of_record == number)
            if not len(own):
                continue
            part = buckets.Part(BlockReader(opened), own)
            laid = block_order.table(global_batch, records=len(own), every=int(part.sizes.max()))
            windows = Windows([part], table=laid, seed=seed, shares=[laid.lane_rows], host=host, stream=number)
            self._batches.append(Batches(windows))
            self._shapes.append(shape)
            self._sizes.append(len(own))

    def __call__(self, step: int) -> tuple[Records, Lengths]:
        """Return the records of a step's batch, and the lengths of its bucket. Raises DatasetError."""
        ((bucket, turn),) = buckets.turns(self._sizes, step, 1)
        return self._batches[bucket](turn), self._shapes[bucket]


def of_datasets(
    opened: Sequence[Opened], *, seed: int, global_batch: int, shares: Sequence[int], host: Host
) -> Batches:
    """Return this host's batches of datasets that all have an index.

    Each dataset of a mixture gives its share of a lane's rows in a window, and the permutation mixes them.
    """
    readers, laid = [BlockReader(one) for one in opened], table(opened, global_batch)
    return Batches(Windows(readers, table=laid, seed=seed, shares=shares, host=host))

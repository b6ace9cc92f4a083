"""Read serialized records in training order from datasets with an index: windows of lanes, each host's rows of a batch."""

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from t5prep.train.bucket_lengths import Lengths
from t5prep.train.data import block_order, buckets, order
from t5prep.train.data.block_order import BlockOrder
from t5prep.train.data.block_reader import BlockReader
from t5prep.train.data.opening import Opened
from t5prep.train.data.record_decoder import RecordDecoder

# A mixture's rates are exact to 1 / _FINENESS: each dataset gives a whole number of rows to a lane's window.
_FINENESS = 512
# Batches that are read ahead.
_AHEAD = 8


class Reader(Protocol):
    """Read records by their block and their place in it; `sizes` are the records of each block."""

    sizes: np.ndarray

    def records(self, blocks: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return bytes objects, in the shape of the arguments."""


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

    def __call__(self, number: int) -> np.ndarray:
        """Return the rows of all steps of a window: bytes objects [steps, local]. Raises DatasetError."""
        parts = []
        for reader, own, share in zip(self._readers, self._orders, self._shares, strict=True):
            index = number * share + np.arange(share)[np.newaxis]
            parts.append(reader.records(*own.records(self._lanes, index)))
        table = self.table
        index = number * table.lane_rows + np.arange(table.lane_rows)[np.newaxis]
        # Only a single dataset has epochs that end at a row; in a mixture, each dataset has its own epochs.
        epoch = self._orders[0].deal.epoch(self._lanes, index) if len(parts) == 1 else np.zeros_like(index)
        permuted = order.shuffled(np, self._seed, self._lanes, index, epoch)
        records = np.take_along_axis(np.concatenate(parts, axis=1), permuted, axis=1)
        steps = records.reshape(len(self._lanes), table.steps, table.width).swapaxes(0, 1).reshape(table.steps, -1)
        return np.ascontiguousarray(steps[:, self._begin : self._begin + self.local])


def table(opened: Sequence[Opened], global_batch: int) -> order.Table:
    """Return the layout of a global batch of datasets that all have an index."""
    every = max(one.manifest.index.every[one.name] for one in opened if one.manifest.index)
    least = _FINENESS if len(opened) > 1 else 1
    return block_order.table(global_batch, records=sum(sum(one.counts) for one in opened), every=every, least=least)


def rows(
    opened: Sequence[Opened],
    *,
    seed: int,
    global_batch: int,
    start_step: int,
    shares: Sequence[int],
    host: int,
    hosts: int,
    decoder: RecordDecoder | None = None,
    finish: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Any:
    """Return this host's rows of every global batch from `start_step` on, without end: a dataset of `string[rows]`.

    With a `decoder`, it is a dataset of what `finish` returns for ids by name, int32[rows, length]. Each dataset of a
    mixture gives its share of a lane's rows in a window, and the permutation mixes them.
    """
    laid = table(opened, global_batch)
    readers = [BlockReader(one) for one in opened]
    windows = Windows(readers, table=laid, seed=seed, shares=shares, host=Host(host, hosts))
    if decoder:
        return _decoded(windows, decoder, finish, start_step=start_step)

    def read(number: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(windows, [number], tf.string), [laid.steps, windows.local])

    numbers = tf.data.Dataset.counter(start=start_step // laid.steps, dtype=tf.int64)
    return numbers.map(read).prefetch(1).unbatch().skip(start_step % laid.steps)


def _decoded(windows: Windows, decoder: RecordDecoder, finish: Callable[..., Any], *, start_step: int) -> Any:
    """Return the batches of windows, decoded: a window's records are kept, and the next one's are read meanwhile."""
    pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="window")
    reading: dict[int, concurrent.futures.Future[np.ndarray]] = {}

    def window(number: int) -> "concurrent.futures.Future[np.ndarray]":
        return reading.get(number) or reading.setdefault(number, pool.submit(windows, number))

    def batch(step: int) -> list[np.ndarray]:
        number, place = divmod(int(step), windows.table.steps)
        for old in [one for one in reading if one < number]:
            reading.pop(old, None)
        arrays = decoder(window(number).result()[place])
        window(number + 1)  # begun now, so that the first batch waits for its own window alone
        return arrays

    def read(step: Any) -> dict[str, Any]:
        arrays = tf.numpy_function(batch, [step], [tf.int32] * len(decoder.names))
        shapes = [[windows.local, length] for length in decoder.lengths]
        return finish(dict(zip(decoder.names, map(tf.ensure_shape, arrays, shapes), strict=True)))

    return tf.data.Dataset.counter(start=start_step, dtype=tf.int64).map(read).prefetch(_AHEAD)


def bucket_rows(
    opened: Opened,
    lengths: Sequence[Lengths],
    *,
    seed: int,
    global_batch: int,
    start_step: int,
    host: int,
    hosts: int,
) -> Any:
    """Return this host's rows of every global batch, each of one bucket: a dataset of `string[rows], int64[2]`.

    The second tensor is the bucket's lengths. Each bucket has an order of its own, as a dataset has; their batches take
    turns. A bucket that holds no record has no turn. Raises UsageError where a record fits into no bucket.
    """
    of_record = buckets.assign(buckets.lengths(opened), lengths)
    windows, shapes, sizes = [], [], []
    for number, shape in enumerate(lengths):
        own = np.flatnonzero(of_record == number)
        if not len(own):
            continue
        part = buckets.Part(BlockReader(opened), own)
        laid = block_order.table(global_batch, records=len(own), every=int(part.sizes.max()))
        windows.append(
            Windows([part], table=laid, seed=seed, shares=[laid.lane_rows], host=Host(host, hosts), stream=number)
        )
        shapes.append(shape)
        sizes.append(len(own))
    kept: dict[int, tuple[int, np.ndarray]] = {}

    def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
        ((bucket, turn),) = buckets.turns(sizes, int(step), 1)
        window, place = divmod(turn, windows[bucket].table.steps)
        if bucket not in kept or kept[bucket][0] != window:
            kept[bucket] = window, windows[bucket](window)
        return kept[bucket][1][place], np.array(shapes[bucket], np.int64)

    def read(step: Any) -> Any:
        records, shape = tf.numpy_function(batch, [step], (tf.string, tf.int64))
        return tf.ensure_shape(records, [global_batch // hosts]), tf.ensure_shape(shape, [2])

    return tf.data.Dataset.counter(start=start_step, dtype=tf.int64).map(read).prefetch(_AHEAD)

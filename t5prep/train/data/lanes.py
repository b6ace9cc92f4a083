"""Read serialized records in training order: lanes of shards, windows, each host's rows of a batch. All runs in C++."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow.experimental.numpy as tnp

from t5prep.train.data import order
from t5prep.train.data.opening import Opened

# The read buffer of TFRecordDataset per file, in bytes; its default of 256 kB makes a system call per 200 records.
_BUFFER = 1 << 20
_TOGETHER = 256


def rows(
    opened: Sequence[Opened],
    *,
    seed: int,
    global_batch: int,
    start_step: int,
    shares: Sequence[int],
    host: int,
    hosts: int,
) -> Any:
    """Return this host's rows of every global batch from `start_step` on, without end, as (window, indices in it).

    The elements are `string[n], int64[global_batch / hosts]`. The window is the same tensor for all of its steps: the
    batch is gathered where it is parsed, by many threads. `t5prep.train.data.order` defines which rows they are. Each
    dataset of a mixture gives its share of a lane's rows in a window, and the permutation mixes them.
    """
    table = order.table(global_batch, min(len(one.counts) for one in opened))
    width, steps, lane_rows = table.width, table.steps, table.lane_rows
    local = global_batch // hosts
    first, last = host * local // width, ((host + 1) * local - 1) // width
    window = start_step // steps
    lanes = tf.range(first, last + 1, dtype=tf.int64)

    deals, streams = [], []
    for number, (one, share) in enumerate(zip(opened, shares, strict=True)):
        deal = order.Deal(one.counts, seed, table.lanes, width if len(opened) == 1 else share, number)
        deals.append(deal)
        streams.append(_lanes(one, deal, lanes=lanes, start=window * share, share=share))

    def dealt(number: Any, *records: Any) -> Any:
        """Return the window and, for each of its steps, the indices of the records in the batch."""
        index = number * lane_rows + tf.range(lane_rows, dtype=tf.int64)[tf.newaxis]
        lane = lanes[:, tf.newaxis]
        # Only a single dataset has epochs that end at a row; in a mixture, each dataset has its own epochs.
        epoch = deals[0].epoch(lane, index) if len(deals) == 1 else tf.zeros_like(index)
        permuted = order.shuffled(tnp, seed, lane, index, epoch)
        row = tf.range(host * local, (host + 1) * local, dtype=tf.int64)
        slot = tf.range(steps, dtype=tf.int64)[:, tf.newaxis] * width + row % width
        at = (row // width - first) * lane_rows
        flat = tf.gather(tf.reshape(permuted, [-1]), at + slot) + at
        window = tf.reshape(records[0] if len(records) == 1 else tf.concat(records, axis=1), [-1])
        each = tf.data.Dataset.from_tensors(window).repeat()
        return tf.data.Dataset.zip(each, tf.data.Dataset.from_tensor_slices(flat))

    numbered = tf.data.Dataset.counter(start=window, dtype=tf.int64)
    return tf.data.Dataset.zip(numbered, *streams).flat_map(dealt).skip(start_step % steps)


def _lanes(opened: Opened, deal: order.Deal, *, lanes: Any, start: int, share: int) -> Any:
    """Return the records of some lanes, window by window: `string[lanes, share]`, not permuted."""
    paths = tf.constant(opened.paths)

    def lane(number: Any) -> Any:
        def epoch(passed: Any) -> Any:
            shard, skip, take = deal.pieces(tnp, number, passed, start)
            used = tf.where(take > 0)[:, 0]
            pieces = tuple(tf.gather(x, used) for x in (tf.gather(paths, shard), skip, take))
            return tf.data.Dataset.from_tensor_slices(pieces).flat_map(piece)

        epochs = tf.data.Dataset.counter(start=deal.epoch(number, tf.constant(start, tf.int64)), dtype=tf.int64)
        return epochs.flat_map(epoch).rebatch(share, drop_remainder=True)

    side_by_side = tf.data.Dataset.from_tensor_slices(lanes).interleave(
        lane, cycle_length=lanes.shape[0], block_length=1, num_parallel_calls=lanes.shape[0]
    )
    return side_by_side.batch(lanes.shape[0], drop_remainder=True).prefetch(1)


def piece(path: Any, skip: Any, take: Any) -> Any:
    """Return some consecutive records of one shard, many in an element (`string[n]`), because each element costs time.

    Skipping reads only the headers of records. The raw operation avoids the layer that TFRecordDataset adds around
    every file.
    """
    none = tf.zeros([0], tf.int64)
    file = tf.raw_ops.TFRecordDatasetV2(filenames=[path], compression_type="", buffer_size=_BUFFER, byte_offsets=none)
    records = tf.data.experimental.from_variant(file, tf.TensorSpec([], tf.string))
    return records.skip(skip).take(take).batch(_TOGETHER)


def share_of(opened: Opened, *, begin: int, end: int) -> Any:
    """Return the records [begin, end) of a split in the order of its shards, each once."""
    pieces, passed = [], 0
    for path, count in zip(opened.paths, opened.counts, strict=True):
        low, high = max(begin - passed, 0), min(end - passed, count)
        if low < high:
            pieces.append((path, low, high - low))
        passed += count
    if not pieces:
        return tf.data.Dataset.from_tensor_slices(tf.zeros([0], tf.string))
    path, skip, take = (tf.constant(column) for column in zip(*pieces, strict=True))
    slices = tf.data.Dataset.from_tensor_slices((path, tf.cast(skip, tf.int64), tf.cast(take, tf.int64)))
    return slices.flat_map(piece).unbatch()

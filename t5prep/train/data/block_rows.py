"""Read serialized records in training order from datasets with an index: windows of lanes, each host's rows of a batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.train.data import block_order, order
from t5prep.train.data.block_order import BlockOrder
from t5prep.train.data.block_reader import BlockReader
from t5prep.train.data.opening import Opened

# A mixture's rates are exact to 1 / _FINENESS: each dataset gives a whole number of rows to a lane's window.
_FINENESS = 512


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
) -> Any:
    """Return this host's rows of every global batch from `start_step` on, without end: a dataset of `string[rows]`.

    Each dataset of a mixture gives its share of a lane's rows in a window, and the permutation mixes them.
    """
    laid = table(opened, global_batch)
    local = global_batch // hosts
    first, last = host * local // laid.width, ((host + 1) * local - 1) // laid.width
    lanes = np.arange(first, last + 1)[:, np.newaxis]
    readers = [BlockReader(one) for one in opened]
    widths = shares if len(opened) > 1 else [laid.width]
    orders = [
        BlockOrder(reader.sizes, seed, laid.lanes, width, stream)
        for stream, (reader, width) in enumerate(zip(readers, widths, strict=True))
    ]

    def window(number: np.ndarray) -> np.ndarray:
        """Return the rows of all steps of a window: bytes objects [steps, local]."""
        parts = []
        for reader, own, share in zip(readers, orders, shares, strict=True):
            index = int(number) * share + np.arange(share)[np.newaxis]
            parts.append(reader.records(*own.records(lanes, index)))
        index = int(number) * laid.lane_rows + np.arange(laid.lane_rows)[np.newaxis]
        # Only a single dataset has epochs that end at a row; in a mixture, each dataset has its own epochs.
        epoch = orders[0].deal.epoch(lanes, index) if len(orders) == 1 else np.zeros_like(index)
        permuted = order.shuffled(np, seed, lanes, index, epoch)
        records = np.take_along_axis(np.concatenate(parts, axis=1), permuted, axis=1)
        steps = records.reshape(len(lanes), laid.steps, laid.width).swapaxes(0, 1).reshape(laid.steps, -1)
        begin = host * local - first * laid.width
        return np.ascontiguousarray(steps[:, begin : begin + local])

    def read(number: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(window, [number], tf.string), [laid.steps, local])

    numbers = tf.data.Dataset.counter(start=start_step // laid.steps, dtype=tf.int64)
    return numbers.map(read).prefetch(1).unbatch().skip(start_step % laid.steps)

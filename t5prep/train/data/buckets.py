"""Part a dataset's records by length: each bucket has rows of one shape, and a batch has the rows of one bucket."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.dataset import shard_files
from t5prep.dataset.tfrecord import Records
from t5prep.errors import DatasetError, UsageError
from t5prep.train.data import features, lanes
from t5prep.train.data.block_reader import BlockReader
from t5prep.train.data.opening import Opened
from t5prep.train.settings.bucket_lengths import Lengths

# Records that are parsed at once to learn their lengths.
_SCANNED = 1024


def check(opened: Sequence[Opened], buckets: Sequence[Lengths]) -> None:
    """Raise UsageError where these datasets cannot be trained on in buckets."""
    if len(opened) > 1:
        raise UsageError("buckets part the records of a single dataset, and this run has several. Leave buckets out.")
    one = opened[0]
    if one.manifest.settings.layout == "packed":
        raise UsageError(
            f"buckets do nothing for {one.data}: its rows are packed, and all are full. Leave buckets out."
        )
    if not one.manifest.index:
        raise DatasetError(f"{one.data} has no index, which buckets need. Prepare it again, into another --out.")
    longest = tuple(max(side) for side in zip(*buckets, strict=True))
    if longest[0] > one.input_length or longest[1] > one.target_length:
        raise UsageError(
            f"buckets go up to {longest[0]}x{longest[1]}, and the rows of {one.data} have {one.input_length}x"
            f"{one.target_length} at most. Look for some that fit: t5prep plan --model MODEL --data {one.data} --lengths"
        )


def lengths_kept(opened: Opened) -> bool:
    """Check whether the lengths of a split's records stand beside the index, where they are read at once."""
    kept = opened.manifest.lengths
    return kept is not None and opened.name in kept.records


def lengths(opened: Opened) -> np.ndarray:
    """Return the input and target tokens of each record of a split, `int32[records, 2]`.

    They stand beside the index; where they do not, all of the split is read. Raises DatasetError.
    """
    kept = opened.manifest.lengths
    if kept and lengths_kept(opened):
        return shard_files.read_lengths(opened.data, kept, split=opened.name, counts=opened.counts)
    records = sum(opened.counts)
    batches = lanes.share_of(opened, begin=0, end=records).batch(_SCANNED)
    measure = features.measurer(opened)
    measured = batches.map(measure, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return np.concatenate(list(measured.as_numpy_iterator()))


def assign(lengths: np.ndarray, buckets: Sequence[Lengths]) -> np.ndarray:
    """Return the number of the first bucket that holds each record: int64[records], from `int[records, 2]`.

    Raises UsageError for records that no bucket holds.

    >>> assign(np.array([[5, 2], [5, 9], [20, 1]]), [(8, 4), (32, 16)]).tolist()
    [0, 1, 1]
    """
    fits = np.all(lengths[:, np.newaxis] <= np.array(buckets), axis=2)
    if not fits.any(axis=1).all():
        longest = lengths.max(axis=0)
        raise UsageError(
            f"{int((~fits.any(axis=1)).sum()):,} records fit into no bucket: the longest input has {longest[0]} tokens and the "
            f"longest target {longest[1]}. Add a bucket of that size: --set buckets=...,{longest[0]}x{longest[1]}"
        )
    return fits.argmax(axis=1)


def turns(records: Sequence[int], step: int, steps: int) -> list[tuple[int, int]]:
    """Return the bucket of each of some steps from `step` on, and which of that bucket's batches it is, from 0.

    Buckets take turns in proportion to their records, as evenly as they can: the batch j of a bucket with n of all N
    records stands at the place (2 j + 1) / 2 n.

    >>> turns([300, 100], 0, 8)
    [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (0, 4), (1, 1), (0, 5)]
    """
    total = sum(records)
    # A place that is surely before this step: all batches before it are counted, and the rest are gone through.
    sure = max(0, step - 2 * len(records))
    taken = [max(0, -((total - 2 * own * sure) // (2 * total))) for own in records]
    order: list[tuple[int, int]] = []
    while len(order) < step + steps - sure:
        ahead = sum(taken)
        bucket = min(range(len(records)), key=lambda b: ((2 * taken[b] + 1) * _over(records, b), b))
        if ahead >= step:
            order.append((bucket, taken[bucket]))
        taken[bucket] += 1
        if len(order) == steps:
            break
    return order


def _over(records: Sequence[int], bucket: int) -> Any:
    """Return the product of the other buckets' records, to compare fractions as whole numbers."""
    product = 1
    for number, own in enumerate(records):
        product *= own if number != bucket else 1
    return product


class Part:
    """Read the records of one bucket: blocks and places are counted among its own records.

    `sizes` are the bucket's records of each block that has any, int64[blocks].
    """

    def __init__(self, reader: BlockReader, numbers: np.ndarray) -> None:
        """Take the records of these numbers, int64[n] in rising order, counted over the whole split."""
        self._reader = reader
        block = np.repeat(np.arange(len(reader.sizes)), reader.sizes)[numbers]
        self._places = numbers - (np.cumsum(reader.sizes) - reader.sizes)[block]
        self._blocks, self.sizes = np.unique(block, return_counts=True)
        self._first = np.cumsum(self.sizes) - self.sizes

    def records(self, blocks: np.ndarray, places: np.ndarray) -> Records:
        """Return the records at some places of some blocks, in the same shape."""
        return self._reader.records(self._blocks[blocks], self._places[self._first[blocks] + places])

"""Give the rows of datasets with an index to TensorFlow: each host's rows of every global batch, from any step on."""

import atexit
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.dataset import tfrecord
from t5prep.dataset.tfrecord import Records
from t5prep.errors import DatasetError
from t5prep.train.data.batches import Batches, BucketBatches
from t5prep.train.data.features import RecordDecoder

# Batches that are read ahead, and that one call from TensorFlow into Python makes: a call takes as long as 20 rows.
AHEAD = TOGETHER = 8


class _Calls:
    """Count the calls from TensorFlow's threads into Python, and end them before Python ends.

    Python never gives its lock to a thread that waits for it when the process ends. An iterator that is still there then
    waits for its thread, and the process for the iterator, for ever.
    """

    def __init__(self) -> None:
        self._made, self._ending = 0, False
        atexit.register(self._end)

    def __call__(self, function: Callable[[int], Any]) -> Callable[[Any], Any]:
        """Return a function for `tf.numpy_function` that calls another one with a whole number."""

        def call(number: Any) -> Any:
            self._made += 1
            if self._ending:
                raise StopIteration
            return function(int(number))

        return call

    def _end(self) -> None:
        """Let the threads run until none calls any more: what they read ahead is full of failed calls then."""
        self._ending, before = True, -1
        while before != self._made:
            before = self._made
            time.sleep(0.05)


_from_tensorflow = _Calls()


def decoded(
    batches: Batches, decoder: RecordDecoder, finish: Callable[[dict[str, Any]], dict[str, Any]], *, start_step: int
) -> Any:
    """Return a dataset of what `finish` returns for the ids of each batch by name, int32[rows, length]."""
    together = min(TOGETHER, batches.steps)  # else the first batch would wait for many windows

    def decode(number: int) -> list[np.ndarray]:
        first = start_step + number * together
        return decoder(tfrecord.join_records([batches(step) for step in range(first, first + together)]))

    def read(number: Any) -> dict[str, Any]:
        arrays = tf.numpy_function(_from_tensorflow(decode), [number], [tf.int32] * len(decoder.names))
        shapes = [[together, batches.rows, length] for length in decoder.lengths]
        return dict(zip(decoder.names, map(tf.reshape, arrays, shapes), strict=True))

    several = tf.data.Dataset.counter(dtype=tf.int64).map(read).prefetch(1)
    return several.unbatch().map(finish)


def serialized(batches: Batches, *, start_step: int) -> Any:
    """Return a dataset of the records of each batch: `string[rows]`."""

    def read(step: Any) -> Any:
        records = tf.numpy_function(_from_tensorflow(lambda step: _strings(batches(step))), [step], tf.string)
        return tf.ensure_shape(records, [batches.rows])

    return _steps(start_step).map(read).prefetch(AHEAD)


def serialized_in_buckets(batches: BucketBatches, *, rows: int, start_step: int) -> Any:
    """Return a dataset of the records of each batch and of its bucket's lengths: `string[rows], int64[2]`."""

    def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
        records, lengths = batches(step)
        return _strings(records), np.array(lengths, np.int64)

    def read(step: Any) -> Any:
        records, lengths = tf.numpy_function(_from_tensorflow(batch), [step], (tf.string, tf.int64))
        return tf.ensure_shape(records, [rows]), tf.ensure_shape(lengths, [2])

    return _steps(start_step).map(read).prefetch(AHEAD)


def _steps(first: int) -> Any:
    return tf.data.Dataset.counter(start=first, dtype=tf.int64)


def _strings(records: Records) -> np.ndarray:
    """Return records as TensorFlow takes them: an array of bytes objects."""
    array = np.empty(len(records.places), object)
    array[:] = records.serialized()
    return array


# TensorFlow hands on the traceback of an exception as text; the exception itself is its last line.
_OURS = re.compile(r"^t5prep\.errors\.\w+: (.+)$", re.MULTILINE)
# The names of nodes of the graph, before and after a message.
_NODES = re.compile(r"^\{\{.*?\}\} |\s*\[(\[|Op:).*$")


def arrays(batches: tf.data.Dataset) -> Iterator[dict[str, Any]]:
    """Yield batches as numpy arrays. Raises DatasetError where a shard cannot be read or was altered."""
    return explained(batches.as_numpy_iterator())


def explained(batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield batches. Raises DatasetError where TensorFlow cannot read one."""
    try:
        yield from batches
    except tf.errors.OpError as error:
        ours = _OURS.findall(error.message)
        why = _NODES.sub("", error.message.partition("\n")[0])
        raise DatasetError(
            ours[-1] if ours else f"The data cannot be read ({why}). Check it: t5prep verify DATA"
        ) from error

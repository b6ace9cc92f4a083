"""Give the rows of datasets with an index to TensorFlow: each host's rows of every global batch, from any step on."""

import atexit
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.errors import DatasetError
from t5prep.train.data.batches import Reading

# Batches that are read ahead, and that one call from TensorFlow into Python makes: a call takes as long as 20 rows.
AHEAD = TOGETHER = 8
_SERIALIZED = "serialized"  # the whole records of a batch, until `texts` has read them


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


def batches(reading: Reading, finish: Callable[[dict[str, Any]], Any], *, start_step: int, texts: Any = None) -> Any:
    """Return a dataset of what `finish` returns for each batch by name: the arrays of `reading`, without end.

    `texts` makes further features of the batch's serialized records, `string[rows]`.
    """
    together = min(TOGETHER, reading.together)  # else the first batch would wait for many windows

    def decode(number: int) -> list[np.ndarray]:
        records, decoder = reading.records(start_step + number * together, together)
        arrays = decoder(records)
        if texts:
            serialized = np.empty(len(records.places), object)
            serialized[:] = records.serialized()
            arrays.append(serialized)
        return arrays

    def read(number: Any) -> dict[str, Any]:
        kinds = [tf.int32] * len(reading.names) + ([tf.string] if texts else [])
        arrays = tf.numpy_function(_from_tensorflow(decode), [number], kinds)
        shapes = [[together, reading.rows, -1 if length is None else length] for length in reading.lengths]
        shapes.append([together, reading.rows])
        return dict(zip((*reading.names, _SERIALIZED), map(tf.reshape, arrays, shapes), strict=False))

    def with_texts(batch: dict[str, Any]) -> Any:
        serialized = batch.pop(_SERIALIZED)
        return finish({**batch, **texts(serialized)})

    several = tf.data.Dataset.counter(dtype=tf.int64).map(read).prefetch(-(-AHEAD // together))
    return several.unbatch().map(with_texts if texts else finish)


# TensorFlow hands on the traceback of an exception as text; the exception itself is its last line.
_OURS = re.compile(r"^t5prep\.errors\.\w+: (.+)$", re.MULTILINE)
# The names of nodes of the graph, before and after a message.
_NODES = re.compile(r"^\{\{.*?\}\} |\s*\[(\[|Op:).*$")


def arrays(batches: tf.data.Dataset) -> Iterator[dict[str, Any]]:
    """Yield batches as numpy arrays. Raises DatasetError if a shard cannot be read or was altered."""
    return explained(batches.as_numpy_iterator())


def explained(batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield batches. Raises DatasetError if TensorFlow cannot read one."""
    try:
        yield from batches
    except tf.errors.OpError as error:
        ours = _OURS.findall(error.message)
        why = _NODES.sub("", error.message.partition("\n")[0])
        raise DatasetError(
            ours[-1] if ours else f"The data cannot be read ({why}). Check it: t5prep verify DATA"
        ) from error

"""Serve batches as a `tf.data.Dataset`: a host's rows of every global batch, from any step on."""

import atexit
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import tensorflow as tf

from t5prep.errors import T5prepError
from t5prep.training.data import features
from t5prep.training.data.batches import Reading

# Batches that are read ahead, and batches that one call from TensorFlow into Python makes. A call costs as much time as
# the decoding of 20 rows, so one call makes several batches.
AHEAD = BATCHES_PER_CALL = 8


Out = TypeVar("Out")


class _Calls:
    """Count the calls from TensorFlow's threads into Python, and let them end before Python does.

    When Python shuts down, it never again gives its lock to a waiting thread. An iterator that still exists would then
    wait for its thread, and the process for the iterator, for ever.
    """

    def __init__(self) -> None:
        self._calls, self._ending = 0, False
        atexit.register(self._end)

    def __call__(self, function: Callable[[int], Out]) -> Callable[[np.int64], Out]:
        """Return a function for `tf.numpy_function` that calls `function` with an int. At the end of Python it stops the data."""

        def call(number: np.int64) -> Out:
            self._calls += 1
            if self._ending:
                raise StopIteration
            return function(int(number))

        return call

    def _end(self) -> None:
        """Wait until no thread calls any more: by then the queues of batches are full of failed calls."""
        self._ending, previous_count = True, -1
        while previous_count != self._calls:
            previous_count = self._calls
            time.sleep(0.05)


_from_tensorflow = _Calls()


class _Failures:
    """Record the first T5prepError of reading, and raise it to the caller.

    TensorFlow would raise an error of its own, with a traceback in its message.
    """

    def __init__(self) -> None:
        self._first: T5prepError | None = None

    def __call__(self, function: Callable[[int], Out]) -> Callable[[int], Out]:
        """Return `function`, changed so that its T5prepError is recorded."""

        def call(number: int) -> Out:
            try:
                return function(number)
            except T5prepError as error:
                self._first = self._first or error
                raise

        return call

    def raised_by(self, served: tf.data.Dataset) -> tf.data.Dataset:
        """Return `served`, changed so that its iterators raise the recorded error.

        Datasets that are derived from it (by `map`, `take`) still raise TensorFlow's error.
        """
        # tf.data has no hook for errors, so the classes of this dataset and of its iterators are replaced by subclasses.
        failures, kind = self, type(served)

        class Batches(kind):  # type: ignore[misc, valid-type]
            def __iter__(self) -> Iterator[dict[str, tf.Tensor]]:
                iterator = super().__iter__()
                iterator.__class__ = failures._iterator(type(iterator))
                return iterator

        served.__class__ = Batches
        return served

    def _iterator(self, kind: type) -> type:
        failures = self

        class RaisingIterator(kind):
            def __next__(self) -> dict[str, tf.Tensor]:
                with failures._unwrapped():
                    return super().__next__()

            def get_next(self) -> dict[str, tf.Tensor]:
                with failures._unwrapped():
                    return super().get_next()

        return RaisingIterator

    @contextlib.contextmanager
    def _unwrapped(self) -> Iterator[None]:
        """Raise the error of reading in place of the OpError that TensorFlow makes of it."""
        try:
            yield
        except tf.errors.OpError:
            if self._first is None:
                raise
            raise self._first from None


def batches(
    reading: Reading, finish: Callable[[dict[str, tf.Tensor]], object], *, start_step: int, with_ids: bool
) -> tf.data.Dataset:
    """Return an endless dataset of the batches of `reading`, from `start_step` on, each changed by `finish`.

    `finish` takes and returns a batch, its tensors by name. `with_ids` adds the records' `id`. Iterators raise the errors
    of reading.
    """
    failures = _Failures()
    # A call makes at most one window, or the first batch would wait for several. With ids it makes one batch: the number of
    # ids in a packed row differs from batch to batch.
    batches_per_call = 1 if with_ids else min(BATCHES_PER_CALL, reading.together)
    names = (*reading.names, *(["id"] if with_ids else []))
    shapes = [[batches_per_call, reading.rows, -1 if length is None else length] for length in reading.lengths]
    packed = "input_segment_ids" in names
    if with_ids:
        shapes.append([batches_per_call, reading.rows, *([-1] if packed else [])])

    def decode(number: int) -> list[np.ndarray]:
        records, decoder = reading.records(start_step + number * batches_per_call, batches_per_call)
        arrays = decoder(records)
        if with_ids:
            arrays.append(features.filled(features.texts_of(records, "id", one_id=not packed)[0]))
        return arrays

    def read(number: tf.Tensor) -> dict[str, tf.Tensor]:
        kinds = [tf.string if name == "id" else tf.int32 for name in names]
        arrays = tf.numpy_function(_from_tensorflow(failures(decode)), [number], kinds)
        return dict(zip(names, map(tf.reshape, arrays, shapes), strict=True))

    several = tf.data.Dataset.counter(dtype=tf.int64).map(read).prefetch(-(-AHEAD // batches_per_call))
    served = several.unbatch().map(finish).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.deterministic = True
    return failures.raised_by(served.with_options(options))

"""Read training batches as numpy arrays on a thread of their own: what the trainer hands to its devices."""

import collections
import concurrent.futures
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from t5prep.train.data import features
from t5prep.train.data.opening import Opened
from t5prep.train.data.record_decoder import RecordDecoder
from t5prep.train.data.windows import Batches, BucketBatches
from t5prep.train.settings.bucket_lengths import Lengths

# Batches that are read ahead.
AHEAD = 8


def read_ahead(batch: Callable[[int], dict[str, np.ndarray]], *, start_step: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the batches of all steps from `start_step` on, without end; some are made ahead. Raises what `batch` raises."""
    pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="batch")
    try:
        ahead = collections.deque(pool.submit(batch, start_step + number) for number in range(AHEAD))
        while True:
            start_step += 1
            ahead.append(pool.submit(batch, start_step + AHEAD - 1))
            yield ahead.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def decoded(batches: Batches, decoder: RecordDecoder) -> Callable[[int], dict[str, np.ndarray]]:
    """Return a function from a step to the ids of its batch by name, int32[rows, length]."""
    return lambda step: dict(zip(decoder.names, decoder(batches(step)), strict=True))


def decoded_in_buckets(
    batches: BucketBatches, opened: Opened, buckets: Sequence[Lengths]
) -> Callable[[int], dict[str, np.ndarray]]:
    """Return a function from a step to the ids of its batch by name, as long as its bucket is."""
    decoders = {lengths: features.decoder([opened], masks=False, bucket=lengths) for lengths in buckets}

    def batch(step: int) -> dict[str, np.ndarray]:
        records, lengths = batches(step)
        decoder = decoders[lengths]
        assert decoder is not None
        return dict(zip(decoder.names, decoder(records), strict=True))

    return batch

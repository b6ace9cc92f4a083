"""How fast the reader is beside plain TensorFlow: TFRecordDataset + parse_example over the same files, unshuffled.

Both make the same batches: `input_ids` of 128 rows of 512, and `labels` of 4, int32; one process, warm page cache. The
trainer reads numpy arrays (`Reading.batches`), without a mask, which its step makes; `train_batches` gives tensors, with
`attention_mask`. Each is measured against plain TensorFlow with the same outputs. Rounds alternate, and the medians of
their ratios are printed, by the clock and by processor seconds, so that a busy machine slows both.
Run: python -m tests.benchmarks.bench_reader
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.processor_time import Line, Seconds, of_call, show

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1]))

LENGTH, TARGET, BATCH = 512, 4, 128


def bare(files: list[str], *, masks: bool):
    """Return the batches of what a TensorFlow user writes first."""
    import tensorflow as tf

    spec = {
        "input_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
        "labels": tf.io.FixedLenFeature([TARGET], tf.int64),
    }

    def parse(serialized):
        read = {name: tf.cast(ids, tf.int32) for name, ids in tf.io.parse_example(serialized, spec).items()}
        return read | ({"attention_mask": tf.cast(read["input_ids"] != 0, tf.int32)} if masks else {})

    records = tf.data.TFRecordDataset(files).repeat().batch(BATCH, drop_remainder=True)
    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def seconds_of(batches, steps: int) -> Seconds:
    """Return what some steps take, after some steps of warming up."""
    iterator = iter(batches)
    for _ in range(70):
        next(iterator)
    return of_call(lambda: [next(iterator) for _ in range(steps)] and None)


def lines(*, rounds: int = 3, steps: int = 300, records: int = 100_000, shards: int = 16) -> Iterator[Line]:
    """Yield a line for each way of reading."""
    from toy_dataset import write

    from t5prep.dataset import shard_files
    from t5prep.training.data import train_batches
    from t5prep.training.data.batches import Reading
    from t5prep.training.data.open_datasets import open_splits

    with tempfile.TemporaryDirectory() as folder:
        write(
            Path(folder),
            {"train": [records // shards] * shards},
            length=LENGTH,
            every=shard_files.records_per_page(records),
        )
        files = sorted(str(path) for path in Path(folder).glob("train*"))
        pairs = {
            "numpy arrays, as the trainer reads": (
                lambda seed: Reading(open_splits([folder], "train"), global_batch=BATCH, seed=seed).batches(),
                lambda: bare(files, masks=False).as_numpy_iterator(),
            ),
            "tensors with a mask, `train_batches`": (
                lambda seed: train_batches(folder, global_batch=BATCH, seed=seed),
                lambda: bare(files, masks=True),
            ),
        }
        for name, (ours, theirs) in pairs.items():
            timings = [(seconds_of(ours(number), steps), seconds_of(theirs(), steps)) for number in range(rounds)]
            yield Line(f"reading {steps} batches, {name}", "`TFRecordDataset` with `parse_example`, in order", timings)


if __name__ == "__main__":
    show(lines())

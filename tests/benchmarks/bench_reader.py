"""How fast the reader is beside plain TensorFlow: TFRecordDataset + parse_example over the same files, unshuffled.

Both make batches of 128 rows of 512 input and 8 target tokens, one process, warm page cache. Rounds alternate, and the
median of their ratios is printed, so that a busy machine slows both. Run: python -m tests.benchmarks.bench_reader
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1]))

LENGTH, TARGET, BATCH = 512, 4, 128


def bare(files: list[str]):
    """What a TensorFlow user writes first."""
    import tensorflow as tf

    spec = {
        "input_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
        "labels": tf.io.FixedLenFeature([TARGET], tf.int64),
    }
    records = tf.data.TFRecordDataset(files).repeat().batch(BATCH, drop_remainder=True)
    return records.map(lambda x: tf.io.parse_example(x, spec), num_parallel_calls=tf.data.AUTOTUNE).prefetch(
        tf.data.AUTOTUNE
    )


def rows_per_second(batches, steps: int) -> float:
    """After one window of warming up."""
    iterator = iter(batches)
    for _ in range(70):
        next(iterator)
    begin = time.perf_counter()
    for _ in range(steps):
        next(iterator)
    return steps * BATCH / (time.perf_counter() - begin)


def main() -> None:
    """Prints one JSON object."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shards", type=int, default=16)
    options.add_argument("--records", type=int, default=40_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--without-index", action="store_true", help="as earlier versions prepared")
    given = options.parse_args()
    from toy_dataset import write

    from t5prep.dataset import block_index
    from t5prep.train.data import train_batches

    with tempfile.TemporaryDirectory() as folder:
        each = given.records // given.shards
        every = 0 if given.without_index else block_index.spacing(given.records)
        write(Path(folder), {"train": [each] * given.shards}, length=LENGTH, every=every)
        files = sorted(str(path) for path in Path(folder).glob("train*"))
        ratios, ours, theirs = [], [], []
        for number in range(given.rounds):
            theirs.append(rows_per_second(bare(files), 300))
            ours.append(rows_per_second(train_batches(folder, global_batch=BATCH, seed=number), 300))
            ratios.append(ours[-1] / theirs[-1])
    said = {"reader_ratio": round(statistics.median(ratios), 3), "ratios": [round(ratio, 3) for ratio in ratios]}
    print(json.dumps(said | {"rows_per_second": round(max(ours)), "bare_rows_per_second": round(max(theirs))}))


if __name__ == "__main__":
    main()

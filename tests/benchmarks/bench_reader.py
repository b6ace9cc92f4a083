"""How fast the reader is beside plain TensorFlow: TFRecordDataset + parse_example over the same files, unshuffled.

Both make the same batches: `input_ids` of 128 rows of 512, and `labels` of 4, int32; one process, warm page cache. The
trainer reads numpy arrays (`train_arrays`), without a mask, which its step makes; `train_batches` gives tensors, with
`attention_mask`. Each is measured against plain TensorFlow with the same outputs. Rounds alternate, and the medians of
their ratios are printed, by the clock and by processor seconds, so that a busy machine slows both.
Run: python -m tests.benchmarks.bench_reader
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


def seconds_of(batches, steps: int) -> tuple[float, float]:
    """Return the seconds of some steps by the clock, and of the processor, after some steps of warming up."""
    iterator = iter(batches)
    for _ in range(70):
        next(iterator)
    begin, worked = time.perf_counter(), time.process_time()
    for _ in range(steps):
        next(iterator)
    return time.perf_counter() - begin, time.process_time() - worked


def main() -> None:
    """Print one JSON object and a sentence for each way of reading."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shards", type=int, default=16)
    options.add_argument("--records", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=300, help="of a round")
    given = options.parse_args()
    from toy_dataset import write

    from t5prep.dataset import shard_files
    from t5prep.train.data import train_arrays, train_batches

    with tempfile.TemporaryDirectory() as folder:
        each = given.records // given.shards
        every = shard_files.spacing(given.records)
        write(Path(folder), {"train": [each] * given.shards}, length=LENGTH, every=every)
        files = sorted(str(path) for path in Path(folder).glob("train*"))
        pairs = {
            "trainer": (
                lambda seed: train_arrays([folder], global_batch=BATCH, seed=seed),
                lambda: bare(files, masks=False).as_numpy_iterator(),
            ),
            "train_batches": (
                lambda seed: train_batches(folder, global_batch=BATCH, seed=seed),
                lambda: bare(files, masks=True),
            ),
        }
        taken: dict[str, list] = {name: [] for name in pairs}
        for number in range(given.rounds):
            for name, (ours, theirs) in pairs.items():
                taken[name].append((seconds_of(theirs(), given.steps), seconds_of(ours(number), given.steps)))
    for name, rounds in taken.items():
        clock, processor = ([bare[i] / own[i] for bare, own in rounds] for i in (0, 1))
        said = {"reader": name, "reader_ratio": round(statistics.median(clock), 3)}
        said |= {"reader_cpu_ratio": round(statistics.median(processor), 3)}
        said |= {"ratios": [round(ratio, 3) for ratio in clock]}
        for side, which in (("bare_", 0), ("", 1)):
            said[f"{side}rows_per_second"] = round(given.steps * BATCH / min(one[which][0] for one in rounds))
        print(json.dumps(said))
        print(
            f"{name} gives {said['reader_ratio']:.2f} of the rows a second of bare tf.data with the same outputs, and "
            f"{said['reader_cpu_ratio']:.2f} of its rows for a processor second; above 1, t5prep is faster."
        )


if __name__ == "__main__":
    main()

"""What the trainer adds to bare steps, on the built-in sample: the share of time waiting for input, as it measures itself.

    python -m tests.benchmarks.bench_train [--steps 40] [--rounds 3]

The tiny recipe's model and batch, fed by the reader from shards, against the same program fed by one batch held in memory;
they take turns. The ratio is of medians of wall-clock seconds a step: 1.0 means that reading costs nothing.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    import tensorflow as tf

    from pipelines.prepare import prepare
    from t5prep import sources
    from t5prep.dataset import manifest
    from t5prep.dataset.settings import Settings
    from t5prep.train import config as configs
    from t5prep.train import run, trainer
    from t5prep.train.data import train_batches
    from t5prep.train.model.weight_layout import weight_layouts
    from t5prep.train.model.weights import create_variables
    from t5prep.train.optimizer import Adafactor, create_slots
    from t5prep.train.schedules import schedule
    from t5prep.train.step import StepOptions, TrainStep

    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "sample"
        settings = Settings(task="so_quality", options={}, input_length=512, target_length=2, splits={"train": 1.0})
        prepare(settings, source=sources.resolve("sample:"), tokenizer="sample:", out=data, workers=1, kept=None)
        config = configs.build(configs.read_recipe("tiny"), {"data": (str(data),)})
        shape, weights, _ = run.start_from(config, ids=manifest.load(data).tokenizer.padded_vocab_size)
        step = TrainStep(
            shape,
            create_variables(weights),
            Adafactor(),
            create_slots(Adafactor(), weight_layouts(shape)),
            tf.Variable(0, dtype=tf.int64),
            schedule("constant", learning_rate=1e-3, total_steps=1_000_000),
            StepOptions(dropout=False),
        )
        run_steps = trainer.compile_loop(tf.distribute.get_strategy(), step)
        read = train_batches(str(data), global_batch=config.batch, seed=0)
        held = tf.data.Dataset.from_tensors(next(iter(read))).repeat()
        sides = {"read": iter(read), "held": iter(held)}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        waiting = []
        for turn in range(given.rounds + 1):
            for name, batches in sides.items():
                began = time.monotonic()
                _, waited = run_steps(batches, tf.constant(given.steps))
                passed = time.monotonic() - began
                if turn:  # the first compiles
                    seconds[name].append(passed / given.steps)
                    waiting += [float(waited) / passed] if name == "read" else []
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    said = {
        "step_ratio_read_to_held": medians["read"] / medians["held"],
        "waiting_for_input": statistics.median(waiting),
    }
    print(json.dumps({name: round(value, 4) for name, value in said.items()}))
    print(
        f"Reading from shards, a step takes {said['step_ratio_read_to_held']:.2f} of the time it takes from memory;"
        f" training waits for input {said['waiting_for_input']:.1%} of its time."
    )


if __name__ == "__main__":
    main()

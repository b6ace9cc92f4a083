"""What the trainer adds to bare steps: a step that takes 20 ms and computes nothing, in the trainer's own loop.

    python -m tests.benchmarks.bench_train [--steps 100] [--rounds 3]

The built-in sample is read from shards and put on the devices; the step is a thread that sleeps. Printed is how many per
cent longer than its sleep a step takes (at most 2: the host is ahead of the devices), and the share of time waiting for input.
"""

import argparse
import concurrent.futures
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

SECONDS = 0.020


class Ended:
    """The metrics of a step that is there when its thread has slept."""

    def __init__(self, future: concurrent.futures.Future) -> None:
        self._future = future

    def is_ready(self) -> bool:
        return self._future.done()

    def block_until_ready(self) -> None:
        self._future.result()

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        self._future.result()
        return np.ones(3, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    from pipelines.prepare import prepare
    from t5prep import sources
    from t5prep.dataset.settings import Settings
    from t5prep.train import config as configs
    from t5prep.train.data import opening
    from t5prep.train.device_feed import device_batches
    from t5prep.train.loop import Stepper
    from t5prep.train.runtime.devices import open_layout
    from t5prep.train.runtime.state import Variables

    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "sample"
        settings = Settings(task="so_quality", options={}, input_length=512, target_length=2, splits={"train": 1.0})
        prepare(settings, source=sources.resolve("sample:"), tokenizer="sample:", out=data, workers=1, kept=None)
        config = configs.build(configs.read_recipe("tiny"), {"data": (str(data),)})
        device = concurrent.futures.ThreadPoolExecutor(1)  # one after the other, as a device computes

        def step(*_):
            return None, None, None, Ended(device.submit(time.sleep, SECONDS))

        opened = opening.open_all(config.data, split=config.split)
        batches = device_batches(opened, config, layout=open_layout(), start_step=0)
        stepper = Stepper(
            step, Variables({}, {}, None), batches, rate=lambda _: 1e-3, wanted=lambda number: number % 10 == 0
        )
        longer, waiting = [], []
        for turn in range(given.rounds + 1):
            began, bare = time.monotonic(), time.monotonic()
            for _ in range(given.steps):
                stepper.begin()
                list(stepper.ended())
            list(stepper.ended(ahead=0))
            passed, waited = time.monotonic() - began, stepper.take_waited()
            bare = time.monotonic()
            for future in [device.submit(time.sleep, SECONDS) for _ in range(given.steps)]:
                future.result()
            alone = time.monotonic() - bare  # what the sleeps themselves take on this machine
            if turn:  # the first opens the shards
                longer.append(passed / alone - 1)
                waiting.append(waited / passed)
        device.shutdown()
    said = {"longer_than_its_steps": statistics.median(longer), "waiting_for_input": statistics.median(waiting)}
    print(json.dumps({name: round(value, 4) for name, value in said.items()}))
    print(
        f"Steps of 20 ms take {said['longer_than_its_steps']:.1%} longer in the trainer's loop than alone; "
        f"training waits for input {said['waiting_for_input']:.1%} of its time."
    )


if __name__ == "__main__":
    main()

"""Where preparing spends its time: the share of each step in the CPU seconds of one process that does all the work.

    python -m tests.benchmarks.bench_stages [--megabytes 50]

A step's share is its own: without the steps that it calls. The imports of Beam and all else come before.
"""

import argparse
import functools
import gc
import importlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from t5prep import sources
from t5prep.tasks import registry
from tests.benchmarks import bench_prepare

# What is done, and the function that does it, as `module:name`.
STEPS = {
    "finding blocks": "t5prep.reading.blocks:scan",
    "reading rows": "t5prep.reading.columns:read",
    "making examples": "t5prep.prepare.block_tokenizer:BlockExamples.__call__",
    "tokenizing": "t5prep.tokens.tokenizer:Tokenizer.encode_block",
    "truncation and counts": "t5prep.tokens.featurizer:Featurizer.__call__",
    "tables of features": "t5prep.prepare.block_tokenizer:BlockTokenizer.features",
    "keeping them for the next run": "t5prep.prepare.block_tokenizer:BlockTokenizer.__call__",
    "framing records": "t5prep.prepare.records:Frame.__call__",
    "sorting blocks": "t5prep.prepare.sort_blocks:BlockSorter.__call__",
    "spooling": "t5prep.io.atomic_files:write_scratch",
    "writing shards": "t5prep.prepare.shards:write",
    "hashing the source": "t5prep.sources:checksum",
}


class Stopwatch:
    """CPU seconds of each step, its own only: while a step that it calls runs, its watch stands."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._running: list[str] = []
        self._since = time.process_time()

    def _turn(self) -> None:
        now = time.process_time()
        if self._running:
            self.spent[self._running[-1]] += now - self._since
        self._since = now

    def watch(self, step: str, function: Callable) -> Callable:
        """The function, watched; of a generator each piece of work is."""

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            self._turn()
            self._running.append(step)
            try:
                made = function(*args, **options)
            finally:
                self._turn()
                self._running.pop()
            return self._pieces(step, made) if isinstance(made, Iterator) else made

        return call

    def _pieces(self, step: str, made: Iterator) -> Iterator:
        following = self.watch(step, lambda: next(made, self))
        while (piece := following()) is not self:
            yield piece


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=50)
    megabytes = parser.parse_args().megabytes
    from pipelines import graph  # noqa: F401 - before the watch begins
    from pipelines.prepare import prepare_resolved

    gc.disable()  # as workers do
    stopwatch = Stopwatch()
    for step, place in STEPS.items():
        module, _, path = place.partition(":")
        *inside, name = path.split(".")
        owner = functools.reduce(getattr, inside, importlib.import_module(module))
        setattr(owner, name, stopwatch.watch(step, getattr(owner, name)))
    rows, model = bench_prepare.questions()
    task = registry.get("so_quality")
    settings = {"input_length": 512, "target_length": 2, "splits": {"train": 0.9, "validation": 0.1}}
    for what, joined in (("questions", 1), ("documents of 8 questions", 8)):
        with tempfile.TemporaryDirectory() as folder:
            path, size = bench_prepare.corpus(bench_prepare.Row(what, rows, joined), Path(folder), megabytes=megabytes)
            source = sources.resolve(str(path))
            stopwatch.spent.clear()
            began = time.process_time()
            prepare_resolved(
                task,
                task.choose({}),
                **settings,
                source=source,
                tokenizer=str(model),
                out=Path(folder) / "out",
                workers=0,
                kept=Path(folder) / "kept",
            )
            total = time.process_time() - began
        print(f"{what}, {size / 1e6:.0f} MB, {total / size * 1e9:.0f} ns of CPU a byte in one process")
        stopwatch.spent["Beam and all else"] = total - sum(stopwatch.spent.values())
        for step, seconds in stopwatch.spent.most_common():
            print(f"  {step:<32} {100 * seconds / total:3.0f} %")


if __name__ == "__main__":
    main()

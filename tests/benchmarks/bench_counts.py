"""What the counts of texts cost: `prepare` in one process with them, beside the same without, in turns, in processor time.

    python -m tests.benchmarks.bench_counts [--megabytes 20] [--pairs 5]

The counts are unknown characters, rows that repeat another one, and HTML (manifest field `texts`). A ratio of 0.97 is 3 %.
"""

import argparse
import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from pipelines.prepare import PrepareRequest, prepare_resolved
from pipelines.run_options import RunOptions
from t5prep import sources
from t5prep.preparation import task_settings
from t5prep.preparation.sort_blocks import BlockSorter
from t5prep.preparation.text_counts import TextCounts, UnknownTexts
from t5prep.tasks import registry
from tests.benchmarks import bench_prepare, processor_time
from tests.benchmarks.processor_time import Line, Seconds


def _no_counts(*_: object, **__: object) -> TextCounts:
    return TextCounts()


WITHOUT = (
    mock.patch.object(UnknownTexts, "__call__", return_value=""),
    mock.patch.object(BlockSorter, "_text_counts", _no_counts),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=20, help="of questions, where there is no open corpus")
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    processor_time.show(lines(pairs=chosen.pairs, megabytes=chosen.megabytes))


def lines(*, pairs: int = 3, megabytes: int = 20) -> Iterator[Line]:
    """Yield a line for each corpus."""
    gc.disable()  # as workers do
    for name in bench_prepare.names():
        with tempfile.TemporaryDirectory() as temporary_folder:
            folder = Path(temporary_folder)
            texts = bench_prepare.corpus(name, folder, megabytes=megabytes, times=1)
            _prepared(folder, counts=True)  # what the first run alone does: imports, probes of the tokenizer
            rounds = [(_prepared(folder, counts=True), _prepared(folder, counts=False)) for _ in range(pairs)]
            size = sum(len(text.encode()) for text in texts) / 1e6
            yield Line(f"{name}, {size:.0f} MB, JSON lines with counts of texts", "without counts", rounds)
    gc.enable()


def _prepared(folder: Path, *, counts: bool) -> Seconds:
    definition = registry.get("so_quality")
    task = definition.choose({})
    with tempfile.TemporaryDirectory() as out:
        options = {"input_length": 512, "target_length": 2, "splits": {"train": 0.9, "validation": 0.1}}

        def work() -> None:
            request = PrepareRequest(
                definition,
                task,
                task_settings.requested(task, options),
                sources.resolve(str(folder / "rows.jsonl")),
                tokenizer=str(bench_prepare.questions()[1]),
                out=f"{out}/data",
                run=RunOptions(workers=0),
                cache=Path(out) / "kept",
            )
            prepare_resolved(request)

        if counts:
            return processor_time.of_call(work)
        with WITHOUT[0], WITHOUT[1]:
            return processor_time.of_call(work)


if __name__ == "__main__":
    main()

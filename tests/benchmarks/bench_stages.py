"""The budget of preparing: processor time of each stage in one process that does all the work, beside the least it can take.

`python -m tests.benchmarks.bench_prepare --stages` prints it. A stage's time is its own: without the stages that it calls. The
least is what another program takes for the same bytes: copying them (memcpy), or their checksums, or reading them.
"""

import functools
import gc
import hashlib
import importlib
import io
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import google_crc32c
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import sentencepiece

from t5prep import sources
from t5prep.tasks import registry
from tests.benchmarks import processor_time

# What is done, the function that does it as `module:name`, and what the least is of: bytes of the file, of its texts, of their
# ids, of sorted rows, of records (see `_least`).
STAGES = {
    "find where rows end": ("t5prep.reading.blocks:scan", "find newlines in the file"),
    "read the file": ("t5prep.reading.blocks:content", "copy the file"),
    "CSV, JSON or Parquet": ("t5prep.reading.columns:read", "Arrow reads the file"),
    "template": ("t5prep.preparation.block_tokenizer:BlockExamples.__call__", "copy the texts"),
    "encode": ("t5prep.tokens.tokenizer:Tokenizer.encode_block", "SentencePiece encodes the texts"),
    "cut": ("t5prep.tokens.featurizer:Featurizer.__call__", "copy the ids"),
    "table of features": ("t5prep.preparation.block_tokenizer:BlockTokenizer.features", "copy the ids"),
    "name for the cache": ("t5prep.preparation.token_cache:TokenCache.name_of", "copy the file"),
    "keep for the next run": ("t5prep.preparation.token_cache:TokenCache.keep", "copy the ids"),
    "place": ("t5prep.preparation.sort_blocks:BlockSorter.places", ""),
    "sort": ("t5prep.preparation.sort_blocks:BlockSorter.__call__", "copy the sorted rows"),
    "spool": ("t5prep.io.atomic_files:write_scratch", "copy the sorted rows"),
    "merge": ("t5prep.preparation.shards:_different", "copy the sorted rows"),
    "columns of records": ("t5prep.preparation.spills:Rows.columns", "copy the sorted rows"),
    "frame, with checksums": ("t5prep.preparation.records:RecordFormat.__call__", "CRC-32C of the records"),
    "count and write": ("t5prep.preparation.shards:write", "copy the records"),
    "hash of shards": ("", "SHA-256 of the records"),
    "hash of the source": ("t5prep.sources:checksum", "SHA-256 of the file"),
}
START, REMAINDER = "start (100 rows)", "all else"
_IDS, _ROWS = 4, 1.6  # bytes of an id; of sorted rows for each byte of their ids as uint16, measured


class Stopwatch:
    """CPU seconds of each stage, its own only: while a stage that it calls runs, its watch stands."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._running: list[str] = []
        self._since = time.process_time()

    def _turn(self) -> None:
        now = time.process_time()
        if self._running:
            self.spent[self._running[-1]] += now - self._since
        self._since = now

    def watch(self, stage: str, function: Callable) -> Callable:
        """Return the function, watched; of a generator each piece of work is."""

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            self._turn()
            self._running.append(stage)
            try:
                output = function(*args, **options)
            finally:
                self._turn()
                self._running.pop()
            return (
                self._pieces(stage, output)
                if isinstance(output, Iterator) and not isinstance(output, io.IOBase)
                else output
            )

        return call

    def _pieces(self, stage: str, pieces: Iterator) -> Iterator:
        following = self.watch(stage, lambda: next(pieces, self))
        while (piece := following()) is not self:
            yield piece


@functools.cache
def _watched() -> Stopwatch:
    """Return a stopwatch that watches all stages of this process from now on."""
    import pipelines.local_executor  # noqa: F401 - before the watch begins

    stopwatch = Stopwatch()
    for stage, (import_path, _) in STAGES.items():
        if import_path:
            module, _, path = import_path.partition(":")
            *inside, name = path.split(".")
            owner = functools.reduce(getattr, inside, importlib.import_module(module))
            setattr(owner, name, stopwatch.watch(stage, getattr(owner, name)))

    def sha256() -> Any:
        hasher = hashlib.sha256()
        return SimpleNamespace(
            update=stopwatch.watch("hash of shards", hasher.update), hexdigest=hasher.hexdigest, digest=hasher.digest
        )

    importlib.import_module("t5prep.preparation.shards").hashlib = SimpleNamespace(sha256=sha256)
    return stopwatch


def show(description: str, task: str, path: Path, texts: Sequence[str], model: Path) -> None:
    """Print the budget of preparing one file with a task, given its texts, as a table in Markdown."""
    from pipelines.prepare import PrepareRequest, prepare_resolved
    from pipelines.run_options import RunOptions
    from t5prep.preparation import task_settings

    stopwatch = _watched()
    gc.disable()  # as workers do
    with tempfile.TemporaryDirectory() as folder:
        source, out = sources.resolve(str(path)), Path(folder) / "out"
        options = {"input_length": 512, "target_length": 2, "splits": {"train": 0.9, "validation": 0.1}}
        stopwatch.spent.clear()
        began = time.process_time()
        definition = registry.get(task)
        chosen = definition.choose({})
        settings = task_settings.requested(chosen, options)
        run, cache = RunOptions(workers=0), Path(folder) / "kept"
        request = PrepareRequest(definition, chosen, settings, source, str(model), str(out), run, cache=cache)
        prepare_resolved(request)
        total = time.process_time() - began
        records = b"".join(shard.read_bytes() for shard in out.glob("*.tfrecord*"))
        small = [
            sys.executable,
            "-m",
            "t5prep.cli",
            "prepare",
            "so_quality",
            "--source",
            "sample:",
            "--tokenizer",
            "sample:",
        ]
        start = min(processor_time.of_command([*small, "--out", Path(folder) / f"small-{i}"]).processor for i in (0, 1))
    gc.enable()
    megabytes = path.stat().st_size / 1e6
    least = _least(path, texts, records, model)
    stopwatch.spent[REMAINDER] = total - sum(stopwatch.spent.values())
    stopwatch.spent[START], least["Python imports numpy and pyarrow"] = start, _imports()
    print(
        f"{description}, {megabytes:.0f} MB: {total / megabytes * 1e3:.1f} ms of a processor for a MB in one process\n\n"
        "| stage | ms a MB | the least | ms a MB | times |\n|---|---|---|---|---|"
    )
    baselines = {stage: than for stage, (_, than) in STAGES.items()} | {START: "Python imports numpy and pyarrow"}
    for stage, seconds in stopwatch.spent.most_common():
        stage_cost, baseline_cost = (
            seconds / megabytes * 1e3,
            least.get(baselines.get(stage, ""), math.nan) / megabytes * 1e3,
        )
        other_shown = f"{baseline_cost:.2f} | {stage_cost / baseline_cost:.1f}" if baseline_cost > 0 else " | "
        print(f"| {stage} | {stage_cost:.2f} | {baselines.get(stage, '')} | {other_shown} |", flush=True)
    print(flush=True)


def _least(path: Path, texts: Sequence[str], records: bytes, model: Path) -> dict[str, float]:
    """Return the processor seconds of what other programs take for the same bytes."""
    data, joined = path.read_bytes(), "".join(texts).encode()
    encode = sentencepiece.SentencePieceProcessor(model_file=str(model)).encode
    tokens = bytearray(_IDS * sum(map(len, encode(list(texts[::50]), num_threads=1))) * 50)
    readers: dict[str, Callable[[], object]] = {
        ".csv": lambda: pyarrow.csv.read_csv(
            io.BytesIO(data), pyarrow.csv.ReadOptions(use_threads=False),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
        ),
        ".jsonl": lambda: pyarrow.json.read_json(io.BytesIO(data), pyarrow.json.ReadOptions(use_threads=False)),
        ".parquet": lambda: pyarrow.parquet.read_table(path, use_threads=False),
    }  # fmt: skip
    work: dict[str, Callable[[], object]] = {
        "find newlines in the file": lambda: data.count(b"\n"),
        "copy the file": lambda: bytearray(data),
        "Arrow reads the file": readers[path.suffix],
        "copy the texts": lambda: bytearray(joined),
        "SentencePiece encodes the texts": lambda: encode(list(texts), num_threads=1, return_type="numpy"),
        "copy the ids": lambda: bytearray(tokens),
        "copy the sorted rows": lambda: bytearray(tokens[: int(len(tokens) / _IDS * 2 * _ROWS)]),
        "copy the records": lambda: bytearray(records),
        "CRC-32C of the records": lambda: google_crc32c.value(records),
        "SHA-256 of the records": lambda: hashlib.sha256(records),
        "SHA-256 of the file": lambda: hashlib.sha256(data),
    }
    return {
        name: min(processor_time.of_call(operation).processor for _ in range(2)) for name, operation in work.items()
    }


def _imports() -> float:
    return min(processor_time.of_command([sys.executable, "-c", "import numpy, pyarrow"]).processor for _ in range(3))

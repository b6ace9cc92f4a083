"""Does the cost of preparing grow as the corpus does? Many tiny blocks, many shards, and the time and memory of each.

    python -m tests.benchmarks.bench_scale 1000 10000 100000 [--shards 16384] [--workers 2]
    python -m tests.benchmarks.bench_scale 1000000 10000000 --links
    python -m tests.benchmarks.bench_scale 1000000 10000000 --sketches

A block is a few rows here, so that as many blocks as ten terabytes have fit on a laptop. With --sort-only, blocks are cut,
sorted, merged and written into shards as ever, but not tokenized, which costs the same for every block. With --near,
near-duplicates are searched too, and one row of twenty is one. With --links, so many links between rows become components and
nothing else is done: what one process does of the search. With --sketches, near-duplicates are searched among so many rows that
have shingles and no text. Each number of blocks is prepared by processes of its own.
CPU seconds are those of all processes, so that other work on the machine does not count.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from t5prep.io import byte_sizes
from tests.benchmarks import processor_time
from tests.benchmarks.bench_memory import resident, tree

ROWS_A_FILE = 1_000_000
WORDS = 5
# What near-duplicates are searched among: long enough for one changed word of shingles to leave most of them as they are.
WORDS_OF_NEAR, NEAR_EVERY = 40, 20


class Peak(NamedTuple):
    """Hold the most bytes that the first process, any one worker, and all processes together had in memory."""

    first: int
    worker: int
    total: int


def few_words(row: int) -> str:
    """Return the words of a short row; every 997th row has the same."""
    return " ".join(f"word{(row * 31 + k * 7) % 997:03d}" for k in range(WORDS))


def near_words(row: int) -> str:
    """Return words of which no two rows share many, but for each twentieth: it has all but one of the row before it."""
    original = row - (row % NEAR_EVERY == 1)
    words = np.random.Philox(key=original).random_raw(WORDS_OF_NEAR) % 10_000
    return " ".join(f"word{word:04d}" for word in (*words[:-1], row % 10_000 if original != row else words[-1]))


def corpus(folder: Path, *, rows: int, words: Callable[[int], str]) -> int:
    """Write so many rows as JSON lines of one length, and return how many bytes a row has."""
    folder.mkdir()
    size = 0
    for begin in range(0, rows, ROWS_A_FILE):
        with open(folder / f"part-{begin // ROWS_A_FILE:05d}.jsonl", "w", encoding="ascii") as file:
            for row in range(begin, min(rows, begin + ROWS_A_FILE)):
                size = file.write(f'{{"id": "r{row:010d}", "inputs": "{words(row)}", "targets": "{row % 7}"}}\n')
    return size


def highest(pid: int) -> int:
    """Return the most bytes that a process ever had in memory (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def watched(command: list[str]) -> tuple[float, Peak]:
    """Run a command, and return the CPU seconds (user and system) and the memory of it and all below it."""
    processor_time.adopt_orphans()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    first = worker = total = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        for process_id in list(tree(process.pid)):
            try:
                high = highest(process_id)
            except (FileNotFoundError, ProcessLookupError):
                continue
            first, worker = (max(first, high), worker) if process_id == process.pid else (first, max(worker, high))
        total = max(total, resident(process.pid))
        time.sleep(1)
    if status:
        raise SystemExit(process.stderr.read() if process.stderr else status)
    return processor_time.of_usage(usage) + processor_time.of_orphans(), Peak(first, worker, total)


def prepare(
    out: Path,
    *,
    source: str,
    block_bytes: int,
    shards: int,
    workers: int,
    cache: str,
    sort_only: bool,
    runner: str,
    dedup: str,
) -> None:
    """Prepare the rows with the code that everybody uses, in blocks of a few rows; print what an engine shuffled."""
    from pipelines import prepare
    from pipelines.run_options import RunOptions
    from t5prep import sources
    from t5prep.preparation import memory_budget, task_settings
    from t5prep.tasks import registry

    memory_budget.LARGEST_BLOCK = memory_budget.SMALLEST_BLOCK = block_bytes
    resolved, task = sources.resolve(source), registry.get("text2text")
    options = {
        "layout": "ragged",
        "input_length": 64,
        "target_length": 4,
        "shards": shards,
        "splits": {"train": 1.0},
        "dedup": dedup,
    }
    if sort_only:
        sorted_only_by_all()
    chosen = task.choose({"inputs_column": "inputs", "targets_column": "targets"})
    results = [] if runner == "local" else remembered_results()
    prepare._run = functools.partial(prepare._run, shared=memory_budget.Budget(1, block_bytes))
    prepare.prepare_resolved(
        prepare.PrepareRequest(
            task,
            chosen,
            task_settings.requested(chosen, options),
            resolved,
            "sample:",
            str(out),
            RunOptions(runner=runner, workers=workers),
            cache=Path(cache) if cache else None,
        )
    )
    if runner != "local":
        size = sum(file.bytes for file in resolved.files)
        print(f"{'':>10} {' '.join(pieces(results[0], name, size) for name in ('range_bytes', 'shard_bytes'))}")


def sorted_only_by_all() -> None:
    """Let this process, and workers that begin from now on, sort blocks without tokenizing them."""
    from pipelines import pool
    from tests.benchmarks import sort_only

    preload = pool.multiprocessing.set_forkserver_preload
    pool.multiprocessing.set_forkserver_preload = lambda names: preload([*names, sort_only.__name__])


def join(links: int) -> None:
    """Join links between rows, each several times, as bands have them; print how many rows became how many components."""
    from t5prep.preparation.near_duplicates import components

    def parts(size: int = 1 << 16) -> Iterator[np.ndarray]:
        generator = np.random.default_rng(0)
        for _ in range(0, links, size):
            rows = generator.integers(0, links, size, dtype=np.uint64)
            ends = np.stack([rows, rows - rows % np.uint64(3)], axis=1) * np.uint64(0x9E3779B97F4A7C15)
            yield ends[ends[:, 0] != ends[:, 1]]

    rows = roots = 0
    for row_roots in components.components(parts()):
        rows, roots = rows + len(row_roots), roots + int((row_roots[:, 0] == row_roots[:, 1]).sum())
    print(f"{'':>10} {rows:,} rows in {roots:,} components")


# Rows of a sketch, as a block of 2 MiB has them, and shingles of a row: few, for what grows is the search, and not the rows.
ROWS_A_SKETCH, SHINGLES = 5_000, 8


def search(rows: int, *, repeat_pattern: str) -> None:
    """Search near-duplicates in sketches of so many rows. `repeat_pattern`: few repeats, or a third, in pairs or one group.

    Two that are alike differ in one shingle. Print how many are found to repeat another one.
    """
    from types import SimpleNamespace

    import pyarrow as pa

    from pipelines import flow, stages
    from pipelines.local_executor import Local
    from t5prep.preparation.near_duplicates import clusters, sketches

    settings = clusters.Search(sketches.choose_bands(112, 0.8), 0.7, drawn_by_id=True)
    nothing_earlier = SimpleNamespace(settings=SimpleNamespace(dedup_against=()))
    begins = pa.array(np.arange(0, ROWS_A_SKETCH * SHINGLES + 1, SHINGLES, dtype=np.int32))

    def make_sketches(folder: str) -> Iterator[sketches.Sketch]:
        for begin in range(0, rows, ROWS_A_SKETCH):
            row = np.arange(begin, begin + ROWS_A_SKETCH)
            original = row - (row % NEAR_EVERY == 1)
            if repeat_pattern != "few":
                original = np.where(row % 3, row, 0 if repeat_pattern == "one group" else row - row % 6)
            words = original[:, None].astype(np.uint64) * np.uint64(SHINGLES) + np.arange(SHINGLES, dtype=np.uint64)
            words[row != original, -1] = row[row != original] * SHINGLES + SHINGLES - 1
            hashes = sketches.mix(words)
            ids = pa.array(row).cast(pa.string())
            columns = {"row": row, "id": ids, "split": ["train"] * len(row), "high": hashes[:, 0], "low": hashes[:, -1]}
            arrays = [pa.array(column, sketches.ROWS.field(name).type) for name, column in columns.items()]
            arrays.append(pa.ListArray.from_arrays(begins, pa.array(hashes.ravel())))
            table = pa.table(arrays, schema=sketches.ROWS)
            batch_sketch = sketches.sketch(table, file="rows", first_row=begin, bands=settings.bands)
            yield batch_sketch.spooled(Path(folder) / "sketches" / str(begin))

    with tempfile.TemporaryDirectory() as folder:
        peak_bytes = [0]
        threading.Thread(target=watch_disk, args=(folder, peak_bytes), daemon=True).start()
        began = time.process_time()
        made_here = flow.Create("Sketches", step=list(make_sketches(folder)).copy)
        sketched = time.process_time() - began
        work = SimpleNamespace(job=nothing_earlier, spool=folder)
        repeats = flow.ToList("List", (stages.repeats_of(made_here, settings, work),))
        dropped = sum(len(part.read()) for part in Local("", folder).run(flow.in_order(repeats)))
    processor_seconds = time.process_time() - began - sketched
    print(
        f"{rows:>12,} rows: {1e6 * sketched / rows:.2f} CPU us a row to sketch, {1e6 * processor_seconds / rows:.2f} to search; "
        f"{dropped:,} repeat another one; {byte_sizes.text(peak_bytes[0])} on the disk at most"
    )


def watch_disk(folder: str, peak_bytes: list[int]) -> None:
    """Note in `most[0]` the most bytes that files of a folder ever have; looking takes a hundredth of the time."""
    while True:
        began, size = time.thread_time(), 0
        for subfolder, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    size += os.stat(f"{subfolder}/{name}").st_size
        peak_bytes[0] = max(peak_bytes[0], size)
        time.sleep(max(0.05, 100 * (time.thread_time() - began)))


def remembered_results() -> list[Any]:
    """Return a list that the result of every pipeline that is run will be in."""
    import apache_beam as beam

    results: list[Any] = []
    run = beam.Pipeline.run
    beam.Pipeline.run = lambda self, *arguments: results.append(run(self, *arguments)) or results[-1]
    return results


def pieces(result: Any, name: str, source_bytes: int) -> str:
    """Return in words how many pieces of records were shuffled at one place, of what sizes."""
    from apache_beam.metrics import MetricsFilter

    (distribution,) = result.metrics().query(MetricsFilter().with_name(name))["distributions"] or [None]
    if distribution is None:
        return f"{name}: not counted by this engine."
    totals = distribution.committed
    return (
        f"{name}: {totals.count:,} pieces, {totals.sum / source_bytes:.2f} bytes of each of the source's, "
        f"{byte_sizes.text(totals.mean)} on average, {byte_sizes.text(totals.max)} at most."
    )


@click.command()
@click.argument("blocks", nargs=-1, type=int, required=True)
@click.option("--rows", default=2, help="Rows of a block.")
@click.option("--shards", default=0, help="Shards; 0: one for 64 blocks, as blocks of 2 MiB have, at most 16,384.")
@click.option("--workers", default=2)
@click.option("--runner", default="local", help="An engine instead of this machine's processes: prism, flink.")
@click.option("--sort-only", is_flag=True, help="Do not tokenize.")
@click.option("--near", is_flag=True, help="Search near-duplicates too.")
@click.option("--links", is_flag=True, help="Join so many links between near-duplicates, without blocks.")
@click.option("--sketches", is_flag=True, help="Search near-duplicates among so many rows, without texts.")
@click.option(
    "--repeat-pattern", type=click.Choice(["few", "pairs", "one group"]), default="few", help="A third, but for few."
)
@click.option("--keep-tokens", is_flag=True, help="Keep tokenized blocks, as the command line does.")
@click.option("--scratch", default="", help="Where corpora and datasets go; removed afterwards.")
@click.option("--child", default="", hidden=True)
def main(
    blocks: tuple[int, ...],
    rows: int,
    shards: int,
    workers: int,
    runner: str,
    sort_only: bool,
    near: bool,
    links: bool,
    sketches: bool,
    repeat_pattern: str,
    keep_tokens: bool,
    scratch: str,
    child: str,
) -> None:
    """Print a line for each number of blocks."""
    module = [sys.executable, "-m", "tests.benchmarks.bench_scale"]
    if child and links:
        join(blocks[0])
        return
    if child and sketches:
        search(blocks[0], repeat_pattern=repeat_pattern)
        return
    for count in blocks if sketches else ():
        _, peak = watched(
            [*module, str(count), "--sketches", "--repeat-pattern", repeat_pattern, "--child", "sketches"]
        )
        click.echo(f"{'':>12} {byte_sizes.text(peak.first)} at most")
    if sketches:
        return
    if child:
        prepare(**{**json.loads(child), "out": Path(json.loads(child)["out"])})
        return
    for count in blocks if links else ():
        cpu, peak = watched([*module, str(count), "--links", "--child", "links"])
        click.echo(f"{count:>12,} links: {1e6 * cpu / count:.2f} CPU us a link, {byte_sizes.text(peak.first)} at most")
    if links:
        return
    head = f"{'blocks':>10} {'shards':>7} {'CPU ms/block':>12} {'CPU s':>8} {'s':>7}"
    click.echo(f"{head} {'first':>10} {'a worker':>10} {'together':>10}   (peak memory)")
    for count in blocks:
        with tempfile.TemporaryDirectory(dir=scratch or None) as folder:
            row_bytes = corpus(Path(folder) / "rows", rows=count * rows, words=near_words if near else few_words)
            options = {
                "out": f"{folder}/out", "source": f"{folder}/rows", "block_bytes": rows * row_bytes,
                "shards": shards or min(16_384, -(-count // 64)), "workers": workers,
                "cache": f"{folder}/cache" if keep_tokens else "", "sort_only": sort_only, "runner": runner,
                "dedup": "near" if near else "none",
            }  # fmt: skip
            began = time.monotonic()
            cpu, peak = watched([*module, "1", "--child", json.dumps(options)])
            memory = " ".join(f"{byte_sizes.text(part):>10}" for part in peak)
            click.echo(
                f"{count:>10,} {options['shards']:>7,} {1000 * cpu / count:>12.3f} {cpu:>8.1f} "
                f"{time.monotonic() - began:>7.1f} {memory}"
            )


if __name__ == "__main__":
    main()

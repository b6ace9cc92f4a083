"""Sort a corpus on one machine: each block becomes a sorted run, and runs are merged as soon as there are many of them.

There are never more than FAN_IN runs of one level. A record is copied once more each time that there are FAN_IN times as
many blocks, and once in the end, so the work is about linear in bytes, and memory does not depend on the corpus. Nothing here
imports Beam.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipelines import pool
from pipelines.worker_steps import RUNS, Hashed, PrepareBlock
from t5prep.errors import OutputError
from t5prep.io import atomic_files
from t5prep.prepare import shard_plan, sorted_runs
from t5prep.prepare.block_sorter import SortedSpill
from t5prep.prepare.block_totals import BlockTotals
from t5prep.prepare.near_duplicates.sketch import Sketch
from t5prep.prepare.shard_writer import ShardSpec
from t5prep.prepare.sorted_runs import Run

# Runs that are merged into one: a range is read from each.
FAN_IN = 512
# Runs that are left in the end: every shard reads a slice of each. Where a shard would read less than SLICE_BYTES of a run,
# fewer are left: another merge takes less time than so many reads.
FEW_RUNS, MOST_RUNS = 64, 512
SLICE_BYTES = 64 << 10
# Records that are merged at a time: some tens of kilobytes of each run.
MERGED_BYTES = 8 << 20
# Inside the scratch folder: the rejected rows of all blocks, and where those of each file are among them.
REJECTED, SEGMENTS = "rejected-of-blocks", "rejected-of-blocks.json"


@dataclasses.dataclass(frozen=True)
class MergeRuns:
    """Name runs that are to be merged into one file, the `level`-th time that their records are copied."""

    level: int
    path: str
    runs: tuple[Run, ...]


class MergedRuns(NamedTuple):
    """Hold a merged run, and what it was merged from, which is needed no more."""

    merge: MergeRuns
    run: Run


class Segment(NamedTuple):
    """Say where the rejected rows of some consecutive blocks of a file are in the file of all of them."""

    file: str
    first_row: int
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class SortBlock:
    """Do in a worker what Gathering asks for: prepare a block or hash a file, or merge runs."""

    work: PrepareBlock

    def __call__(self, element: Any) -> SortedSpill | Hashed | MergedRuns:
        """Return the result of an element. Raises SourceError, OutputError."""
        if isinstance(element, MergeRuns):
            return MergedRuns(element, sorted_runs.merge(element.runs, element.path, range_bytes=MERGED_BYTES))
        return self.work(element)


class Gathering:
    """Take the elements of a preparation, and leave a few sorted runs, the rejected rows, and the totals of all blocks.

    `specs` are the shards, once all blocks are counted (`finish`).
    """

    def __init__(self, work: SortBlock, pool_name: str, *, fan_in: int = FAN_IN) -> None:
        self._window = pool.window(pool_name, work)
        self._folder, self._fan_in, self._settings = Path(work.work.spool), fan_in, work.work.job.settings
        self.specs: list[ShardSpec] = []
        self._levels: dict[int, list[Run]] = {}
        self._merges = 0
        self._totals = BlockTotals()
        self._rejected = _Rejected(self._folder)

    def put(self, element: Any) -> Iterator[Hashed | Sketch]:
        """Give out one element, and yield what is done meanwhile besides runs."""
        for result in self._window.put(element):
            yield from self._take(result)

    def finish(self) -> Iterator[Hashed | Sketch | BlockTotals]:
        """Yield what is still to come, and at last the totals. The runs that are left are few, whatever the corpus.

        Raises UsageError when there are more shards than examples.
        """
        yield from self._drained()
        records, sizes, settings = self._totals.records, self._totals.sizes, self._settings
        self.specs = shard_plan.plan_shards(records, sizes, shards=settings.shards, drawn=settings.drawn_by_id)
        most = most_runs(sum(sizes.values()), shards=len(self.specs), fan_in=self._fan_in)
        while len(runs := sorted((run for level in self._levels.values() for run in level), key=_size)) > most:
            smallest = runs[: min(self._fan_in, len(runs) - most + 1)]
            self._levels = {0: runs[len(smallest) :]}
            yield from self._merge(-1, smallest)
            yield from self._drained()
        sorted_runs.save(self._folder / RUNS, runs)
        self._rejected.close()
        yield self._totals

    def _drained(self) -> Iterator[Hashed | Sketch]:
        for result in self._window.drain():
            yield from self._take(result)

    def _take(self, result: SortedSpill | Hashed | MergedRuns) -> Iterator[Hashed | Sketch]:
        if isinstance(result, SortedSpill):
            self._totals.add(result)
            self._rejected.add(result)
            if result.sketch:
                yield result.sketch
            yield from self._add(0, result.run())
        elif isinstance(result, MergedRuns):
            for run in result.merge.runs:
                Path(run.path).unlink(missing_ok=True)
            yield from self._add(result.merge.level, result.run)
        else:
            yield result

    def _add(self, level: int, run: Run) -> Iterator[Hashed | Sketch]:
        runs = self._levels.setdefault(level, [])
        runs.append(run)
        if len(runs) >= self._fan_in:
            self._levels[level] = []
            yield from self._merge(level + 1, runs)

    def _merge(self, level: int, runs: list[Run]) -> Iterator[Hashed | Sketch]:
        self._merges += 1
        yield from self.put(MergeRuns(level, str(self._folder / f"merged-{self._merges:08d}"), tuple(runs)))


def most_runs(size: int, *, shards: int, fan_in: int = FAN_IN) -> int:
    """Return how many runs may be left of so many bytes of records in all, of which each shard reads its slices.

    >>> most_runs(0, shards=4), most_runs(1 << 40, shards=4), most_runs(1 << 30, shards=1 << 14)
    (64, 512, 64)
    """
    return min(fan_in, MOST_RUNS, max(FEW_RUNS, size // (max(shards, 1) * SLICE_BYTES)))


class _Rejected:
    """Append the rejected rows of blocks to one file, and note where those of each source file are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: list[Segment] = []
        self._end = 0

    def add(self, spill: SortedSpill) -> None:
        """Write what a block rejected."""
        if not spill.rejected:
            return
        path = self._folder / REJECTED
        try:
            with open(path, "ab" if self._end else "wb") as file:
                file.write(spill.rejected)
        except OSError as error:
            raise OutputError(atomic_files.explain(error, path)) from error
        begin, self._end = self._end, self._end + len(spill.rejected)
        last = self._segments[-1] if self._segments else None
        if last and last.file == spill.file and last.first_row < spill.first_row:
            self._segments[-1] = last._replace(end=self._end)
        else:
            self._segments.append(Segment(spill.file, spill.first_row, begin, self._end))

    def close(self) -> None:
        """Write where the rows are."""
        atomic_files.write_scratch(self._folder / SEGMENTS, json.dumps(self._segments).encode())


def rejected_lines(folder: str) -> Iterator[bytes]:
    """Yield the rejected rows of all blocks, some thousand at a time, in the order of their files and rows.

    Raises OutputError where something removed them.
    """
    with atomic_files.open_scratch(Path(folder) / SEGMENTS) as file:
        segments = sorted(Segment(*fields) for fields in json.loads(file.read()))
    if not segments:
        return
    with atomic_files.open_scratch(Path(folder) / REJECTED) as file:
        for segment in segments:
            yield from _whole_lines(file.fileno(), segment.begin, segment.end)


def _whole_lines(file: int, begin: int, end: int, *, size: int = 1 << 20) -> Iterator[bytes]:
    """Yield a part of a file of lines in pieces that end with a line."""
    left = b""
    while begin < end:
        piece = os.pread(file, min(size, end - begin), begin)
        begin = begin + len(piece) if piece else end
        whole, newline, rest = (left + piece).rpartition(b"\n")
        yield whole + newline
        left = rest
    if left:
        yield left


def _size(run: Run) -> int:
    return run.bytes

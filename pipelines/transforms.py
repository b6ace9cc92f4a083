"""Wire the named steps of preparing. Transforms only wire: the work is in t5prep, pipelines.worker_steps, gather and finish.

What every block and every shard counts is added up by combiners, so that no step is handed a list that grows with the
number of blocks. The steps of engines, whose workers share no disk, are in pipelines.shuffle.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from pipelines import pool, staging
from pipelines.finish import Finish, JoinRejected
from pipelines.gather import Gathering, SortBlock
from pipelines.staging import Job
from pipelines.worker_steps import Hashed, WriteShard, scan
from t5prep.prepare import shard_plan
from t5prep.prepare.block_totals import BlockTotals
from t5prep.prepare.near_duplicates import repeats as near_duplicates
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.near_duplicates.sketch import Sketch
from t5prep.prepare.shard_totals import ShardTotals
from t5prep.prepare.shard_writer import ShardSpec


@dataclasses.dataclass
class ListFiles(beam.PTransform):
    """Read the list of files, so that the graph is as large for ten thousand files as for one."""

    job: Job

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        return root | beam.Create([self.job]) | "Read" >> beam.FlatMap(staging.limited_files)


@dataclasses.dataclass
class ScanBlocks(beam.PTransform):
    """Yield each wanted file or pair of files (to be hashed) and their blocks.

    `spread` hands files and blocks to whichever worker is free; one machine has its pool for that.
    """

    job: Job
    block_bytes: int
    spread: bool = False

    def expand(self, files: beam.PCollection) -> beam.PCollection:
        if self.spread:
            files |= "SpreadFiles" >> beam.Reshuffle()
        elements = files | "Scan" >> beam.FlatMap(scan, job=self.job, block_bytes=self.block_bytes)
        return elements | "SpreadBlocks" >> beam.Reshuffle() if self.spread else elements


@dataclasses.dataclass
class PrepareBlocks(beam.PTransform):
    """Sort all blocks into a few runs of this machine; yield the totals of blocks, the hashes of files, and sketches."""

    work: SortBlock
    pool: str = ""

    def expand(self, elements: beam.PCollection) -> Any:
        done = elements | "Sort" >> beam.ParDo(GatherRuns(self.work, self.pool))
        return tuple(done | f"{kind.__name__}s" >> of_kind(kind) for kind in (BlockTotals, Hashed, Sketch))


@dataclasses.dataclass
class PlanShards(beam.PTransform):
    """Plan the shards from the totals of all blocks: one list of them."""

    shards: int | None
    drawn: bool

    def expand(self, totals: beam.PCollection) -> beam.PCollection:
        return totals | "Plan" >> beam.Map(plan, shards=self.shards, drawn=self.drawn)


@dataclasses.dataclass
class WriteShards(beam.PTransform):
    """Write shards from the runs of this machine, and yield their totals.

    `repeats` are the rows that near-duplicates leave out, or None where none are looked for.
    """

    work: WriteShard
    repeats: beam.PCollection | None = None
    pool: str = ""

    def expand(self, specs: beam.PCollection) -> beam.PCollection:
        sides = {"repeats": beam.pvalue.AsList(self.repeats)} if self.repeats else {}
        paired = specs | "WithRepeats" >> beam.Map(with_repeats, **sides)
        return paired | "Write" >> beam.ParDo(SumShards(self.work, self.pool))


@dataclasses.dataclass
class WriteManifest(beam.PTransform):
    """Write the manifest from everything that was counted, when all shards are there. Each side holds one element."""

    work: Finish
    sides: dict[str, beam.PCollection]

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        single = {name: beam.pvalue.AsSingleton(side) for name, side in self.sides.items()}
        return root | "Once" >> beam.Create([None]) | "Write" >> beam.Map(self.work, **single)


@dataclasses.dataclass
class JoinRejectedRows(beam.PTransform):
    """Join the rejected rows that are in files of this machine, once all shards are written."""

    work: JoinRejected

    def expand(self, written: beam.PCollection) -> beam.PCollection:
        return written | "Join" >> beam.Map(self.work)


class GatherRuns(beam.DoFn):
    """Put each element of a bundle through Gathering."""

    def __init__(self, work: SortBlock, pool_name: str) -> None:
        self._work, self._pool = work, pool_name

    def start_bundle(self) -> None:
        self._gathering = Gathering(self._work, self._pool)

    def process(self, element: Any) -> Iterator[Any]:
        yield from self._gathering.put(element)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(in_global_window, self._gathering.finish())


class InPool(beam.DoFn):
    """Apply a picklable callable to each element in the processes of a pool of this machine."""

    def __init__(self, name: str, work: Callable[[Any], Any]) -> None:
        self._name = name
        self._work = work

    def start_bundle(self) -> None:
        self._window = pool.Window(self._name, self._work)

    def process(self, element: Any) -> Iterator[Any]:
        yield from self._window.put(element)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(in_global_window, self._window.drain())


class SumShards(beam.DoFn):
    """Write each shard of a bundle, in a pool where there is one, and yield the totals of all."""

    def __init__(self, work: WriteShard, pool_name: str) -> None:
        self._work, self._pool = work, pool_name

    def start_bundle(self) -> None:
        self._window, self._totals = pool.window(self._pool, self._work), ShardTotals()

    def process(self, element: Any) -> None:
        for written in self._window.put(element):
            self._totals.add(written)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for written in self._window.drain():
            self._totals.add(written)
        yield in_global_window(self._totals)


class Merge(beam.CombineFn):
    """Merge totals of one kind; of none, return empty totals."""

    def __init__(self, kind: Callable[[], Any]) -> None:
        self._kind = kind

    def create_accumulator(self) -> Any:
        """Return empty totals."""
        return self._kind()

    def add_input(self, total: Any, more: Any) -> Any:
        """Return both together."""
        return total.merge(more)

    def merge_accumulators(self, parts: Iterable[Any]) -> Any:
        """Return all of them together."""
        total = self._kind()
        for part in parts:
            total.merge(part)
        return total

    def extract_output(self, total: Any) -> Any:
        """Return the totals."""
        return total


def summed(kind: Callable[[], Any]) -> beam.PTransform:
    """Return the transform that merges all totals of a kind into one element."""
    return beam.CombineGlobally(Merge(kind))


def listed() -> beam.PTransform:
    """Return the transform that makes one list of a small collection."""
    return beam.CombineGlobally(beam.combiners.ToListCombineFn())


def of_kind(kind: type) -> beam.PTransform:
    """Return the transform that passes on the elements of a type."""
    return beam.Filter(isinstance, kind).with_output_types(kind)


def in_pool(work: Callable[[Any], Any], name: str) -> beam.PTransform:
    """Return the transform that applies a callable to each element, in the processes of a pool where there is one."""
    return beam.ParDo(InPool(name, work)) if name else beam.Map(work)


def in_global_window(value: Any) -> WindowedValue:
    """Return what a bundle yields at its end."""
    return WindowedValue(value, GlobalWindow().max_timestamp(), [GlobalWindow()])


def plan(totals: BlockTotals, *, shards: int | None, drawn: bool) -> list[ShardSpec]:
    """Return the shards of all blocks."""
    return shard_plan.plan_shards(totals.records, totals.sizes, shards=shards, drawn=drawn)


def with_repeats(spec: ShardSpec, *, repeats: Iterable[Repeats] = ()) -> tuple[ShardSpec, list, list[Repeats]]:
    """Return a shard with the rows that it leaves out; its runs are in files of this machine."""
    return spec, [], of_shard(spec, repeats)


def of_shard(spec: ShardSpec, parts: Iterable[Repeats]) -> list[Repeats]:
    """Return the rows that a shard leaves out because they repeat another one."""
    own = (part.slice(spec.split, *spec.bounds) for part in parts)
    return [part for part in own if len(part.dropped)]


def counts_of(parts: Iterable[Repeats]) -> Repeats:
    """Return the counts of some repeats, without their rows."""
    return near_duplicates.merged(parts)

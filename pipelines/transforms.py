"""The named steps of preparing. A transform wires, a function works: the work is in t5prep and in pipelines.work."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from pipelines import pool, staging
from pipelines.staging import Job
from pipelines.work import Finish, GatherShard, Hashed, PrepareBlock, scan
from t5prep.prepare import partition, shard_plan
from t5prep.prepare.block_sorter import Run
from t5prep.prepare.near_duplicates import repeats as near_duplicates
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.shard_writer import Gathered, ShardSpec


@dataclasses.dataclass
class ListFiles(beam.PTransform):
    """Where the list of files lies → the files: the graph is as large for ten thousand as for one."""

    job: Job

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        return root | beam.Create([self.job]) | "Read" >> beam.FlatMap(staging.wanted)


@dataclasses.dataclass
class ScanBlocks(beam.PTransform):
    """Wanted file or pair of files → themselves (to be hashed) and their blocks.

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
    """Block → sorted run of finished records; source file → its hash."""

    work: PrepareBlock
    pool: str = ""

    def expand(self, elements: beam.PCollection) -> Any:
        done = elements | "Work" >> in_pool(self.work, self.pool)
        runs = done | "Runs" >> beam.Filter(is_run).with_output_types(Run)
        hashes = done | "Hashes" >> beam.Filter(is_hashed).with_output_types(Hashed)
        return runs, hashes


@dataclasses.dataclass
class PlanShards(beam.PTransform):
    """Runs → shard specifications: how many shards is known once all runs are."""

    shards: int | None
    drawn: bool

    def expand(self, runs: beam.PCollection) -> beam.PCollection:
        start = runs.pipeline | beam.Create([None])
        slim = runs | "Slim" >> beam.Map(slim_run)
        return start | "Plan" >> beam.FlatMap(plan, runs=beam.pvalue.AsList(slim), shards=self.shards, drawn=self.drawn)


@dataclasses.dataclass
class GatherShards(beam.PTransform):
    """Shard specifications and all runs, whose bytes are in files of this machine → written shards.

    `repeats` are the rows that near-duplicates leave out.
    """

    work: GatherShard
    runs: beam.PCollection
    repeats: beam.PCollection
    pool: str = ""

    def expand(self, specs: beam.PCollection) -> beam.PCollection:
        sides = {"runs": beam.pvalue.AsList(self.runs), "repeats": beam.pvalue.AsList(self.repeats)}
        paired = specs | "WithRuns" >> beam.Map(with_runs, **sides)
        return paired | "Gather" >> in_pool(self.work, self.pool)


@dataclasses.dataclass
class ShuffleShards(beam.PTransform):
    """The same where workers share no disk: runs are cut, and the runner's own shuffle brings a shard's pieces together."""

    work: GatherShard
    runs: beam.PCollection
    repeats: beam.PCollection

    def expand(self, specs: beam.PCollection) -> beam.PCollection:
        keyed = tuple[str, Any]
        named = specs | "Name" >> beam.Map(with_name).with_output_types(keyed)
        pieces = self.runs | "Cut" >> beam.FlatMap(cut, specs=beam.pvalue.AsList(specs)).with_output_types(keyed)
        repeated = self.repeats | "CutRepeats" >> beam.FlatMap(
            cut_repeats, specs=beam.pvalue.AsList(specs)
        ).with_output_types(keyed)
        groups = (named, pieces, repeated) | beam.Flatten() | beam.GroupByKey()
        return groups | "Gather" >> beam.Map(gather_group, work=self.work)


@dataclasses.dataclass
class WriteManifest(beam.PTransform):
    """Everything that was counted → the manifest, when all shards are there."""

    work: Finish
    gathered: beam.PCollection
    runs: beam.PCollection
    hashed: beam.PCollection
    repeats: beam.PCollection

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        slim = self.runs | "Slim" >> beam.Map(slim_run)
        counts = self.repeats | "Counts" >> beam.Map(counts_of)
        sides = {"gathered": self.gathered, "runs": slim, "hashed": self.hashed, "repeats": counts}
        return (
            root
            | "Once" >> beam.Create([None])
            | "Write" >> beam.Map(self.work, **{name: beam.pvalue.AsList(side) for name, side in sides.items()})
        )


class InPool(beam.DoFn):
    """Applies a picklable callable to each element in the processes of a pool of this machine."""

    def __init__(self, name: str, work: Callable[[Any], Any]) -> None:
        self._name = name
        self._work = work

    def start_bundle(self) -> None:
        self._window = pool.Window(self._name, self._work)

    def process(self, element: Any) -> Iterator[Any]:
        yield from self._window.put(element)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for result in self._window.drain():
            yield WindowedValue(result, GlobalWindow().max_timestamp(), [GlobalWindow()])


def in_pool(work: Callable[[Any], Any], name: str) -> beam.PTransform:
    """Return the transform that applies a callable to each element, in the processes of a pool where there is one."""
    return beam.ParDo(InPool(name, work)) if name else beam.Map(work)


def is_run(element: Run | Hashed) -> bool:
    """Whether it is a run."""
    return isinstance(element, Run)


def is_hashed(element: Run | Hashed) -> bool:
    """Whether it is a hashed file."""
    return isinstance(element, Hashed)


def slim_run(run: Run) -> Run:
    """A run without its bytes: what planning and the manifest need."""
    return dataclasses.replace(run, data=b"", sketch=None)


def plan(_: None, *, runs: Sequence[Run], shards: int | None, drawn: bool) -> list[ShardSpec]:
    """The shards of all runs."""
    return shard_plan.plan_shards(runs, shards=shards, drawn=drawn)


def with_runs(
    spec: ShardSpec, *, runs: Iterable[Run], repeats: Iterable[Repeats]
) -> tuple[ShardSpec, list[Run], list[Repeats]]:
    """Return a shard, the runs that have something for its split, and the rows that it leaves out."""
    own = [run for run in runs if spec.split in run.splits or any(name in run.splits for name in spec.before)]
    return spec, own, of_shard(spec, repeats)


def of_shard(spec: ShardSpec, parts: Iterable[Repeats]) -> list[Repeats]:
    """Return the rows that a shard leaves out because they repeat another one."""
    own = (part.slice(spec.split, *spec.bounds) for part in parts)
    return [part for part in own if len(part.dropped)]


def cut_repeats(part: Repeats, *, specs: Iterable[ShardSpec]) -> Iterator[tuple[str, Repeats]]:
    """Yield the rows that each shard leaves out, under its name."""
    for spec in specs:
        for own in of_shard(spec, [part]):
            yield spec.name, own


def counts_of(part: Repeats) -> Repeats:
    """Return the counts of some repeats, without their rows."""
    return near_duplicates.merged([part])


def with_name(spec: ShardSpec) -> tuple[str, ShardSpec]:
    """A shard under its name: it is written even if no run has anything for it."""
    return spec.name, spec


def cut(run: Run, *, specs: Sequence[ShardSpec]) -> Iterator[tuple[str, Run]]:
    """The pieces of a run, each under the name of its shard."""
    yield from partition.cut(run, specs)


def gather_group(group: tuple[str, Iterable[ShardSpec | Run | Repeats]], *, work: GatherShard) -> Gathered:
    """A shard's specification and its pieces, as the shuffle brings them → the written shard."""
    elements = list(group[1])
    (spec,) = (element for element in elements if isinstance(element, ShardSpec))
    runs = [element for element in elements if isinstance(element, Run)]
    return work((spec, runs, [element for element in elements if isinstance(element, Repeats)]))

"""Wire the named steps of preparing. Transforms only wire: the work is in t5prep and in pipelines.work."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from pipelines import pool, staging
from pipelines.staging import Job
from pipelines.work import Finish, Hashed, PrepareBlock, WriteShard, scan
from t5prep.prepare import partition, shard_plan
from t5prep.prepare.block_sorter import SortedSpill
from t5prep.prepare.near_duplicates import repeats as near_duplicates
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.shard_writer import ShardSpec, WrittenShard


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
    """Make a sorted spill of each block, and a hash of each source file."""

    work: PrepareBlock
    pool: str = ""

    def expand(self, elements: beam.PCollection) -> Any:
        done = elements | "Work" >> in_pool(self.work, self.pool)
        spills = done | "Spills" >> beam.Filter(is_spill).with_output_types(SortedSpill)
        hashes = done | "Hashes" >> beam.Filter(is_hashed).with_output_types(Hashed)
        return spills, hashes


@dataclasses.dataclass
class PlanShards(beam.PTransform):
    """Plan the shards, whose number is known once all spills are."""

    shards: int | None
    drawn: bool

    def expand(self, spills: beam.PCollection) -> beam.PCollection:
        start = spills.pipeline | beam.Create([None])
        slim = spills | "Slim" >> beam.Map(slim_spill)
        return start | "Plan" >> beam.FlatMap(
            plan, spills=beam.pvalue.AsList(slim), shards=self.shards, drawn=self.drawn
        )


@dataclasses.dataclass
class WriteShards(beam.PTransform):
    """Write shards from their specifications and all spills, whose bytes are in files of this machine.

    `repeats` are the rows that near-duplicates leave out.
    """

    work: WriteShard
    spills: beam.PCollection
    repeats: beam.PCollection
    pool: str = ""

    def expand(self, specs: beam.PCollection) -> beam.PCollection:
        sides = {"spills": beam.pvalue.AsList(self.spills), "repeats": beam.pvalue.AsList(self.repeats)}
        paired = specs | "WithSpills" >> beam.Map(with_spills, **sides)
        return paired | "Write" >> in_pool(self.work, self.pool)


@dataclasses.dataclass
class ShuffleShards(beam.PTransform):
    """Write shards where workers share no disk: cut spills, and let the runner's shuffle bring each shard's pieces together."""

    work: WriteShard
    spills: beam.PCollection
    repeats: beam.PCollection

    def expand(self, specs: beam.PCollection) -> beam.PCollection:
        keyed = tuple[str, Any]
        named = specs | "Name" >> beam.Map(with_name).with_output_types(keyed)
        pieces = self.spills | "Cut" >> beam.FlatMap(cut, specs=beam.pvalue.AsList(specs)).with_output_types(keyed)
        repeated = self.repeats | "CutRepeats" >> beam.FlatMap(
            cut_repeats, specs=beam.pvalue.AsList(specs)
        ).with_output_types(keyed)
        groups = (named, pieces, repeated) | beam.Flatten() | beam.GroupByKey()
        return groups | "Write" >> beam.Map(write_group, work=self.work)


@dataclasses.dataclass
class WriteManifest(beam.PTransform):
    """Write the manifest from everything that was counted, when all shards are there."""

    work: Finish
    written: beam.PCollection
    spills: beam.PCollection
    hashed: beam.PCollection
    repeats: beam.PCollection

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        slim = self.spills | "Slim" >> beam.Map(slim_spill)
        counts = self.repeats | "Counts" >> beam.Map(counts_of)
        sides = {"written": self.written, "spills": slim, "hashed": self.hashed, "repeats": counts}
        return (
            root
            | "Once" >> beam.Create([None])
            | "Write" >> beam.Map(self.work, **{name: beam.pvalue.AsList(side) for name, side in sides.items()})
        )


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
        for result in self._window.drain():
            yield WindowedValue(result, GlobalWindow().max_timestamp(), [GlobalWindow()])


def in_pool(work: Callable[[Any], Any], name: str) -> beam.PTransform:
    """Return the transform that applies a callable to each element, in the processes of a pool where there is one."""
    return beam.ParDo(InPool(name, work)) if name else beam.Map(work)


def is_spill(element: SortedSpill | Hashed) -> bool:
    """Return whether an element is a spill."""
    return isinstance(element, SortedSpill)


def is_hashed(element: SortedSpill | Hashed) -> bool:
    """Return whether an element is a hashed file."""
    return isinstance(element, Hashed)


def slim_spill(spill: SortedSpill) -> SortedSpill:
    """Return a spill without its bytes, for planning and the manifest."""
    return dataclasses.replace(spill, data=b"", sketch=None)


def plan(_: None, *, spills: Sequence[SortedSpill], shards: int | None, drawn: bool) -> list[ShardSpec]:
    """Return the shards of all spills."""
    return shard_plan.plan_shards(spills, shards=shards, drawn=drawn)


def with_spills(
    spec: ShardSpec, *, spills: Iterable[SortedSpill], repeats: Iterable[Repeats]
) -> tuple[ShardSpec, list[SortedSpill], list[Repeats]]:
    """Return a shard, the spills that have something for its split, and the rows that it leaves out."""
    own = [spill for spill in spills if spec.split in spill.splits or any(name in spill.splits for name in spec.before)]
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
    """Return a shard under its name, so that it is written even if no spill has anything for it."""
    return spec.name, spec


def cut(spill: SortedSpill, *, specs: Sequence[ShardSpec]) -> Iterator[tuple[str, SortedSpill]]:
    """Yield the pieces of a spill, each under the name of its shard."""
    yield from partition.cut(spill, specs)


def write_group(group: tuple[str, Iterable[ShardSpec | SortedSpill | Repeats]], *, work: WriteShard) -> WrittenShard:
    """Write a shard from its specification and its pieces, as the shuffle brings them."""
    elements = list(group[1])
    (spec,) = (element for element in elements if isinstance(element, ShardSpec))
    spills = [element for element in elements if isinstance(element, SortedSpill)]
    return work((spec, spills, [element for element in elements if isinstance(element, Repeats)]))

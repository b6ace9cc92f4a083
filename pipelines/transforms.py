"""Wire the named steps of preparing for engines. Transforms only wire: the work is in t5prep, worker_steps and finish.

What every block and every shard counts is added up by combiners, so that no step is handed a list that grows with the
number of blocks. The steps in which workers hand records to each other are in pipelines.shuffle.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from pipelines import staging
from pipelines.finish import Finish
from pipelines.staging import Job
from pipelines.worker_steps import scan
from t5prep.prepare import shard_plan
from t5prep.prepare.block_totals import BlockTotals
from t5prep.prepare.near_duplicates import repeats as near_duplicates
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.row_limit import LimitedFile
from t5prep.prepare.shard_writer import ShardSpec
from t5prep.reading import parallel_files


@dataclasses.dataclass
class ListFiles(beam.PTransform):
    """Read the list of files, so that the graph is as large for ten thousand files as for one."""

    job: Job

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        return root | beam.Create([self.job]) | "Read" >> beam.FlatMap(staging.limited_files)


@dataclasses.dataclass
class ScanBlocks(beam.PTransform):
    """Yield each wanted file or pair of files (to be hashed) and their blocks, spread over all workers.

    Files are spread by their names, because Flink leaves out the second of two `Reshuffle`s that only ParDos are between:
    all blocks of a file would stay on the worker that found them.
    """

    job: Job
    block_bytes: int

    def expand(self, files: beam.PCollection) -> beam.PCollection:
        named = files | "Name" >> beam.Map(with_name).with_output_types(tuple[str, LimitedFile])
        spread = named | "SpreadFiles" >> beam.GroupByKey() | "Files" >> beam.FlatMap(group_values)
        elements = spread | "Scan" >> beam.FlatMap(scan, job=self.job, block_bytes=self.block_bytes)
        return elements | "SpreadBlocks" >> beam.Reshuffle()


def with_name(file: LimitedFile) -> tuple[str, LimitedFile]:
    """Return a file with its name, or a pair of files with both."""
    return "\0".join(each.name for each in parallel_files.files(file.element)), file


def group_values(group: tuple[str, Iterable[Any]]) -> Iterable[Any]:
    """Return the values of a group."""
    return group[1]


@dataclasses.dataclass
class PlanShards(beam.PTransform):
    """Plan the shards from the totals of all blocks: one list of them."""

    shards: int | None
    drawn: bool

    def expand(self, totals: beam.PCollection) -> beam.PCollection:
        return totals | "Plan" >> beam.Map(plan, shards=self.shards, drawn=self.drawn)


@dataclasses.dataclass
class WriteManifest(beam.PTransform):
    """Write the manifest from everything that was counted, when all shards are there. Each side holds one element."""

    work: Finish
    sides: dict[str, beam.PCollection]

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        single = {name: beam.pvalue.AsSingleton(side) for name, side in self.sides.items()}
        return root | "Once" >> beam.Create([None]) | "Write" >> beam.Map(self.work, **single)


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


def in_global_window(value: Any) -> WindowedValue:
    """Return what a bundle yields at its end."""
    return WindowedValue(value, GlobalWindow().max_timestamp(), [GlobalWindow()])


def plan(totals: BlockTotals, *, shards: int | None, drawn: bool) -> list[ShardSpec]:
    """Return the shards of all blocks."""
    return shard_plan.plan_shards(totals.records, totals.sizes, shards=shards, drawn=drawn)


def counts_of(parts: Iterable[Repeats]) -> Repeats:
    """Return the counts of some repeats, without their rows."""
    return near_duplicates.merged(parts)

"""The stages of a preparation, said once: which step is applied to what, whatever executes it.

Files are scanned into blocks, blocks become sorted spills, spills are gathered into shards, and what all steps counted becomes
the manifest. `pipelines.local` executes this on the processes of one machine, `pipelines.graph` wires it with Beam. A step
is a function (pipelines.steps); an executor says how elements come to it. Nothing here imports Beam.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from pipelines import staging, steps
from pipelines.finish import Finish
from pipelines.steps import PrepareBlock, WriteShard
from t5prep.prepare.near_duplicates import repeats as near_duplicates
from t5prep.prepare.near_duplicates import search
from t5prep.prepare.near_duplicates.clusters import Joined

# Many elements, and one value: lists and values on this machine, PCollections on an engine.
Collection = Any
Single = Any


class Prepared(NamedTuple):
    """What preparing all blocks leaves: spills, the totals of blocks, hashes of files, rejected rows and sketches."""

    spills: Collection
    blocks: Single
    hashed: Single
    rejected: Collection
    sketches: Collection


class Executor(Protocol):
    """What executes the steps. Each has a name, which an engine shows; `singles` are values that every call is given.

    The spills of blocks are the executor's own matter: this machine merges them on its disk, an engine shuffles pieces.
    """

    def source(self, name: str, step: Callable[..., Iterable[Any]], **singles: Single) -> Collection:
        """Return what a step yields that is called once."""

    def spread(self, name: str, elements: Collection, *, key: Callable[[Any], str] | None = None) -> Collection:
        """Return the elements, spread over all workers; those of a `key` stay together."""

    def flat(
        self, name: str, step: Callable[..., Iterable[Any]], elements: Collection, **singles: Single
    ) -> Collection:
        """Return all that a light step yields of each element."""

    def each(
        self, name: str, step: Callable[..., Iterable[Any]], elements: Collection, **singles: Single
    ) -> Collection:
        """Return all that a step yields of each element; workers take the elements."""

    def group(self, name: str, *collections: Collection) -> Collection:
        """Return for each number of pairs of a number and a value: the number, and all its values."""

    def together(self, name: str, *collections: Collection) -> Collection:
        """Return the elements of several collections, for several readers."""

    def listed(self, name: str, elements: Collection) -> Single:
        """Return one list of few elements."""

    def sum(
        self, name: str, elements: Collection, *, zero: Callable[[], Any], add: Callable[[Any, Any], Any]
    ) -> Single:
        """Return all elements added up."""

    def one(self, name: str, step: Callable[..., Any], **singles: Single) -> Single:
        """Return what a step makes of values."""

    def prepare(self, name: str, work: PrepareBlock, elements: Collection) -> Prepared:
        """Return what a worker makes of each block and file; spills are gathered as the executor does."""

    def write(
        self, name: str, work: WriteShard, spills: Collection, *, specs: Single, repeats: Collection | None
    ) -> tuple[Single, Collection]:
        """Return the totals of the shards that were written from spills, and the rows that these left out."""


def run(executor: Executor, work: PrepareBlock, write: WriteShard, finish: Finish, *, block_bytes: int) -> None:
    """Prepare everything that a job names. Raises T5prepError."""
    job, settings, alike = work.job, work.job.settings, search.of_settings(work.job.settings)
    files = executor.source("ListFiles", functools.partial(staging.limited_files, job))
    spread = executor.spread("SpreadFiles", files, key=steps.file_name)
    elements = executor.flat("ScanBlocks", functools.partial(steps.scan, job=job, block_bytes=block_bytes), spread)
    prepared = executor.prepare("PrepareBlocks", work, executor.spread("SpreadBlocks", elements))
    plan = functools.partial(steps.plan_shards, count=settings.shards, drawn=settings.drawn_by_id)
    specs = executor.one("PlanShards", plan, blocks=prepared.blocks)
    repeats = _repeats(executor, prepared.sketches, alike, work) if alike else None
    written, left_out = executor.write("WriteShards", write, prepared.spills, specs=specs, repeats=repeats)
    counted = None
    if repeats is not None:
        counted = executor.sum("CountRepeats", repeats, zero=near_duplicates.none, add=near_duplicates.Repeats.merge)
    rejected = _rejected(executor, executor.together("Rejected", prepared.rejected, left_out), out=finish.out)
    singles = {"blocks": prepared.blocks, "written": written, "hashed": prepared.hashed, "rejected": rejected}
    if counted is not None:
        singles["repeats"] = counted
    executor.one("Finish", finish, **singles)


def _repeats(executor: Executor, sketches: Collection, alike: search.Search, work: PrepareBlock) -> Collection:
    """Return the rows that repeat another one, from the sketches of blocks and those of earlier datasets."""
    job = work.job
    if job.settings.dedup_against:
        shards = executor.source("EarlierShards", functools.partial(steps.earlier_shards, job))
        spread = executor.spread("SpreadEarlier", shards)
        sketch = functools.partial(steps.sketch_shard, job=job, spool=work.spool)
        sketches = executor.together("WithEarlier", sketches, executor.each("SketchEarlier", sketch, spread))
    slim = executor.listed("Sketches", executor.flat("WithoutBytes", steps.without_bytes, sketches))
    plan = executor.one("PlanSearch", alike.plan, sketches=slim)
    bands = executor.group("GroupBands", executor.flat("CutBands", steps.cut_bands, sketches, plan=plan))
    links = executor.each("LinkRows", steps.link_rows, bands)
    joined = executor.sum("JoinLinks", links, zero=Joined, add=Joined.merge)
    groups = executor.one("Groups", functools.partial(steps.group_rows, search=alike), joined=joined, sketches=slim)
    rows = executor.group("GroupRows", executor.flat("CutRows", steps.cut_rows, sketches, plan=plan, groups=groups))
    found = executor.each("FindRepeats", functools.partial(steps.find_repeats, search=alike), rows)
    return executor.together("Repeats", found)


def _rejected(executor: Executor, lines: Collection, *, out: str) -> Single:
    """Return the files that rejected rows were written into: one, or many where they are large."""
    sizes = executor.flat("MeasureRejected", steps.size_of, lines)
    size = executor.sum("RejectedBytes", sizes, zero=int, add=operator.add)
    numbers = executor.source("NumberRejected", steps.number_files, size=size)
    cut = executor.flat("CutRejected", steps.cut_lines, lines, size=size)
    groups = executor.group("GroupRejected", numbers, cut)
    write = functools.partial(steps.write_rejected, out=out)
    return executor.listed("ListRejected", executor.each("WriteRejected", write, groups, size=size))

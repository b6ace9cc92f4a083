"""The stages of a preparation, said once: which step is applied to what, whatever executes it.

The last one writes the index, the cards, and then the manifest that makes a directory of shards a dataset. Nothing here
imports Beam.
"""

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pipelines import steps
from pipelines.steps import Hashed, Job, PrepareBlock, RejectedPart, WriteShard
from t5prep import sources
from t5prep.dataset import manifest, rejected_rows, shard_files
from t5prep.dataset.manifest import Manifest
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Lengths, Origins
from t5prep.errors import SourceError
from t5prep.io import paths
from t5prep.preparation import build_manifest
from t5prep.preparation.near_duplicates import clusters
from t5prep.preparation.near_duplicates import clusters as near_duplicates
from t5prep.preparation.near_duplicates.clusters import Repeats
from t5prep.preparation.shards import ShardTotals
from t5prep.preparation.sort_blocks import BlockTotals
from t5prep.sources import Resolved
from t5prep.tasks.filters import rules


@dataclasses.dataclass(frozen=True)
class Finish:
    """Write the index, the user's own files of the task and of filters, and the manifest.

    `source` comes without its files: the manifest lists those that were hashed. `earlier` are the digests of the datasets
    that rows were compared with.
    """

    job: Job
    source: Resolved
    out: str
    earlier: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(
        self,
        *,
        blocks: BlockTotals,
        written: ShardTotals,
        hashed: Sequence[Hashed],
        rejected: Sequence[RejectedPart],
        repeats: Repeats | None = None,
    ) -> Manifest:
        """Return the manifest. Raises OutputError if the place cannot be written, SourceError if no row made an example."""
        parts = sorted(rejected, key=lambda part: part.number)
        for hashed_file in hashed:
            sources.check_unchanged(hashed_file.file)
        reasons = sum((collections.Counter(part.reasons) for part in parts), collections.Counter[str]())
        if not any(blocks.records.values()):
            raise SourceError(no_example(blocks, reasons, place=paths.at(self.out, parts[0].file.name)))
        staged = steps.staged_of(self.job)
        staged.bring_filter_files()
        results = build_manifest.Results(
            source_files(hashed),
            written,
            blocks,
            rejected_rows.together([part.file for part in parts]),
            rejected_for=reasons,
            repeats=repeats,
            index=write_index(written, self.out),
            lengths=write_lengths(written, self.out, settings=self.job.settings),
            origins=write_origins(written, self.out),
        )
        dataset = build_manifest.assemble(
            results,
            settings=self.job.settings,
            definition=staged.definition,
            task=staged.task,
            source=self.source,
            tokenizer=staged.tokenizer,
            leaks=staged.evaluation_sets,
            earlier=self.earlier,
        )
        if dataset.task.file:
            paths.write(paths.at(self.out, manifest.TASK_FILE), staged.definition.code)
        for path, name in dataset.filter_names.items():
            paths.write(paths.at(self.out, name), rules.read(path))
        paths.write_pieces(paths.at(self.out, manifest.NAME), dataset.pieces())
        return dataset


def write_index(written: ShardTotals, out: str) -> Index:
    """Write the index of all shards, and return what the manifest says of it. Raises OutputError."""
    splits = dict(sorted(written.splits.items()))
    pages = (kept.pages for own in splits.values() for kept in own.in_order())
    return shard_files.write_index(out, pages, every={name: own.every for name, own in splits.items()})


def write_lengths(written: ShardTotals, out: str, *, settings: Settings) -> Lengths | None:
    """Write the lengths of all records, and return what the manifest says of them; None if none were kept.

    Raises OutputError.
    """
    splits = of_records(written, "lengths")
    longest = max(settings.input_length, settings.target_length)
    return shard_files.write_lengths(out, splits, longest=longest) if splits else None


def write_origins(written: ShardTotals, out: str) -> Origins | None:
    """Write where all records come from, and return what the manifest says of it; None if it was not kept. Raises OutputError."""
    splits = of_records(written, "origins")
    return shard_files.write_origins(out, splits) if splits else None


def of_records(written: ShardTotals, what: str) -> dict[str, list[bytes]]:
    """Return the `lengths` or `origins` that shards kept of their records, by split; nothing if no split has any."""
    splits = {name: kept for name, own in written.splits.items() if (kept := own.of_records(what)) is not None}
    return splits if any(written.splits[name].counts.records for name in splits) else {}


def no_example(blocks: BlockTotals, words: Mapping[str, int], *, place: str) -> str:
    """Return why there is no example at all, as a sentence.

    `words` counts the whole reasons, of which the commonest of each kind is said; `place` is where the rejected rows are.
    """
    if blocks.read == blocks.blank:
        return f"the source has no rows{f' but {blocks.blank:,} blank ones' if blocks.blank else ''}."
    why = "; ".join(
        build_manifest.with_example(f"{reason} {number:,}", reason, words)
        for reason, number in sorted(blocks.reasons.items())
    )
    blanks = f", {blocks.blank:,} of them blank" if blocks.blank else ""
    return f"no example could be made: {blocks.read:,} rows read{blanks}, all rejected ({why}). Each row's reason is in {place}"


def source_files(hashed: Iterable[Hashed]) -> list[manifest.SourceFile]:
    """Return what the manifest says of the source's files, in the order of their names."""
    return sorted(
        (manifest.SourceFile(file.name, file.bytes, sha256) for file, sha256 in hashed), key=lambda file: file.name
    )


# The stages.
#
# Files are scanned into blocks, blocks become sorted spills, spills are gathered into shards, and what all steps counted becomes
# the manifest. `pipelines.local` executes this on the processes of one machine, `pipelines.graph` wires it with Beam. A step
# is a function (pipelines.steps); an executor says how elements come to it. Nothing here imports Beam.

# Many elements, and one value: lists and values on this machine, PCollections on an engine.
Collection = Any
Single = Any


class Prepared(NamedTuple):
    """The result of preparing all blocks: spills, the totals of blocks, hashes of files, rejected rows and sketches."""

    spills: Collection
    blocks: Single
    hashed: Single
    rejected: Collection
    sketches: Collection


class Executor(Protocol):
    """An executor of the steps. Each step has a name, which an engine shows; `singles` are values that every call is given.

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

    def again(self, name: str) -> Collection | None:
        """Return all that a step made in an earlier run of the job, if it is known to have been done; None otherwise."""

    def group(self, name: str, *collections: Collection) -> Collection:
        """Return for each number of pairs of a number and a value: the number, and all its values."""

    def table(self, name: str, pairs: Collection) -> Single:
        """Return a value by which steps look up all values of a number, of pairs of a number and a value."""

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


def run(executor: Executor, work: PrepareBlock, write: WriteShard, finish: Finish, *, block_bytes: int) -> Single:
    """Prepare everything that a job names, and return the manifest. Raises T5prepError."""
    job, settings, alike = work.job, work.job.settings, clusters.of_settings(work.job.settings)
    files = executor.source("ListFiles", functools.partial(steps.limited_files, job))
    spread = executor.spread("SpreadFiles", files, key=steps.file_name)
    elements = executor.flat("ScanBlocks", functools.partial(steps.scan, job=job, block_bytes=block_bytes), spread)
    prepared = executor.prepare("PrepareBlocks", work, executor.spread("SpreadBlocks", elements))
    plan = functools.partial(steps.plan_shards, count=settings.shards, drawn=settings.drawn_by_id)
    specs = executor.one("PlanShards", plan, blocks=prepared.blocks)
    repeats = None
    if alike and (repeats := executor.again("FindRepeats")) is None:
        repeats = _repeats(executor, prepared.sketches, alike, work)
    written, left_out = executor.write("WriteShards", write, prepared.spills, specs=specs, repeats=repeats)
    counted = None
    if repeats is not None:
        counted = executor.sum("CountRepeats", repeats, zero=near_duplicates.none, add=near_duplicates.Repeats.merge)
    rejected = _rejected(executor, executor.together("Rejected", prepared.rejected, left_out), out=finish.out)
    singles = {"blocks": prepared.blocks, "written": written, "hashed": prepared.hashed, "rejected": rejected}
    if counted is not None:
        singles["repeats"] = counted
    return executor.one("Finish", finish, **singles)


def _repeats(executor: Executor, sketches: Collection, alike: clusters.Search, work: PrepareBlock) -> Collection:
    """Return the rows that repeat another one, from the sketches of blocks and those of earlier datasets."""
    job = work.job
    if job.settings.dedup_against:
        shards = executor.source("EarlierShards", functools.partial(steps.earlier_shards, job))
        spread = executor.spread("SpreadEarlier", shards)
        sketch = functools.partial(steps.sketch_shard, job=job, spool=work.spool)
        sketches = executor.together("WithEarlier", sketches, executor.each("SketchEarlier", sketch, spread))
    slim = executor.listed("Sketches", executor.flat("WithoutBytes", steps.without_bytes, sketches))
    plan = executor.one("PlanSearch", alike.plan, sketches=slim)
    placed = executor.again("JoinLinks")
    if placed is None:
        bands = executor.group("GroupBands", executor.flat("CutBands", steps.cut_bands, sketches, plan=plan))
        links = executor.group("GroupLinks", executor.each("LinkRows", steps.link_rows, bands))
        join = functools.partial(steps.group_rows, spool=work.spool)
        placed = executor.flat("JoinLinks", join, links, plan=plan)
    groups = executor.table("Groups", placed)
    rows = executor.group("GroupRows", executor.flat("CutRows", steps.cut_rows, sketches, plan=plan, groups=groups))
    find = functools.partial(steps.find_repeats, search=alike, spool=work.spool)
    found = executor.each("FindRepeats", find, rows)
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

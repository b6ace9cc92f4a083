"""Define the stages of a preparation once, for each executor: which step is applied to the elements of which stage.

The last stage writes the index, the cards, and finally the manifest, which makes a directory of shards a dataset.
This module does not import Beam.
"""

import collections
import dataclasses
import functools
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence

from pipelines import flow, sorting, steps
from pipelines.pieces import Piece
from pipelines.steps import BlockPart, Hashed, Job, PrepareBlock, RejectedPart, ShardItem, WriteShard
from t5prep import sources
from t5prep.dataset import manifest, rejected_rows, shard_files
from t5prep.dataset.manifest import Manifest
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Lengths, Origins
from t5prep.errors import SourceError
from t5prep.io import paths
from t5prep.preparation import build_manifest
from t5prep.preparation.near_duplicates import clusters
from t5prep.preparation.near_duplicates.clusters import Repeats
from t5prep.preparation.near_duplicates.sketches import Sketch
from t5prep.preparation.shards import MergePlan, ShardSpec, ShardTotals
from t5prep.preparation.sort_blocks import BlockTotals
from t5prep.preparation.spills import Spill
from t5prep.reading import blocks
from t5prep.sources import Resolved
from t5prep.tasks.filters import rules


@dataclasses.dataclass(frozen=True)
class Finish:
    """The last step: write the index, the user's task and filter files, and the manifest.

    `source` has no files, because the manifest lists the hashed ones. `earlier` has the digests of the earlier
    datasets that rows were compared with.
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
        """Return the manifest. Raises OutputError if `out` cannot be written, SourceError if no row became an example.

        * `blocks`, `written`: the totals of all blocks and of all shards.
        * `hashed`: the source files with their checksums.
        * `rejected`: the files of rejected rows.
        * `repeats`: the counts of near-duplicates, None if they were not searched.
        """
        parts = sorted(rejected, key=lambda part: part.number)
        for hashed_file in hashed:
            # A file that changed during the run would not match its checksum in the manifest.
            sources.check_unchanged(hashed_file.file)
        reasons = sum((collections.Counter(part.reasons) for part in parts), collections.Counter[str]())
        if not any(blocks.records.values()):
            raise SourceError(
                no_example(blocks, reasons, rejected_path=paths.join(self.out, parts[0].file.name)),
                code="row.example-missing" if blocks.read > blocks.blank else "row.missing",
            )
        staged = steps.staged_of(self.job)
        staged.bring_filter_files()
        results = build_manifest.Results(
            source_files(hashed),
            written,
            blocks,
            rejected_rows.merge_parts([part.file for part in parts]),
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
            paths.write(paths.join(self.out, manifest.TASK_FILE), staged.definition.code)
        for path, name in dataset.filter_names.items():
            paths.write(paths.join(self.out, name), rules.read(path))
        paths.write_pieces(paths.join(self.out, manifest.NAME), dataset.pieces())
        return dataset


def write_index(written: ShardTotals, out: str) -> Index:
    """Write the index of all shards, and return its description for the manifest. Raises OutputError."""
    splits = dict(sorted(written.splits.items()))
    pages = (shard.pages for split_shards in splits.values() for shard in split_shards.in_order())
    return shard_files.write_index(
        out, pages, every={name: split_shards.every for name, split_shards in splits.items()}
    )


def write_lengths(written: ShardTotals, out: str, *, settings: Settings) -> Lengths | None:
    """Write the lengths of all records and return their description for the manifest; None if shards recorded no lengths.

    Raises OutputError.
    """
    splits = of_records(written, "lengths")
    longest = max(settings.input_length, settings.target_length)
    return shard_files.write_lengths(out, splits, longest=longest) if splits else None


def write_origins(written: ShardTotals, out: str) -> Origins | None:
    """Write the source row of each record, and return the description for the manifest; None if none are known. Raises OutputError."""
    splits = of_records(written, "origins")
    return shard_files.write_origins(out, splits) if splits else None


def of_records(written: ShardTotals, column: str) -> dict[str, list[bytes]]:
    """Return a column of all records ("lengths" or "origins") by split. It is empty if no split has it."""
    splits = {
        name: shard_columns
        for name, split_shards in written.splits.items()
        if (shard_columns := split_shards.of_records(column)) is not None
    }
    return splits if any(written.splits[name].counts.records for name in splits) else {}


def no_example(blocks: BlockTotals, words: Mapping[str, int], *, rejected_path: str) -> str:
    """Return a sentence that explains why no row became an example.

    `words` counts the complete reasons, and the most frequent one of each kind is quoted. `rejected_path` is the file
    of rejected rows.
    """
    if blocks.read == blocks.blank:
        return f"The source has no rows{f' except {blocks.blank:,} blank ones' if blocks.blank else ''}. Name another source."
    reasons = "; ".join(
        build_manifest.with_example(f"{reason} {number:,}", reason, words)
        for reason, number in sorted(blocks.reasons.items())
    )
    blanks = f", {blocks.blank:,} of them blank" if blocks.blank else ""
    return (
        f"No example could be made: {blocks.read:,} rows were read{blanks}, and all were rejected ({reasons}). "
        f"See the reason for each row in {rejected_path}"
    )


def source_files(hashed: Iterable[Hashed]) -> list[manifest.SourceFile]:
    """Return the manifest's entries of the source files, ordered by name."""
    return sorted(
        (manifest.SourceFile(file.name, file.bytes, sha256) for file, sha256 in hashed), key=lambda file: file.name
    )


# The stages: scan files into blocks, prepare blocks into sorted spills, gather spills into shards, and sum the counts
# of all steps in the manifest.


# Two forms of the rows of shards: stages that yield (shard name, rows), and values of WriteShard with spills of all
# shards.
ByShard = tuple[list[flow.Stage[tuple[str, ShardItem]]], dict[str, flow.Stage[list[Spill]]]]


@dataclasses.dataclass(frozen=True)
class OneDisk:
    """Stages for workers that share the disk of one machine: spills stay in `folder`, and are merged when there are many."""

    folder: str
    joined_bytes: int = blocks.JOINED_BYTES

    def parts(self, elements: flow.Stage[steps.Element], work: PrepareBlock) -> flow.Stage[BlockPart]:
        """Return the stage that prepares blocks and hashes files. Blocks of small files are joined first."""
        run = functools.partial(steps.blocks_in_runs, job=work.job, joined_bytes=self.joined_bytes)
        runs = flow.MapInOrder("JoinBlocks", (elements,), step=run)
        return flow.Map("PrepareBlocks", (runs,), step=functools.partial(steps.prepare_run, work=work), workers=True)

    def of_shards(self, parts: flow.Stage[BlockPart], specs: flow.Stage[list[ShardSpec]]) -> ByShard:
        """Return no rows of single shards, but one value: few spills with the rows of all shards."""
        spilled: flow.Stage[Spill] = flow.Filter("Spills", (parts,), type=Spill)
        merge = functools.partial(sorting.merge_batch, folder=self.folder, fan_in=sorting.FAN_IN)
        for level in range(sorting.ROUNDS):
            batches = flow.Batch(f"BatchSpills{level}", (spilled,), size=sorting.FAN_IN)
            spilled = flow.Map(
                f"MergeSpills{level}", (batches,), step=merge, workers=True, remove=sorting.remove_merged
            )
        every = flow.Batch("AllSpills", (spilled,), size=sys.maxsize)
        leave = functools.partial(sorting.leave_few, folder=self.folder, fan_in=sorting.FAN_IN)
        few_spills = flow.Map(
            "LeaveFew", (every,), {"specs": specs}, step=leave, workers=True, remove=sorting.remove_merged
        )
        return [], {"spills": flow.ToList("FewSpills", (few_spills,))}


@dataclasses.dataclass(frozen=True)
class Shuffle:
    """Stages for workers that share no disk: rows are files beside the shards, and the engine shuffles their locations."""

    plan: MergePlan

    def parts(self, elements: flow.Stage[steps.Element], work: PrepareBlock) -> flow.Stage[BlockPart]:
        """Return the stage that prepares blocks and hashes files. A resubmitted job reuses its results."""
        spread = flow.Reshuffle("SpreadBlocks", (elements,))
        return flow.Map(
            "PrepareBlocks", (spread,), step=work, workers=True, cache_name=work.cache_name, stored=(Spill, Sketch)
        )

    def of_shards(self, parts: flow.Stage[BlockPart], specs: flow.Stage[list[ShardSpec]]) -> ByShard:
        """Return stages with the rows of single shards, which are merged twice and cut after each merge."""
        number = functools.partial(sorting.number_batch, batches=self.plan.batches)
        spilled = flow.Filter("Spills", (parts,), type=Spill)
        numbered = flow.Map("NumberBlocks", (spilled,), step=number)
        batches = flow.GroupByKey("GroupBlocks", (numbered,), key=int)
        merge = functools.partial(sorting.merge_blocks, plan=self.plan)
        merged = flow.Map("MergeBlocks", (batches,), step=merge, workers=True, stored=(Spill,))
        ranges = flow.GroupByKey("GroupRanges", (merged,), key=int)
        cut = functools.partial(sorting.cut_shards, plan=self.plan)
        return [flow.Map("CutShards", (ranges,), {"specs": specs}, step=cut, workers=True, stored=(Spill,))], {}


def of_job(
    work: PrepareBlock, write: WriteShard, finish: Finish, *, rows: OneDisk | Shuffle, block_bytes: int
) -> list[flow.Stage[object]]:
    """Return all stages of a preparation in order; the last one makes the manifest."""
    job, settings, search = work.job, work.job.settings, clusters.of_settings(work.job.settings)
    files = flow.Create("ListFiles", step=functools.partial(steps.limited_files, job))
    spread = flow.Reshuffle("SpreadFiles", (files,), key=steps.file_name)
    scan = functools.partial(steps.scan, job=job, block_bytes=block_bytes)
    parts = rows.parts(flow.Map("ScanBlocks", (spread,), step=scan), work)
    totals = flow.Filter("BlockTotals", (parts,), type=BlockTotals)
    block_totals = flow.Combine("SumBlocks", (totals,), zero=BlockTotals, add=BlockTotals.merge)
    plan = functools.partial(steps.plan_shards, count=settings.shards, drawn_by_id=settings.drawn_by_id)
    specs = flow.Call("PlanShards", values={"blocks": block_totals}, step=plan)
    of_shards, values = rows.of_shards(parts, specs)
    of_shards.append(flow.Create("NameShards", values={"specs": specs}, step=steps.name_shards))
    singles: dict[str, flow.Stage[object]] = {"blocks": block_totals}
    if search:
        repeats = repeats_of(flow.Filter("Sketches", (parts,), type=Sketch), search, work)
        of_shards.append(flow.Map("CutRepeats", (repeats,), {"specs": specs}, step=steps.cut_repeats))
        counted = flow.Combine("CountRepeats", (repeats,), zero=clusters.none, add=Repeats.merge)
        singles["repeats"] = counted
    written = flow.Map(
        "WriteShards",
        (flow.GroupByKey("GroupShards", tuple(of_shards), key=str),),
        values,
        step=write,
        workers=True,
        cache_name=operator.itemgetter(0),
        cache_file=write.cache_file,
    )
    of_written = flow.Filter("ShardTotals", (written,), type=ShardTotals)
    shard_totals = flow.Combine("SumShards", (of_written,), zero=ShardTotals, add=ShardTotals.merge)
    singles["written"] = shard_totals
    singles["hashed"] = flow.ToList("ListHashed", (flow.Filter("Hashes", (parts,), type=Hashed),))
    lines = flow.Filter("Lines", (parts,), type=Piece), flow.Filter("LeftOut", (written,), type=Piece)
    singles["rejected"] = _rejected(lines, out=finish.out)
    return flow.in_order(flow.Call("Finish", values=singles, step=finish))


def repeats_of(sketches: flow.Stage[Sketch], search: clusters.Search, work: PrepareBlock) -> flow.Stage[Repeats]:
    """Return the stage that yields rows that repeat another row, found by sketches of blocks and of earlier datasets."""
    job = work.job
    every: tuple[flow.Stage[Sketch], ...] = (sketches,)
    if job.settings.dedup_against:
        shards = flow.Create("EarlierShards", step=functools.partial(steps.earlier_shards, job))
        spread, digest = flow.Reshuffle("SpreadEarlier", (shards,)), operator.attrgetter("digest")
        sketch = functools.partial(steps.sketch_shard, job=job, spool=work.spool)
        every += (flow.Map("SketchEarlier", (spread,), step=sketch, workers=True, cache_name=digest, stored=(Sketch,)),)
    plan_step = functools.partial(steps.plan_search, search=search)
    plan = flow.Call("PlanSearch", values={"sketches": flow.ToList("ListSketches", every)}, step=plan_step)
    cut = flow.Map("CutBands", every, {"plan": plan}, step=steps.cut_bands)
    bands = flow.GroupByKey("GroupBands", (cut,), key=int)
    linked = flow.Map("LinkRows", (bands,), step=steps.link_rows, workers=True, remove=steps.remove_pieces)
    join = functools.partial(steps.group_rows, spool=work.spool)
    # All links have one key: connected components take several rounds, and a Beam graph has no loop.
    links = flow.GroupByKey("GroupLinks", (linked,), key=int)
    groups = flow.ToTable(
        "Groups", (flow.Map("JoinLinks", (links,), {"plan": plan}, step=join, stored=(Piece,)),), key=int
    )
    rows = flow.Map("CutRows", every, {"plan": plan, "groups": groups}, step=steps.cut_rows)
    find = functools.partial(steps.find_repeats, search=search, spool=work.spool)
    of_groups = flow.GroupByKey("GroupRows", (rows,), key=int)
    return flow.Map("FindRepeats", (of_groups,), step=find, workers=True, remove=steps.remove_pieces)


def _rejected(lines: tuple[flow.Stage[Piece], ...], *, out: str) -> flow.Stage[list[RejectedPart]]:
    """Return the stage with the files of rejected rows. The bytes of all lines decide the number of files."""
    sizes = flow.Map("MeasureRejected", lines, step=steps.size_of)
    size = {"size": flow.Combine("RejectedBytes", (sizes,), zero=int, add=operator.add)}
    numbers = flow.Create("NumberRejected", values=size, step=steps.number_files)
    cut = flow.Map("CutRejected", lines, size, step=steps.cut_lines)
    write = functools.partial(steps.write_rejected, out=out)
    groups = flow.GroupByKey("GroupRejected", (numbers, cut), key=int)
    return flow.ToList("ListRejected", (flow.Map("WriteRejected", (groups,), size, step=write, workers=True),))

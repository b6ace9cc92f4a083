"""Wire the steps of engines, whose workers share no disk: the runner's shuffle brings the pieces of each shard together."""

import dataclasses
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics

from pipelines.finish import RejectedPart, write_part
from pipelines.repeat_steps import of_shard
from pipelines.transforms import in_global_window, listed, of_kind
from pipelines.worker_steps import Hashed, PrepareBlock, WriteShard
from t5prep.dataset import rejected_files
from t5prep.prepare import partition, shuffle_plan, sorted_runs
from t5prep.prepare.block_sorter import SortedSpill
from t5prep.prepare.block_totals import BlockTotals
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.near_duplicates.sketch import Sketch
from t5prep.prepare.shard_totals import ShardTotals
from t5prep.prepare.shard_writer import ShardSpec
from t5prep.prepare.shuffle_plan import ShufflePlan
from t5prep.prepare.sorted_runs import Run

# So many bytes of one shard are held in memory; more are written to the worker's own disk.
HELD_BYTES = 256 << 20


class Piece(NamedTuple):
    """Hold some records on their way, under the key that they are grouped by."""

    key: int | str
    run: Run


class RejectedLines(NamedTuple):
    """Hold finished JSON lines of rejected rows, and what they are ordered by among all others."""

    order: tuple[int, str, int]
    lines: bytes


@dataclasses.dataclass
class PrepareBlocks(beam.PTransform):
    """Make records of all blocks, merged and cut into ranges; yield these, totals, hashes, rejected rows and sketches."""

    work: PrepareBlock
    plan: ShufflePlan

    def expand(self, elements: beam.PCollection) -> Any:
        done = elements | "Sort" >> beam.ParDo(CutRanges(self.work, self.plan))
        kinds = (Piece, BlockTotals, Hashed, RejectedLines, Sketch)
        return tuple(done | f"{kind.__name__}s" >> of_kind(kind) for kind in kinds)


@dataclasses.dataclass
class ShuffleShards(beam.PTransform):
    """Write shards from pieces of records; yield the totals of shards, and the rows that these left out.

    `specs` is one list of shards; `repeats` are the rows that near-duplicates leave out, or None.
    """

    work: WriteShard
    groups: int
    specs: beam.PCollection
    repeats: beam.PCollection | None = None

    def expand(self, pieces: beam.PCollection) -> Any:
        keyed, specs = tuple[str, Any], beam.pvalue.AsSingleton(self.specs)
        ranges = (
            pieces | "Key" >> beam.Map(tuple).with_output_types(tuple[int, Any]) | "GroupRanges" >> beam.GroupByKey()
        )
        cut = ranges | "CutShards" >> beam.FlatMap(cut_shards, specs=specs, groups=self.groups)
        parts = [
            self.specs | "Name" >> beam.FlatMap(with_names).with_output_types(keyed),
            cut | "KeyShards" >> beam.Map(tuple).with_output_types(keyed),
        ]
        if self.repeats:
            repeated = self.repeats | "CutRepeats" >> beam.FlatMap(cut_repeats, specs=specs)
            parts.append(repeated | "KeyRepeats" >> beam.Map(tuple).with_output_types(keyed))
        groups = parts | beam.Flatten() | "GroupShards" >> beam.GroupByKey()
        done = groups | "Write" >> beam.FlatMap(write_group, work=self.work)
        return tuple(done | f"{kind.__name__}s" >> of_kind(kind) for kind in (ShardTotals, RejectedLines))


@dataclasses.dataclass
class WriteRejected(beam.PTransform):
    """Write rejected rows into one file, or into many where they are large; yield one list of what was written."""

    out: str

    def expand(self, lines: beam.PCollection) -> beam.PCollection:
        keyed = tuple[int, Any]
        size = lines | "Bytes" >> beam.Map(bytes_of) | "Sum" >> beam.CombineGlobally(sum)
        named = size | "Name" >> beam.FlatMap(with_numbers).with_output_types(keyed)
        cut = lines | "Cut" >> beam.FlatMap(cut_lines, size=beam.pvalue.AsSingleton(size)).with_output_types(keyed)
        groups = (named, cut) | beam.Flatten() | beam.GroupByKey()
        written = groups | "Write" >> beam.Map(write_rejected, size=beam.pvalue.AsSingleton(size), out=self.out)
        return written | "List" >> listed()


class CutRanges(beam.DoFn):
    """Prepare each block of a bundle; merge the records of as many as make pieces large enough, and cut them into ranges."""

    def __init__(self, work: PrepareBlock, plan: ShufflePlan) -> None:
        self._work, self._plan = work, plan
        self._sent = Metrics.distribution("t5prep", "range_bytes")

    def start_bundle(self) -> None:
        self._totals, self._runs, self._held, self._lane = BlockTotals(), list[Run](), 0, 0

    def process(self, element: Any) -> Iterator[Any]:
        result = self._work(element)
        if not isinstance(result, SortedSpill):
            yield result
            return
        self._totals.add(result)
        if result.rejected:
            yield RejectedLines((0, result.file, result.first_row), result.rejected)
        if result.sketch:
            yield result.sketch
        if not result.records:
            return
        if not self._runs:
            self._lane = zlib.crc32(f"{result.file}\0{result.first_row}".encode()) % self._plan.lanes
        self._runs.append(result.run())
        self._held += len(result.data)
        if self._held >= self._plan.batch_bytes:
            yield from self._pieces()

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(in_global_window, self._pieces())
        yield in_global_window(self._totals)

    def _pieces(self) -> Iterator[Piece]:
        if self._runs:
            merged = sorted_runs.merged_in_memory(self._runs)
            self._runs, self._held = [], 0
            for number, piece in partition.cut_ranges(merged, self._plan.groups):
                self._sent.update(len(piece.data))
                yield Piece(number * self._plan.lanes + self._lane, piece)


def cut_shards(group: tuple[int, Iterable[Run]], *, specs: Sequence[ShardSpec], groups: int) -> Iterator[Piece]:
    """Yield the pieces of each shard that lie in one range of positions, merged as far as a worker holds them."""
    of_split: dict[str, list[ShardSpec]] = {}
    for spec in specs:
        of_split.setdefault(spec.split, []).append(spec)
    sent = Metrics.distribution("t5prep", "shard_bytes")
    for runs in _batches(group[1], shuffle_plan.recut_bytes(len(specs), groups=groups)):
        for name, piece in partition.cut_shards(sorted_runs.merged_in_memory(runs), of_split):
            sent.update(len(piece.data))
            yield Piece(name, piece)


def _batches(runs: Iterable[Run], size: int) -> Iterator[list[Run]]:
    batch, held = list[Run](), 0
    for run in runs:
        batch.append(run)
        held += len(run.data)
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def with_names(specs: Sequence[ShardSpec]) -> Iterator[tuple[str, ShardSpec]]:
    """Yield each shard under its name, so that it is written even if nothing is in it."""
    for spec in specs:
        yield spec.name, spec


def cut_repeats(part: Repeats, *, specs: Iterable[ShardSpec]) -> Iterator[tuple[str, Repeats]]:
    """Yield the rows that each shard leaves out, under its name."""
    for spec in specs:
        for own in of_shard(spec, [part]):
            yield spec.name, own


def write_group(group: tuple[str, Iterable[Any]], *, work: WriteShard) -> Iterator[Any]:
    """Write a shard from its ShardSpec, Runs and Repeats, as the shuffle brings them; a large one over the worker's disk.

    Yield ShardTotals, and RejectedLines where rows were left out.
    """
    spec, repeats = None, list[Repeats]()
    with tempfile.TemporaryDirectory(prefix="t5prep-") as folder:
        held = _Held(Path(folder))
        for element in group[1]:
            if isinstance(element, ShardSpec):
                spec = element
            elif isinstance(element, Repeats):
                repeats.append(element)
            else:
                held.add(element)
        assert spec is not None
        written = work((spec, held.runs(), repeats))
    yield ShardTotals().add(written._replace(rejected=b""))
    if written.rejected:
        yield RejectedLines((1, spec.name, 0), written.rejected)


class _Held:
    """Hold the pieces of a shard in memory, and on the worker's disk what is more than HELD_BYTES."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pieces, self._bytes, self._written = list[Run](), 0, list[Run]()

    def add(self, piece: Run) -> None:
        """Take one more piece."""
        self._pieces.append(piece)
        self._bytes += len(piece.data)
        if self._bytes > HELD_BYTES:
            merged, path = sorted_runs.merged_in_memory(self._pieces), self._folder / str(len(self._written))
            path.write_bytes(merged.data)
            self._written.append(dataclasses.replace(merged, data=b"", path=str(path)))
            self._pieces, self._bytes = [], 0

    def runs(self) -> list[Run]:
        """Return the runs that hold all of it."""
        return [*self._written, *self._pieces]


def bytes_of(lines: RejectedLines) -> int:
    """Return the bytes of some lines."""
    return len(lines.lines)


def with_numbers(size: int) -> Iterator[tuple[int, None]]:
    """Yield the number of each file of rejected rows, so that it is written even if nothing is in it."""
    for number in range(rejected_files.count(size)):
        yield number, None


def cut_lines(lines: RejectedLines, *, size: int) -> Iterator[tuple[int, RejectedLines]]:
    """Yield the lines of each file of rejected rows, under its number."""
    parts = rejected_files.count(size)
    if parts == 1:
        yield 0, lines
        return
    cut: dict[int, list[bytes]] = {}
    for line in lines.lines.splitlines(keepends=True):
        cut.setdefault(rejected_files.part_of(line, parts=parts), []).append(line)
    for number, own in cut.items():
        yield number, RejectedLines(lines.order, b"".join(own))


def write_rejected(group: tuple[int, Iterable[RejectedLines | None]], *, size: int, out: str) -> RejectedPart:
    """Write one file of rejected rows, in order."""
    number, elements = group
    ordered = sorted((element for element in elements if element is not None), key=lambda element: element.order)
    lines = (element.lines for element in ordered)
    return write_part(number, lines, parts=rejected_files.count(size), out=out)

"""Wire the stages of a preparation with Beam, for engines: Prism, Flink, Dataflow. Their workers share no disk.

The steps are those of pipelines.stages. What is here is how elements come to them: what every block and every shard counts is
added up by combiners, so that no step is handed a list that grows with the number of blocks, and the runner's shuffle
brings the pieces of each shard together.
"""

import contextlib
import dataclasses
import functools
import hashlib
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from pipelines import steps
from pipelines.kept import FOUND, MADE, Kept
from pipelines.stages import Prepared
from pipelines.steps import EarlierShard, Hashed, Piece, PrepareBlock, WriteShard
from t5prep.errors import OutputError
from t5prep.io import paths
from t5prep.prepare import shards, spills
from t5prep.prepare.near_duplicates.clusters import Repeats
from t5prep.prepare.near_duplicates.sketches import Sketch
from t5prep.prepare.shards import ShardSpec, ShardTotals, ShufflePlan
from t5prep.prepare.sort_blocks import BlockTotals
from t5prep.prepare.spills import Spill
from t5prep.reading.blocks import Block

# Steps of which what they make of an element is kept, beside blocks and shards, and by which step their groups are made.
KEPT = {"SketchEarlier": "", "LinkRows": "GroupBands", "FindRepeats": "GroupRows"}
# Bytes of one shard that are held in memory; more are written to the worker's own disk.
HELD_BYTES = 256 << 20


class Graph:
    """The executor of engines (pipelines.stages): each call adds steps to a pipeline. `plan` says how records travel.

    What workers made is `kept` for the same job again.
    """

    def __init__(self, pipeline: beam.Pipeline, plan: ShufflePlan, kept: Kept) -> None:
        self._pipeline, self._plan, self._kept = pipeline, plan, kept

    def source(self, name: str, step: Callable[..., Iterable[Any]], **singles: Any) -> beam.PCollection:
        """Return what a step yields that is called once: the graph is as large for ten thousand files as for one."""
        return self._once(name) | name >> beam.FlatMap(called_once, step=step, **_sides(singles))

    def spread(self, name: str, elements: Any, *, key: Callable[[Any], str] | None = None) -> beam.PCollection:
        """Return the elements, spread over all workers.

        Those with a `key` are spread by it, because Flink leaves out the second of two `Reshuffle`s that only ParDos are
        between: all blocks of a file would stay on the worker that found them.
        """
        if key is None:
            return elements | name >> beam.Reshuffle()
        named = elements | f"{name}Key" >> beam.Map(with_key, key=key).with_output_types(tuple[str, Any])
        return named | name >> beam.GroupByKey() | f"{name}Values" >> beam.FlatMap(group_values)

    def flat(self, name: str, step: Callable[..., Iterable[Any]], elements: Any, **singles: Any) -> beam.PCollection:
        """Return all that a step yields of each element."""
        return elements | name >> beam.FlatMap(called, step=step, **_sides(singles))

    def each(self, name: str, step: Callable[..., Iterable[Any]], elements: Any, **singles: Any) -> beam.PCollection:
        """Return all that a step yields of each element."""
        if name in KEPT:
            step = Once(self._kept, name, step)
        return self.flat(name, step, elements, **singles)

    def again(self, name: str) -> beam.PCollection | None:
        """Return all that a step made in an earlier run, if that run had come to the shards; None otherwise."""
        if not self._kept.shards_done():
            return None
        names = self.spread(f"Spread{name}", self.source(f"Kept{name}", functools.partial(done_of, self._kept, name)))
        return self.flat(name, functools.partial(made_once, self._kept, make=tuple), names)

    def group(self, name: str, *collections: Any) -> beam.PCollection:
        """Return for each number all its values."""
        step = {group: step for step, group in KEPT.items()}.get(name, "")
        pairs = [
            pairs
            | f"{name}Key{place}" >> beam.Map(needed, step=step, kept=self._kept).with_output_types(tuple[int, Any])
            for place, pairs in enumerate(collections)
        ]
        return (
            pairs[0] if len(pairs) == 1 else tuple(pairs) | f"{name}All" >> beam.Flatten()
        ) | name >> beam.GroupByKey()

    def table(self, name: str, pairs: Any) -> beam.pvalue.AsMultiMap:
        """Return a value by which steps look up the values of one number, without having all of them."""
        return beam.pvalue.AsMultiMap(pairs | name >> beam.Map(tuple).with_output_types(tuple[int, Any]))

    def together(self, name: str, *collections: Any) -> beam.PCollection:
        """Return the elements of several collections."""
        return collections[0] if len(collections) == 1 else collections | name >> beam.Flatten()

    def listed(self, name: str, elements: Any) -> beam.PCollection:
        """Return one list."""
        return elements | name >> beam.CombineGlobally(beam.combiners.ToListCombineFn())

    def sum(
        self, name: str, elements: Any, *, zero: Callable[[], Any], add: Callable[[Any, Any], Any]
    ) -> beam.PCollection:
        """Return all elements added up: one element."""
        return elements | name >> beam.CombineGlobally(Sum(zero, add))

    def one(self, name: str, step: Callable[..., Any], **singles: Any) -> beam.PCollection:
        """Return what a step makes of values: one element."""
        return self._once(name) | name >> beam.Map(called_once, step=step, **_sides(singles))

    def prepare(self, name: str, work: PrepareBlock, elements: Any) -> Prepared:
        """Return what a worker makes of each block and file; spills are merged and cut into ranges of positions."""
        done = elements | name >> beam.ParDo(CutRanges(work, self._plan, self._kept))
        spilled, counted, hashed, lines, sketches = (
            done | f"{name}{kind.__name__}" >> beam.Filter(isinstance, kind).with_output_types(kind)
            for kind in (PieceOfRange, BlockTotals, Hashed, Piece, Sketch)
        )
        blocks = self.sum("SumBlocks", counted, zero=BlockTotals, add=BlockTotals.merge)
        return Prepared(spilled, blocks, self.listed("ListHashed", hashed), lines, sketches)

    def write(
        self, name: str, work: WriteShard, spills: Any, *, specs: Any, repeats: Any
    ) -> tuple[beam.PCollection, beam.PCollection]:
        """Return the totals of the shards that were written from spills, and the rows that these left out."""
        keyed, planned = tuple[str, Any], beam.pvalue.AsSingleton(specs)
        ranges = self.group("GroupRanges", spills)
        parts = [
            specs | "NameShards" >> beam.FlatMap(with_names).with_output_types(keyed),
            ranges
            | "CutShards" >> beam.FlatMap(cut_shards, specs=planned, groups=self._plan.groups).with_output_types(keyed),
        ]
        if repeats is not None:
            cut = repeats | "CutRepeats" >> beam.FlatMap(steps.cut_repeats, specs=planned).with_output_types(keyed)
            parts.append(cut)
        groups = parts | "AllOfShards" >> beam.Flatten() | "GroupShards" >> beam.GroupByKey()
        done = groups | name >> beam.FlatMap(write_group, work=work, kept=self._kept)
        totals, left_out = (
            done | f"{name}{kind.__name__}" >> beam.Filter(isinstance, kind).with_output_types(kind)
            for kind in (ShardTotals, Piece)
        )
        return self.sum("SumShards", totals, zero=ShardTotals, add=ShardTotals.merge), left_out

    def _once(self, name: str) -> beam.PCollection:
        return self._pipeline | f"{name}Once" >> beam.Create([None])


def _sides(singles: dict[str, Any]) -> dict[str, Any]:
    """Return values that the graph computes as Beam hands them to a step."""
    return {
        name: value if isinstance(value, beam.pvalue.AsMultiMap) else beam.pvalue.AsSingleton(value)
        for name, value in singles.items()
    }


def called(element: Any, *, step: Callable[..., Any], **singles: Any) -> Any:
    """Return what a step makes of an element. Beam hands values to functions only, not to what `functools.partial` returns."""
    return step(element, **singles)


def called_once(_: None, *, step: Callable[..., Any], **singles: Any) -> Any:
    """Return what a step makes of values alone, called for the one element of a collection that says nothing."""
    return step(**singles)


def needed(pair: Any, *, step: str, kept: Kept) -> tuple[int, Any]:
    """Return a number and a value of its group, or nothing in its place where the step has done this group in an earlier run."""
    number, value = pair
    return number, Piece() if step and f"{step}-{number}" in kept.done() else value


def done_of(kept: Kept, step: str) -> list[str]:
    """Return the names of what a step made in an earlier run."""
    return sorted(name for name in kept.done() if name.startswith(f"{step}-"))


def made_once(kept: Kept, name: str, make: Callable[[], Iterable[Any]], *, file: str = "") -> list[Any]:
    """Return what an earlier run of the job made under a name, or make it now and keep it; count which of both."""
    found = kept.find(name, file=file)
    Metrics.counter("t5prep", MADE if found is None else FOUND).inc()
    if found is not None:
        return found
    made = list(make())
    with contextlib.suppress(OutputError):  # where there is no room, the run goes on without
        kept.keep(name, made, file=file)
    return made


@dataclasses.dataclass(frozen=True)
class Once:
    """Do a step for a group, under its number, or for a shard of an earlier dataset, unless an earlier run has done it."""

    kept: Kept
    name: str
    step: Callable[..., Iterable[Any]]

    def __call__(self, element: Any, **singles: Any) -> list[Any]:
        """Return what the step makes."""
        name = digest(*element) if isinstance(element, EarlierShard) else f"{self.name}-{element[0]}"
        return made_once(self.kept, name, lambda: self.step(element, **singles))


def digest(*parts: object) -> str:
    """Return a name for what is made of an element, which is known by these."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


class Sum(beam.CombineFn):
    """Add up elements; of none, return `zero()`."""

    def __init__(self, zero: Callable[[], Any], add: Callable[[Any, Any], Any]) -> None:
        self._zero, self._add = zero, add

    def create_accumulator(self) -> Any:
        """Return nothing added up."""
        return self._zero()

    def add_input(self, total: Any, more: Any) -> Any:
        """Return both together."""
        return self._add(total, more)

    def merge_accumulators(self, parts: Iterable[Any]) -> Any:
        """Return all of them together."""
        total = self._zero()
        for part in parts:
            total = self._add(total, part)
        return total

    def extract_output(self, total: Any) -> Any:
        """Return the total."""
        return total


def with_key(element: Any, *, key: Callable[[Any], str]) -> tuple[str, Any]:
    """Return an element with its key."""
    return key(element), element


def group_values(group: tuple[str, Iterable[Any]]) -> Iterable[Any]:
    """Return the values of a group."""
    return group[1]


class PieceOfRange(NamedTuple):
    """Some records of one range of positions, under its number."""

    key: int
    spill: Spill


class CutRanges(beam.DoFn):
    """Prepare each block of a bundle; merge the records of as many as make pieces large enough, and cut them into ranges."""

    def __init__(self, work: PrepareBlock, plan: ShufflePlan, kept: Kept) -> None:
        self._work, self._plan, self._kept = work, plan, kept
        self._sent = Metrics.distribution("t5prep", "range_bytes")

    def start_bundle(self) -> None:
        self._totals, self._spills, self._held, self._lane = BlockTotals(), list[Spill](), 0, 0

    def process(self, element: Any) -> Iterator[Any]:
        if not isinstance(element, Block):
            yield self._work(element)
            return
        name = digest(element.file.name, element.first_row, element.rows)
        (result,) = made_once(self._kept, name, lambda: [self._work(element)])
        self._totals.merge(result.totals)
        if result.rejected:
            yield Piece((0, result.file, result.first_row), result.rejected)
        if result.sketch:
            yield result.sketch
        spill = result.spill
        if self._work.job.settings.drawn_by_id:  # a row is needed by no shard of another split
            spill = shards.without(spill, self._kept.shards_done())
        if not spill.records:
            return
        if not self._spills:
            self._lane = zlib.crc32(f"{result.file}\0{result.first_row}".encode()) % self._plan.lanes
        self._spills.append(spill)
        self._held += len(spill.data)
        if self._held >= self._plan.batch_bytes:
            yield from self._pieces()

    def finish_bundle(self) -> Iterator[Any]:
        for made in (*self._pieces(), self._totals):
            yield WindowedValue(made, GlobalWindow().max_timestamp(), [GlobalWindow()])

    def _pieces(self) -> Iterator[PieceOfRange]:
        if self._spills:
            merged = spills.merged_in_memory(self._spills)
            self._spills, self._held = [], 0
            for number, piece in shards.cut_ranges(merged, self._plan.groups):
                self._sent.update(len(piece.data))
                yield PieceOfRange(number * self._plan.lanes + self._lane, piece)


def cut_shards(
    group: tuple[int, Iterable[Spill]], *, specs: Sequence[ShardSpec], groups: int
) -> Iterator[tuple[str, Spill]]:
    """Yield the pieces of each shard that lie in one range of positions, merged as far as a worker holds them."""
    of_split = shards.of_splits(specs)
    sent = Metrics.distribution("t5prep", "shard_bytes")
    for some in _batches(group[1], shards.recut_bytes(len(specs), groups=groups)):
        for name, piece in shards.cut_shards(spills.merged_in_memory(some), of_split):
            sent.update(len(piece.data))
            yield name, piece


def _batches(group: Iterable[Spill], size: int) -> Iterator[list[Spill]]:
    batch, held = list[Spill](), 0
    for spill in group:
        batch.append(spill)
        held += len(spill.data)
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def with_names(specs: Sequence[ShardSpec]) -> Iterator[tuple[str, ShardSpec]]:
    """Yield each shard under its name, so that it is written even if nothing is in it."""
    for spec in specs:
        yield spec.name, spec


def write_group(group: tuple[str, Iterable[Any]], *, work: WriteShard, kept: Kept) -> list[Any]:
    """Return ShardTotals of a shard, and Pieces of rejected rows where some were left out; write it if it is not there."""
    name, elements = group
    return made_once(kept, name, lambda: _write_group(elements, work), file=paths.at(work.out, name))


def _write_group(elements: Iterable[Any], work: WriteShard) -> Iterator[Any]:
    """Write a shard from its ShardSpec, Spills and Repeats, as the shuffle brings them; a large one over the worker's disk."""
    spec, repeats = None, list[Repeats]()
    with tempfile.TemporaryDirectory(prefix="t5prep-") as folder:
        held = _Held(Path(folder))
        for element in elements:
            if isinstance(element, ShardSpec):
                spec = element
            elif isinstance(element, Repeats):
                repeats.append(element)
            else:
                held.add(element)
        assert spec is not None
        written = work(spec, held.spills(), repeats)
    yield written.totals
    for number, lines in enumerate(written.rejected):
        yield Piece((1, spec.name, number), lines)


class _Held:
    """The pieces of a shard, in memory, and on the worker's disk what is more than HELD_BYTES."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pieces, self._bytes, self._written = list[Spill](), 0, list[Spill]()

    def add(self, piece: Spill) -> None:
        """Take one more piece."""
        self._pieces.append(piece)
        self._bytes += len(piece.data)
        if self._bytes > HELD_BYTES:
            merged, path = spills.merged_in_memory(self._pieces), self._folder / str(len(self._written))
            path.write_bytes(merged.data)
            self._written.append(dataclasses.replace(merged, data=b"", path=str(path)))
            self._pieces, self._bytes = [], 0

    def spills(self) -> list[Spill]:
        """Return the spills that hold all of it."""
        return [*self._written, *self._pieces]

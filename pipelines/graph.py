"""Wire the stages of a preparation with Beam, for engines: Prism, Flink, Dataflow. Their workers share no disk.

The steps are those of pipelines.stages. What is here is how elements come to them: what every block and every shard counts is
added up by combiners, so that no step is handed a list that grows with the number of blocks. Rows lie in files beside the
shards, and the runner's shuffle brings together where those of each shard are.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from pipelines import kept as kept_rows
from pipelines import steps
from pipelines.kept import FOUND, MADE, Kept, Stored
from pipelines.stages import Prepared
from pipelines.steps import EarlierShard, Hashed, Piece, PrepareBlock, WriteShard
from t5prep.dataset import shard_files
from t5prep.errors import OutputError
from t5prep.io import atomic_files, paths
from t5prep.preparation import shards, spills
from t5prep.preparation.near_duplicates.clusters import Repeats
from t5prep.preparation.near_duplicates.sketches import Sketch
from t5prep.preparation.shards import MergePlan, ShardSpec, ShardTotals
from t5prep.preparation.sort_blocks import BlockTotals, SortedBlock
from t5prep.preparation.spills import Spill
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile

# Steps of which what they make of an element is kept, beside blocks and shards, and by which step their groups are made.
KEPT = {
    "SketchEarlier": "",
    "LinkRows": "GroupBands",
    "JoinLinks": "GroupLinks",
    "FindRepeats": "GroupRows",
    "MergeBlocks": "GroupBlocks",
    "CutShards": "GroupRanges",
}
# Those of them whose bytes are stored in a file of their own.
STORED = ("JoinLinks", "MergeBlocks", "CutShards")
# What each of these steps makes comes together before the next one begins: which results show that all of it was kept.
WHOLE: dict[str, Callable[[str], bool]] = {
    "JoinLinks": "JoinLinks-0".__eq__,
    "FindRepeats": shard_files.is_shard,
    "MergeBlocks": lambda name: name.startswith("CutShards-") or shard_files.is_shard(name),
    "CutShards": shard_files.is_shard,
}
_READS_AT_ONCE = 16
# Bytes of one shard that are held in memory; more are written to the worker's own disk.
HELD_BYTES = 256 << 20


class Graph:
    """The executor of engines (pipelines.stages): each call adds steps to a pipeline. `plan` says how rows are merged.

    What workers made is `kept` for the same job again, rows included.
    """

    def __init__(self, pipeline: beam.Pipeline, plan: MergePlan, kept: Kept) -> None:
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
        if name in KEPT:
            step = Once(self._kept, name, step)
        return elements | name >> beam.FlatMap(called, step=step, **_sides(singles))

    each = flat

    def again(self, name: str) -> beam.PCollection | None:
        """Return all that a step made in an earlier run, if that run is known to have made all of it; None otherwise."""
        if not any(map(WHOLE[name], self._kept.done())):
            return None
        names = self.spread(f"Spread{name}", self.source(f"Kept{name}", functools.partial(done_of, self._kept, name)))
        return names | name >> beam.FlatMap(functools.partial(kept_of, self._kept, name))

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
        """Return what a worker makes of each block and file."""
        done = self.flat(name, PrepareOnce(work, self._kept), elements)
        rows, counted, hashed, lines, sketches = (
            done | f"{name}{kind.__name__}" >> beam.Filter(is_of, kind=kind)
            for kind in (Spill, BlockTotals, Hashed, Piece, Sketch)
        )
        blocks = self.sum("SumBlocks", counted, zero=BlockTotals, add=BlockTotals.merge)
        return Prepared(rows, blocks, self.listed("ListHashed", hashed), lines, sketches)

    def write(
        self, name: str, work: WriteShard, spills: Any, *, specs: Any, repeats: Any
    ) -> tuple[beam.PCollection, beam.PCollection]:
        """Return the totals of the shards that were written from spills, and the rows that these left out."""
        keyed, planned = tuple[str, Any], beam.pvalue.AsSingleton(specs)
        ranges = self.again("CutShards")
        if ranges is None:
            cut = functools.partial(cut_shards, plan=self._plan)
            ranges = self.each("CutShards", cut, self.group("GroupRanges", self._merged(spills)), specs=specs)
        parts = [
            specs | "NameShards" >> beam.FlatMap(with_names).with_output_types(keyed),
            ranges | "CutShardsKey" >> beam.Map(tuple).with_output_types(keyed),
        ]
        if repeats is not None:
            parts.append(
                repeats | "CutRepeats" >> beam.FlatMap(steps.cut_repeats, specs=planned).with_output_types(keyed)
            )
        groups = parts | "AllOfShards" >> beam.Flatten() | "GroupShards" >> beam.GroupByKey()
        done = groups | name >> beam.FlatMap(write_group, work=work, kept=self._kept)
        totals, left_out = (
            done | f"{name}{kind.__name__}" >> beam.Filter(isinstance, kind).with_output_types(kind)
            for kind in (ShardTotals, Piece)
        )
        return self.sum("SumShards", totals, zero=ShardTotals, add=ShardTotals.merge), left_out

    def _merged(self, spills: Any) -> beam.PCollection:
        """Return the rows of blocks under the numbers of ranges of positions, those of many blocks merged."""
        if (made := self.again("MergeBlocks")) is not None:
            return made
        numbered = spills | "NumberBlocks" >> beam.Map(with_batch, batches=self._plan.batches)
        merge = functools.partial(merge_blocks, plan=self._plan)
        return self.each("MergeBlocks", merge, self.group("GroupBlocks", numbered))

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
    if isinstance(element, Stored):
        element = element.about if step is steps.without_bytes else element.read()
    return step(element, **singles)


def is_of(element: Any, *, kind: type) -> bool:
    """Check whether an element is of a type, or is a stored one of it."""
    return isinstance(element.about if isinstance(element, Stored) else element, kind)


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


def kept_of(kept: Kept, step: str, name: str) -> list[Any]:
    """Return what a step made in an earlier run under a name. Raises OutputError if that is gone."""
    return made_once(kept, name, tuple, file=kept.rows_of(name) if step in STORED else "")


def made_once(kept: Kept, name: str, make: Callable[[], Iterable[Any]], *, file: str = "") -> list[Any]:
    """Return what an earlier run of the job made under a name, or make it now and keep it; count which of both."""
    found = kept.find(name, file=file)
    Metrics.counter("t5prep", MADE if found is None else FOUND).inc()
    if found is not None:
        return found
    made = list(make())
    # Where there is no room, the run goes on without; but of these, what comes after is taken to show that they are there.
    shown = name.rpartition("-")[0] in WHOLE
    with contextlib.nullcontext() if shown else contextlib.suppress(OutputError):
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
        if self.name not in STORED:
            return made_once(self.kept, name, lambda: self.step(element, **singles))
        file = self.kept.rows_of(name)
        return made_once(self.kept, name, lambda: kept_rows.store(self.step(element, **singles), file), file=file)


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


@dataclasses.dataclass(frozen=True)
class PrepareOnce:
    """Prepare a block, or hash a file, unless an earlier run has done it. Rows and sketch of a block stay in a file of its own."""

    work: PrepareBlock
    kept: Kept

    def __call__(self, element: Block | RawFile | Hashed) -> Iterator[Any]:
        """Yield the parts of what was made, each of a type of its own: totals, a hash, rejected lines, rows, a sketch."""
        if isinstance(element, Hashed):
            yield element
            return
        if isinstance(element, RawFile):
            yield from made_once(self.kept, digest("sha256", element.name), lambda: [self.work(element)])
            return
        name = digest(element.file.name, element.first_row, element.rows)
        file = self.kept.rows_of(name)
        result, *stored = made_once(self.kept, name, lambda: self._make(element, file), file=file)
        yield result.totals
        if result.rejected:
            yield Piece((0, result.file, result.first_row), result.rejected)
        yield from stored

    def _make(self, block: Block, file: str) -> Iterator[Any]:
        result = self.work(block)
        assert isinstance(result, SortedBlock)
        yield dataclasses.replace(result, spill=dataclasses.replace(result.spill, data=b""), sketch=None)
        parts = [part for part in (result.spill if result.spill.records else None, result.sketch) if part]
        for _, stored in kept_rows.store([(None, part) for part in parts], file):
            yield stored


def with_batch(rows: Stored, *, batches: int) -> tuple[int, Stored]:
    """Return the rows of a block under the number of the batch in which they are merged with those of others."""
    return zlib.crc32(rows.path.rpartition("/")[2].encode()) % batches, rows


def merge_blocks(group: tuple[int, Iterable[Any]], *, plan: MergePlan) -> Iterator[tuple[int, Spill]]:
    """Yield what the blocks of a batch have of each range of positions, merged, under the number of the range."""
    number, blocks = group

    def cut(spill: Spill) -> Iterator[tuple[int, Spill]]:
        for place, piece in shards.cut_ranges(spill, plan.groups):
            yield place * plan.lanes + number % plan.lanes, piece

    yield from _merge(blocks, cut, size=shards.LARGEST_BATCH)


def cut_shards(
    group: tuple[int, Iterable[Any]], *, specs: Sequence[ShardSpec], plan: MergePlan
) -> Iterator[tuple[str, Spill]]:
    """Yield what has come together in one range of positions, merged, under the names of its shards."""
    cut = functools.partial(shards.cut_shards, shards=shards.of_splits(specs))
    yield from _merge(group[1], cut, size=shards.recut_bytes(len(specs), groups=plan.groups))


def _merge(
    stored: Iterable[Stored], cut: Callable[[Spill], Iterable[tuple[Any, Spill]]], *, size: int
) -> Iterator[tuple[Any, Spill]]:
    """Merge rows, about `size` bytes at a time, and yield them cut. Whoever comes first, it is the same."""
    for some in _batches(sorted(stored, key=lambda rows: (rows.path, rows.begin)), size):
        yield from cut(spills.merged_in_memory(_read(some)))


def _read(stored: Sequence[Stored]) -> list[Any]:
    """Return the pieces, many of which are read at the same time: a bucket answers each after a while."""
    with concurrent.futures.ThreadPoolExecutor(_READS_AT_ONCE) as threads:
        return list(threads.map(Stored.read, stored))


def _batches(stored: Iterable[Stored], size: int) -> Iterator[list[Stored]]:
    batch, held = list[Stored](), 0
    for rows in stored:
        batch.append(rows)
        held += rows.size
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
    """Write a shard from its ShardSpec, Stored rows and Repeats, as the shuffle brings them; a large one over the worker's disk."""
    spec, repeats, stored = None, list[Repeats](), list[Stored]()
    with atomic_files.temporary_folder() as folder:
        held = _Held(Path(folder))
        for element in elements:
            if isinstance(element, ShardSpec):
                spec = element
            elif isinstance(element, Repeats):
                repeats.append(element)
            else:
                stored.append(element)
        for piece in itertools.chain.from_iterable(map(_read, _batches(stored, shards.LARGEST_BATCH))):
            held.add(piece)
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

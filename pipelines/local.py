"""Execute the stages of a preparation on this machine: its processes take blocks, then shards, in order.

Each block becomes a sorted spill on the disk, and spills are merged as soon as there are many of them: there are never more
than FAN_IN of one level. A record is copied once more each time that there are FAN_IN times as many blocks, and once in the
end, so the work is about linear in bytes, and memory does not depend on the corpus. Nothing here imports Beam, which takes longer
to load than a small corpus to prepare.
"""

import collections
import dataclasses
import functools
import itertools
import math
import operator
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines import pool, steps
from pipelines.stages import Prepared
from pipelines.steps import Hashed, Piece, PrepareBlock, WriteShard
from t5prep.errors import OutputError
from t5prep.io import atomic_files, store
from t5prep.io.progress import Progress
from t5prep.preparation import spills, token_cache
from t5prep.preparation.near_duplicates import sketches
from t5prep.preparation.near_duplicates.clusters import Repeats
from t5prep.preparation.near_duplicates.sketches import Sketch
from t5prep.preparation.shards import ShardSpec, ShardTotals, WrittenShard
from t5prep.preparation.sort_blocks import BlockTotals, SortedBlock
from t5prep.preparation.spills import Spill
from t5prep.reading import blocks
from t5prep.reading.blocks import Block

# Spills that are merged into one: a range is read from each.
FAN_IN = 512
# Spills that are left in the end: every shard reads a slice of each. Where a shard would read less than SLICE_BYTES of a
# spill, fewer are left: another merge takes less time than so many reads.
FEW_SPILLS, MOST_SPILLS = 64, 512
SLICE_BYTES = 64 << 10
# Records that are merged at a time: some tens of kilobytes of each spill.
MERGED_BYTES = 8 << 20
# Bytes of pieces that wait in memory for their groups; more are written to the disk.
HELD_BYTES = 16 << 20
# Parts of a row group of Parquet that one worker prepares, one after the other, because it decodes the group from its
# beginning: an eighth of the group, so that all workers have some, and at most so many.
RUNS_OF_GROUP, MOST_PARTS = 8, 8
# Inside the scratch folder: where the spills are that are left, and the rejected rows of all blocks.
SPILLS, REJECTED = "spills.json", "rejected-of-blocks"
# The kept table of a block has at most about this many times the bytes of its text. The whole cache is looked through again
# when what may have been added fills a quarter of the room that was left, or a 64th of the limit: so seldom that the work is
# linear in blocks.
_KEPT_OF_TEXT = 2


class Local:
    """The executor of this machine (pipelines.stages): a pool of processes ("": this one alone), and a scratch folder."""

    def __init__(self, pool_name: str, spool: str, *, joined_bytes: int = blocks.JOINED_BYTES) -> None:
        self._pool, self._folder, self._joined_bytes = pool_name, Path(spool), joined_bytes

    def source(self, name: str, step: Callable[..., Iterable[Any]], **singles: Any) -> Iterable[Any]:
        """Return what a step yields that is called once."""
        return step(**singles)

    def spread(self, name: str, elements: Iterable[Any], *, key: Any = None) -> Iterable[Any]:
        """Return the elements: the pool spreads them."""
        return elements

    def flat(
        self, name: str, step: Callable[..., Iterable[Any]], elements: Iterable[Any], **singles: Any
    ) -> Iterator[Any]:
        """Yield all that a step yields of each element, in this process."""
        return (made for element in elements for made in step(element, **singles))

    def each(
        self, name: str, step: Callable[..., Iterable[Any]], elements: Iterable[Any], **singles: Any
    ) -> Iterator[Any]:
        """Yield all that a step yields of each element, in their order; the pool does the work.

        The bytes of a group, which no other step reads, are removed from the disk when it is done.
        """
        work = functools.partial(_listed, functools.partial(step, **singles))
        elements, same = itertools.tee(elements)
        for made, element in zip(pool.each(self._pool, work, elements), same, strict=True):
            yield from made
            for path in {value.path for value in element[1] if isinstance(value, Piece) and value.path}:
                Path(path).unlink(missing_ok=True)

    def again(self, name: str) -> None:
        """Return None: this machine keeps what it tokenized, and all else takes less time than that."""

    def group(self, name: str, *collections: Iterable[tuple[int, Any]]) -> list[tuple[int, list[Any]]]:
        """Return for each number all its values, in order of the numbers; bytes that are many lie on the disk."""
        groups = _Groups(self._folder / name)
        for number, value in itertools.chain.from_iterable(collections):
            groups.add(number, value)
        return groups.all()

    def table(self, name: str, pairs: Iterable[tuple[int, Any]]) -> Mapping[int, list[Any]]:
        """Return the values of each number."""
        return collections.defaultdict(list, self.group(name, pairs))

    def together(self, name: str, *collections: Iterable[Any]) -> list[Any]:
        """Return the elements of several collections."""
        return list(itertools.chain.from_iterable(collections))

    def listed(self, name: str, elements: Iterable[Any]) -> list[Any]:
        """Return one list."""
        return list(elements)

    def sum(
        self, name: str, elements: Iterable[Any], *, zero: Callable[[], Any], add: Callable[[Any, Any], Any]
    ) -> Any:
        """Return all elements added up."""
        return functools.reduce(add, elements, zero())

    def one(self, name: str, step: Callable[..., Any], **singles: Any) -> Any:
        """Return what a step makes of values."""
        return step(**singles)

    def prepare(self, name: str, work: PrepareBlock, elements: Iterable[Any]) -> Prepared:
        """Return what a worker makes of each block and file; the spills are on the disk."""
        gathering, settings = Gathering(work, self._pool), work.job.settings
        if settings.dedup != "near":  # a sketch is of one file
            apart = {} if settings.splits else steps.staged_of(work.job).splits
            elements = blocks.joined(elements, apart=apart, size=self._joined_bytes)
        gathering.take_all(elements)
        rejected = sorted(gathering.rejected, key=lambda piece: piece.about)
        return Prepared(gathering, gathering.totals, gathering.hashed, rejected, gathering.sketches)

    def write(
        self,
        name: str,
        work: WriteShard,
        spills: "Gathering",
        *,
        specs: Sequence[ShardSpec],
        repeats: Sequence[Repeats] | None,
    ) -> tuple[ShardTotals, list[Piece]]:
        """Return the totals of the shards that were written from spills, and the rows that these left out."""
        spills.leave_few(shards=len(specs))
        written, left_out = ShardTotals(), list[Piece]()
        places, dropped = {spec.name: place for place, spec in enumerate(specs)}, _Groups(self._folder / "CutRepeats")
        for name, own in (cut for part in repeats or () for cut in steps.cut_repeats(part, specs=specs)):
            dropped.add(places[name], Piece(data=sketches.to_bytes(own.dropped)))
        of_shard = dict(dropped.all())
        elements = ((spec, of_shard.pop(place, [])) for place, spec in enumerate(specs))
        for shard in pool.each(self._pool, _WriteHere(work, str(self._folder)), elements):
            written.merge(shard.totals)
            path = left_out_path(self._folder, shard.spec.name)
            if path.exists():
                left_out.append(Piece((1, shard.spec.name, 0), path=str(path), size=path.stat().st_size))
        return written, left_out


def _listed(step: Callable[[Any], Iterable[Any]], element: Any) -> list[Any]:
    return list(step(element))


class _Groups:
    """Values by number. The bytes of pieces are written to files of their groups when there are many of them in all."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._held = folder, 0
        self._waiting = collections.defaultdict[int, list[Piece]](list)
        self._values = collections.defaultdict[int, list[Any]](list)

    def add(self, number: int, value: Any) -> None:
        """Take one more value."""
        if not (isinstance(value, Piece) and value.data):
            self._values[number].append(value)
            return
        self._waiting[number].append(value)
        self._held += len(value.data)
        if self._held > HELD_BYTES:
            for number, pieces in self._waiting.items():
                self._write(number, pieces)
            self._waiting.clear()
            self._held = 0

    def all(self) -> list[tuple[int, list[Any]]]:
        """Return each number with its values, in order of the numbers."""
        for number, pieces in self._waiting.items():
            self._values[number] += pieces
        return sorted(self._values.items(), key=lambda group: group[0])

    def _write(self, number: int, pieces: Sequence[Piece]) -> None:
        """Append pieces to the file of their group. What is said alike of neighbours is one piece."""
        path, own = self._folder / f"{number:08d}", self._values[number]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as file:
                for about, alike in itertools.groupby(pieces, key=operator.attrgetter("about")):
                    begin, data = file.tell(), b"".join([piece.data for piece in alike])
                    file.write(data)
                    last = own[-1] if own else None
                    if isinstance(last, Piece) and last.about == about and last.begin + last.size == begin:
                        own[-1] = dataclasses.replace(last, size=last.size + len(data))
                    else:
                        own.append(Piece(about, path=str(path), begin=begin, size=len(data)))
        except OSError as error:
            raise OutputError(atomic_files.explain(error, path)) from error


@dataclasses.dataclass(frozen=True)
class _WriteHere:
    """Write a shard from the spills that are left in a folder of this machine, which gets the rows that it left out too."""

    work: WriteShard
    spool: str

    def __call__(self, element: tuple[ShardSpec, Sequence[Piece]]) -> WrittenShard:
        """Return the written shard. Raises OutputError if the place cannot be written."""
        spec, pieces = element
        repeats = [Repeats(dropped) for piece in pieces for dropped in sketches.tables(piece.read())]
        written = self.work(spec, spills.load(Path(self.spool) / SPILLS), repeats)
        if written.totals.duplicates:
            place = left_out_path(Path(self.spool), spec.name)
            with atomic_files.scratch(place) as temporary, open(temporary, "wb") as file:
                file.writelines(written.rejected)
        return written._replace(rejected=())


def left_out_path(spool: Path, shard: str) -> Path:
    """Return where the rows that a shard left out are written."""
    return spool / "left-out" / f"{shard}.jsonl"


@dataclasses.dataclass(frozen=True)
class MergeSpills:
    """Spills that are to be merged into one file, the `level`-th time that their records are copied."""

    level: int
    path: str
    spilled: tuple[Spill, ...]


class MergedSpill(NamedTuple):
    """A merged spill, and what it was merged from, which is needed no more."""

    merge: MergeSpills
    spill: Spill


@dataclasses.dataclass(frozen=True)
class SortBlock:
    """Do in a worker what Gathering asks for: prepare some blocks or hash a file, or merge spills."""

    work: PrepareBlock

    def __call__(self, element: Any) -> list[SortedBlock | Hashed | MergedSpill]:
        """Return the result of each of some elements, or of a merge. Raises SourceError, OutputError."""
        if isinstance(element, MergeSpills):
            return [MergedSpill(element, spills.merge(element.spilled, element.path, range_bytes=MERGED_BYTES))]
        return [self.work(one) for one in element]


def in_runs(elements: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield all elements in order, in lists for one worker each: some parts of one row group, or any other element alone."""
    for group, some in itertools.groupby(elements, key=_row_group):
        if group is None:
            yield from ([element] for element in some)
            continue
        parts = list(some)
        most = max(1, min(len(parts) // RUNS_OF_GROUP, MOST_PARTS))
        yield from (parts[begin : begin + most] for begin in range(0, len(parts), most))


def _row_group(element: Any) -> Any:
    """Return the row group that a block is a part of, None for any other element."""
    is_part = isinstance(element, Block) and element.format.kind == "parquet"
    return (element.file, element.begin) if is_part else None


class Gathering:
    """Take the elements of a preparation, and leave few spills on the disk, whatever the corpus, and what blocks leave besides."""

    def __init__(self, work: PrepareBlock, pool_name: str) -> None:
        self._work, self._window = work, pool.window(pool_name, SortBlock(work))
        self._folder, self._fan_in = Path(work.spool), FAN_IN
        self._levels: dict[int, list[Spill]] = {}
        self._merges = self._rejected_bytes = 0
        self.totals, self.hashed, self.sketches = BlockTotals(), list[Hashed](), list[Sketch]()
        # Rejected rows lie in one file. Those of consecutive blocks of a file are one piece.
        self.rejected: list[Piece] = []

    def take_all(self, elements: Iterable[Any]) -> None:
        """Prepare all elements, and merge their spills where these are many. Raises T5prepError."""
        for run in in_runs(self._unhashed(elements)):
            self._put(run)
        self._drain()

    def _unhashed(self, elements: Iterable[Any]) -> Iterator[Any]:
        """Yield the elements that are work; files that are hashed already are taken at once."""
        for element in elements:
            if isinstance(element, Hashed):
                self.hashed.append(element)
            else:
                yield element

    def leave_few(self, *, shards: int) -> None:
        """Merge spills until so few are left as so many shards read best, and note in the folder which these are."""
        size = sum(spill.bytes for level in self._levels.values() for spill in level)
        most = most_spills(size, shards=shards, fan_in=self._fan_in)
        while len(spilled := sorted((spill for level in self._levels.values() for spill in level), key=_size)) > most:
            smallest = spilled[: min(self._fan_in, len(spilled) - most + 1)]
            self._levels = {0: spilled[len(smallest) :]}
            self._merge(-1, smallest)
            self._drain()
        spills.save(self._folder / SPILLS, spilled)

    def _put(self, element: Any) -> None:
        for result in itertools.chain.from_iterable(self._window.put(element)):
            self._take(result)

    def _drain(self) -> None:
        for result in itertools.chain.from_iterable(self._window.drain()):
            self._take(result)

    def _take(self, result: SortedBlock | Hashed | MergedSpill) -> None:
        if isinstance(result, SortedBlock):
            self.totals.merge(result.totals)
            self._reject(result)
            if result.sketch:
                self.sketches.append(result.sketch)
            self._add(0, result.spill)
        elif isinstance(result, MergedSpill):
            for spill in result.merge.spilled:
                Path(spill.path).unlink(missing_ok=True)
            self._add(result.merge.level, result.spill)
        else:
            self.hashed.append(result)

    def _add(self, level: int, spill: Spill) -> None:
        spilled = self._levels.setdefault(level, [])
        spilled.append(spill)
        if len(spilled) >= self._fan_in:
            self._levels[level] = []
            self._merge(level + 1, spilled)

    def _merge(self, level: int, spilled: Sequence[Spill]) -> None:
        self._merges += 1
        self._put(MergeSpills(level, str(self._folder / f"merged-{self._merges:08d}"), tuple(spilled)))

    def _reject(self, block: SortedBlock) -> None:
        """Append the rows that a block rejected to the file of all of them."""
        if not block.rejected:
            return
        path, begin, size = self._folder / REJECTED, self._rejected_bytes, len(block.rejected)
        try:
            with open(path, "ab" if begin else "wb") as file:
                file.write(block.rejected)
        except OSError as error:
            raise OutputError(atomic_files.explain(error, path)) from error
        self._rejected_bytes += size
        last = self.rejected[-1] if self.rejected else None
        if last and last.about[1] == block.file and last.about[2] < block.first_row:
            self.rejected[-1] = dataclasses.replace(last, size=last.size + size)
        else:
            self.rejected.append(Piece((0, block.file, block.first_row), path=str(path), begin=begin, size=size))


def most_spills(size: int, *, shards: int, fan_in: int = FAN_IN) -> int:
    """Return how many spills may be left of a number of bytes of records in all, of which each shard reads its slices.

    >>> most_spills(0, shards=4), most_spills(1 << 40, shards=4), most_spills(1 << 30, shards=1 << 14)
    (64, 512, 64)
    """
    return min(fan_in, MOST_SPILLS, max(FEW_SPILLS, size // (max(shards, 1) * SLICE_BYTES)))


def _size(spill: Spill) -> int:
    return spill.bytes


class LocalProgress:
    """Take each element and its result, in the process that runs the pipeline."""

    def __init__(self, work: PrepareBlock, *, total: int) -> None:
        self._progress = Progress("preparing", total=total)
        self._kept = Path(work.kept) if work.kept else None
        self._limit = store.limit()
        self._began = time.time()
        self._blocks = self._found = self._bytes_found = self._placed = 0
        self._writing: Progress | None = None
        self._room, self._since = math.inf, 0
        self._bound()

    def __call__(self, element: Any, result: Any) -> None:
        """Count an element that is done: some blocks, or a shard."""
        if isinstance(result, WrittenShard):
            self._written(result)
        elif isinstance(element, list):
            for one, made in zip(element, result, strict=True):
                self._prepared(one, made)

    def _prepared(self, element: Any, result: Any) -> None:
        if not isinstance(result, SortedBlock):
            return
        self._progress.add(bytes=round(element.size * element.packing), rows=element.rows)
        self._placed += sum(result.totals.record_bytes.values())
        self._blocks += 1
        self._found += result.found
        self._bytes_found += element.size if result.found else 0
        self._since += element.size
        if _KEPT_OF_TEXT * self._since >= max(self._room / 4, self._limit / 64):
            self._bound()

    def close(self) -> None:
        """Print how many blocks were found in the token cache, where any was."""
        (self._writing or self._progress).close()
        self._bound()
        if self._found:
            print(
                f"{self._found:,} of {self._blocks:,} blocks ({self._bytes_found / 1e6:,.1f} MB) equal what was tokenized "
                "before, by this run or an earlier one; --fresh tokenizes them anew",
                file=sys.stderr,
            )

    def _written(self, written: WrittenShard) -> None:
        """Show a written shard on a line of its own. Its time begins after the first shard, when all is read."""
        if self._writing is None:
            self._progress.close()
            self._writing = Progress("writing shards", total=self._placed - written.spec.bytes)
        else:
            self._writing.add(bytes=written.spec.bytes, rows=written.shard.records)

    def _bound(self) -> None:
        if self._kept:
            self._room = token_cache.bound(self._kept, limit=self._limit, began=self._began)
        self._since = 0

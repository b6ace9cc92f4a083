"""Execute the stages of a preparation on this machine: workers process elements, and this process passes results on in order.

Each result goes to the stages that read it as soon as it arrives. An element waits only for values that its stage
still lacks. This module does not import Beam, whose import takes longer than preparing a small corpus.
"""

import collections
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pipelines import flow, pool
from pipelines.pieces import Piece
from pipelines.steps import PrepareBlock
from t5prep.io import atomic_files, store
from t5prep.io.progress import Progress
from t5prep.preparation import token_cache
from t5prep.preparation.shards import ShardSpec, ShardTotals
from t5prep.preparation.sort_blocks import BlockTotals
from t5prep.reading.blocks import Block

In = TypeVar("In")
Out = TypeVar("Out")

# Bytes of pieces that wait in memory for their groups. Above this limit they are written to disk.
HELD_BYTES = 16 << 20
# A cached table takes at most about this many times the bytes of its block's text. The cache is trimmed when the
# bytes that may have been added since fill a quarter of the free room, but at least a 64th of the limit. More
# frequent trims made the cost quadratic in the number of blocks.
_KEPT_OF_TEXT = 2


class Local:
    """The executor of this machine: `workers`, or this process if they are None, and the scratch folder `spool`.

    `progress` is called with each element that a worker finished, and its results.
    """

    def __init__(self, workers: pool.Pool | None, spool: str, progress: "LocalProgress | None" = None) -> None:
        self._window: pool.Window[object, list[object]] | pool.InlineWindow[object, list[object]]
        self._window = pool.Window(workers) if workers else pool.InlineWindow()
        self._folder, self._progress = Path(spool), progress
        # Elements at the workers, in order of submission, with their stages.
        self._under_way = collections.deque[tuple[flow.Map[object, object], object]]()
        self._readers = collections.defaultdict[flow.Stage[object], list[flow.Stage[object]]](list)
        # For each stage: its value, its partial result (groups, a list or a sum), and elements that wait for the values of
        # the stage.
        self._values = dict[flow.Stage[object], object]()
        self._groups, self._waiting = dict[flow.Stage[object], _Groups](), dict[flow.Stage[object], _Groups]()
        self._lists, self._sums = dict[flow.Stage[object], list[object]](), dict[flow.Stage[object], object]()

    def run(self, stages: Sequence[flow.Stage[object]]) -> object:
        """Execute the stages and return the value of the last one. Each stage must follow the stages that it reads."""
        read_in_order = set[flow.Stage[object]]()
        for stage in stages:
            for source in stage.elements:
                self._readers[source].append(stage)
            if isinstance(stage, flow.MapInOrder):
                read_in_order.update(_inputs_of(stage))
            elif isinstance(stage, flow.GroupByKey | flow.ToTable):
                self._groups[stage] = _Groups(self._folder / stage.name)
            elif isinstance(stage, flow.Combine):
                self._sums[stage] = stage.zero()
            else:
                self._lists[stage] = []
            self._waiting[stage] = _Groups(self._folder / f"for-{stage.name}")
        for stage in stages:
            # A MapInOrder pulls the elements of its sources itself (`_read`).
            if stage not in read_in_order:
                self._finish(stage)
        return self._values[stages[-1]]

    def _put(self, source: flow.Stage[object], element: object) -> None:
        """Pass an element of the stage `source` to each stage that reads it, or let the element wait for missing values."""
        for stage in self._readers[source]:
            if all(value in self._values for value in stage.values.values()):
                self._take(stage, element)
            else:
                self._waiting[stage].add(0, element)

    def _take(self, stage: flow.Stage[object], element: object) -> None:
        """Process an element in a stage."""
        match stage:
            case flow.Map(workers=True):
                # Before `put`, which may yield the result of this element at once.
                self._under_way.append((stage, element))
                self._hand_on(self._window.put(functools.partial(_listed, self._bind(stage.step, stage)), element))
            case flow.Map():
                for result in self._bind(stage.step, stage)(element):
                    self._put(stage, result)
            case flow.Filter():
                if isinstance(element, stage.type):
                    self._put(stage, element)
            case flow.Reshuffle():
                self._put(stage, element)
            case flow.GroupByKey() | flow.ToTable():
                assert isinstance(element, tuple)
                self._groups[stage].add(*element)
            case flow.Combine():
                self._sums[stage] = stage.add(self._sums[stage], element)
            case _:
                self._lists[stage].append(element)
                if isinstance(stage, flow.Batch) and len(self._lists[stage]) == stage.size:
                    self._put_batch(stage)

    def _finish(self, stage: flow.Stage[object]) -> None:
        """Finish a stage when its inputs are exhausted: process its waiting elements, then yield or set its results."""
        for _, elements in self._waiting.pop(stage).all():
            for element in elements:
                self._take(stage, element)
        match stage:
            case flow.Create() | flow.MapInOrder():
                for element in self._read(stage):
                    self._put(stage, element)
            case flow.Map():
                self._hand_on(self._window.drain())
            case flow.Batch():
                self._put_batch(stage)
            case flow.GroupByKey():
                for group in self._groups.pop(stage).all():
                    self._put(stage, group)
            case flow.ToTable():
                self._values[stage] = collections.defaultdict(list, self._groups.pop(stage).all())
            case flow.Combine():
                self._values[stage] = self._sums.pop(stage)
            case flow.ToList():
                self._values[stage] = self._lists.pop(stage)
            case flow.Call():
                self._values[stage] = self._bind(stage.step, stage)()

    def _hand_on(self, results: Iterable[list[object]]) -> None:
        """Pass the results of workers to the stages that read them, and let the worker's stage remove files that are used up."""
        for listed in results:
            stage, element = self._under_way.popleft()
            if self._progress:
                self._progress(element, listed)
            for result in listed:
                self._put(stage, result)
            stage.remove(element, listed)

    def _put_batch(self, stage: flow.Batch[object]) -> None:
        """Pass the gathered elements on as one batch, if there are any."""
        batch, self._lists[stage] = self._lists[stage], []
        if batch:
            self._put(stage, batch)

    def _read(self, stage: flow.Stage[object]) -> Iterator[object]:
        """Yield the elements of a stage one by one, and compute its inputs only as they are needed."""
        match stage:
            case flow.Create():
                yield from self._bind(stage.step, stage)()
            case _:
                elements = (element for source in stage.elements for element in self._read(source))
                if isinstance(stage, flow.MapInOrder):
                    yield from stage.step(elements)
                else:
                    for element in elements:
                        yield from self._bind(stage.step, stage)(element) if isinstance(stage, flow.Map) else [element]

    def _bind(self, step: Callable[..., Out], stage: flow.Stage[object]) -> Callable[..., Out]:
        """Return the step of a stage with its values as arguments."""
        return functools.partial(step, **{name: self._values[value] for name, value in stage.values.items()})


def _listed(step: Callable[[In], Iterable[Out]], element: In) -> list[Out]:
    """Return the results of a step as a list, because a generator cannot be sent from a worker."""
    return list(step(element))


def _inputs_of(stage: flow.Stage[object]) -> Iterator[flow.Stage[object]]:
    """Yield all direct and indirect inputs of a stage."""
    for source in stage.elements:
        yield source
        yield from _inputs_of(source)


class _Groups:
    """Items grouped by key. Above HELD_BYTES in all, the bytes of pieces are written to one file for each group."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._held = folder, 0
        self._waiting = collections.defaultdict[int | str, list[Piece]](list)
        self._items = collections.defaultdict[int | str, list[object]](list)

    def add(self, key: int | str, item: object) -> None:
        """Add an item to its group."""
        if not (isinstance(item, Piece) and item.data):
            self._items[key].append(item)
            return
        self._waiting[key].append(item)
        self._held += len(item.data)
        if self._held > HELD_BYTES:
            for key, pieces in self._waiting.items():
                self._write(key, pieces)
            self._waiting.clear()
            self._held = 0

    def all(self) -> list[tuple[int | str, list[object]]]:
        """Return (key, items) for each key, sorted by key."""
        for key, pieces in self._waiting.items():
            self._items[key] += pieces
        self._waiting.clear()
        return sorted(self._items.items(), key=lambda group: group[0])

    def _write(self, key: int | str, pieces: Sequence[Piece]) -> None:
        """Append pieces to the file of their group. Adjacent pieces of the same rows, or of subsequent rows, become one piece."""
        path, values = self._folder / str(key), self._items[key]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as file:
                for piece in pieces:
                    last, begin = values[-1] if values else None, file.tell()
                    file.write(piece.data)
                    if isinstance(last, Piece) and last.begin + last.size == begin and last.is_before(piece):
                        values[-1] = dataclasses.replace(last, size=last.size + len(piece.data))
                    else:
                        values.append(Piece(piece.about, path=str(path), begin=begin, size=len(piece.data)))
        except OSError as error:
            raise atomic_files.write_error(error, path) from error


class LocalProgress:
    """Show the progress of a run: this object is called with each finished element and its results.

    It also trims the token cache while blocks are added to it. `total` is the bytes of the source, 0 if they are
    unknown.
    """

    def __init__(self, work: PrepareBlock, *, total: int) -> None:
        self._progress = Progress("preparing", total=total)
        self._cache_folder = Path(work.cache_folder) if work.cache_folder else None
        self._limit = store.limit()
        self._began = time.time()
        self._blocks = self._found = self._bytes_found = self._placed = 0
        self._writing: Progress | None = None
        self._room, self._since = math.inf, 0
        self._bound()

    def __call__(self, element: object, results: Sequence[object]) -> None:
        """Count a finished element: a list of blocks, or a shard."""
        if isinstance(element, list):
            block_totals = [part for part in results if isinstance(part, BlockTotals)]
            for block, totals in zip((part for part in element if isinstance(part, Block)), block_totals, strict=True):
                self._prepared(block, totals)
        for result in results:
            if isinstance(result, ShardTotals):
                assert isinstance(element, tuple)
                self._written(next(item for item in element[1] if isinstance(item, ShardSpec)), result)

    def _prepared(self, block: Block, totals: BlockTotals) -> None:
        """Count a prepared block, and trim the token cache if it may have grown much."""
        self._progress.add(bytes=round(block.size * block.packing), rows=block.rows)
        self._placed += sum(totals.record_bytes.values())
        self._blocks += 1
        self._found += totals.cached_blocks
        self._bytes_found += block.size if totals.cached_blocks else 0
        self._since += block.size
        if _KEPT_OF_TEXT * self._since >= max(self._room / 4, self._limit / 64):
            self._bound()

    def close(self) -> None:
        """Finish the progress bar, and print how many blocks came from the token cache."""
        (self._writing or self._progress).close()
        self._bound()
        if self._found:
            print(
                f"Reused the cached tokens of {self._found:,} of {self._blocks:,} blocks ({self._bytes_found / 1e6:,.1f} MB). "
                "To tokenize them again, add --fresh.",
                file=sys.stderr,
            )

    def _written(self, spec: ShardSpec, totals: ShardTotals) -> None:
        """Show a written shard on the second progress bar. Its time begins after the first shard, when all blocks are prepared."""
        if self._writing is None:
            self._progress.close()
            self._writing = Progress("writing shards", total=self._placed - spec.bytes)
        else:
            self._writing.add(bytes=spec.bytes, rows=sum(split.counts.records for split in totals.splits.values()))

    def _bound(self) -> None:
        """Trim the token cache to its limit, and remember the room that is left."""
        if self._cache_folder:
            self._room = token_cache.bound(self._cache_folder, limit=self._limit, began=self._began)
        self._since = 0

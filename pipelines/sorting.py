"""Bring the rows of blocks to the shards that they belong to, on one disk, or where workers share none.

On one disk the spills of blocks are merged as soon as there are many, and each shard reads its slice of the few that are left: a
record is copied once more each time that there are FAN_IN times as many blocks, and once in the end, so the work is about linear
in bytes, and memory does not depend on the corpus. Elsewhere merged spills are cut into ranges of positions, and these into
shards (t5prep.preparation.shards).
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines import pieces
from pipelines.pieces import Stored
from t5prep.io import atomic_files
from t5prep.preparation import shards, spills
from t5prep.preparation.shards import MergePlan, ShardSpec
from t5prep.preparation.spills import Spill

# Spills that are merged into one: a range is read from each. In so many rounds there are so few left of any corpus.
FAN_IN, ROUNDS = 512, 3
# Spills that are left in the end: every shard reads a slice of each. Where a shard would read less than SLICE_BYTES of a
# spill, fewer are left: another merge takes less time than so many reads.
FEW_SPILLS, MOST_SPILLS = 64, 512
SLICE_BYTES = 64 << 10
# Records that are merged at a time: some tens of kilobytes of each spill.
MERGED_BYTES = 8 << 20
# Bytes of one shard that are held in memory; more are written to the worker's own disk.
HELD_BYTES = 256 << 20

# On one disk.


def merge_batch(batch: Sequence[Spill], *, folder: str, fan_in: int) -> Iterator[Spill]:
    """Yield the spill that a full batch is merged into, or the spills of a smaller one as they are. Raises OutputError."""
    yield from [_merged(batch, folder)] if len(batch) == fan_in else batch


def leave_few(spilled: Sequence[Spill], *, specs: Sequence[ShardSpec], folder: str, fan_in: int) -> Iterator[Spill]:
    """Yield so few spills as the shards read best: the smallest are merged. Raises OutputError."""
    remaining = sorted(spilled, key=lambda spill: spill.bytes)
    max_spills = most_spills(sum(spill.bytes for spill in spilled), shards=len(specs), fan_in=fan_in)
    while len(remaining) > max_spills:
        smallest = remaining[: min(fan_in, len(remaining) - max_spills + 1)]
        remaining = sorted([*remaining[len(smallest) :], _merged(smallest, folder)], key=lambda spill: spill.bytes)
        remove_merged(smallest, spilled)  # those that were merged here
    yield from remaining


def remove_merged(batch: Iterable[Spill], remaining: Iterable[Spill]) -> None:
    """Remove the files of a batch of spills but of those that are left."""
    for path in {spill.path for spill in batch} - {spill.path for spill in remaining}:
        Path(path).unlink(missing_ok=True)


def _merged(batch: Sequence[Spill], folder: str) -> Spill:
    name = hashlib.blake2b(repr([spill.path for spill in batch]).encode(), digest_size=12).hexdigest()
    return spills.merge(batch, str(Path(folder) / f"merged-{name}"), range_bytes=MERGED_BYTES)


def most_spills(size: int, *, shards: int, fan_in: int = FAN_IN) -> int:
    """Return how many spills may be left of a number of bytes of records in all, of which each shard reads its slices.

    >>> most_spills(0, shards=4), most_spills(1 << 40, shards=4), most_spills(1 << 30, shards=1 << 14)
    (64, 512, 64)
    """
    return min(fan_in, MOST_SPILLS, max(FEW_SPILLS, size // (max(shards, 1) * SLICE_BYTES)))


# Where workers share no disk.


def number_batch(rows: Stored[Spill], *, batches: int) -> Iterator[tuple[int, Stored[Spill]]]:
    """Yield the rows of a block under the number of the batch in which they are merged with those of others."""
    yield zlib.crc32(rows.path.rpartition("/")[2].encode()) % batches, rows


def merge_blocks(group: tuple[int, Iterable[Any]], *, plan: MergePlan) -> Iterator[tuple[int, Spill]]:
    """Yield what the blocks of a batch have of each range of positions, merged, under the number of the range."""
    number, blocks = group

    def cut(spill: Spill) -> Iterator[tuple[int, Spill]]:
        for position_range, piece in shards.cut_ranges(spill, plan.groups):
            yield position_range * plan.lanes + number % plan.lanes, piece

    yield from _merge(blocks, cut, size=shards.LARGEST_BATCH)


def cut_shards(
    group: tuple[int, Iterable[Any]], *, specs: Sequence[ShardSpec], plan: MergePlan
) -> Iterator[tuple[str, Spill]]:
    """Yield what has come together in one range of positions, merged, under the names of its shards."""
    cut = functools.partial(shards.cut_shards, shards=shards.of_splits(specs))
    yield from _merge(group[1], cut, size=shards.recut_bytes(len(specs), groups=plan.groups))


def _merge(
    stored: Iterable[Stored[Spill]], cut: Callable[[Spill], Iterable[tuple[Any, Spill]]], *, size: int
) -> Iterator[tuple[Any, Spill]]:
    """Merge rows, about `size` bytes at a time, and yield them cut. Whoever comes first, it is the same."""
    for batch in _batches(sorted(stored, key=lambda rows: (rows.path, rows.begin)), size):
        yield from cut(spills.merged_in_memory(pieces.read_all(batch)))


def _batches(stored: Iterable[Stored[Spill]], size: int) -> Iterator[list[Stored[Spill]]]:
    batch, batch_bytes = list[Stored[Spill]](), 0
    for rows in stored:
        batch.append(rows)
        batch_bytes += rows.size
        if batch_bytes >= size:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch


@contextlib.contextmanager
def load_parts(parts: Sequence[Stored[Spill]]) -> Iterator[list[Spill]]:
    """Yield the spills of a shard's parts: in memory, and on this worker's disk what is more than HELD_BYTES."""
    with contextlib.ExitStack() as until_exit:
        written, waiting, size = list[Spill](), list[Spill](), 0
        for piece in itertools.chain.from_iterable(map(pieces.read_all, _batches(parts, shards.LARGEST_BATCH))):
            waiting.append(piece)
            size += len(piece.data)
            if size > HELD_BYTES:
                folder = until_exit.enter_context(atomic_files.temporary_folder())
                merged, path = spills.merged_in_memory(waiting), Path(folder) / "rows"
                path.write_bytes(merged.data)
                written.append(dataclasses.replace(merged, data=b"", path=str(path)))
                waiting, size = [], 0
        yield [*written, *waiting]

"""Merge the sorted rows of blocks, so that each shard finds its rows, on one disk or where workers share none.

On one disk, spills of blocks are merged as soon as there are many, and each shard reads its slice of the few
remaining spills. A record is copied once for each factor of FAN_IN in the number of blocks, and once more into its
shard. So the work is about linear in bytes, and memory does not depend on the corpus. Elsewhere, merged spills are
cut into ranges of positions, and ranges into shards (t5prep.preparation.shards).
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pipelines import pieces
from pipelines.pieces import Stored
from t5prep.io import atomic_files
from t5prep.preparation import shards, spills
from t5prep.preparation.shards import MergePlan, ShardSpec
from t5prep.preparation.spills import Spill

Key = TypeVar("Key")

# Number of spills that are merged into one, with one buffer for each. Three rounds reduce any realistic corpus to few
# spills: 512³ blocks of 2 MiB are 280 TB.
FAN_IN, ROUNDS = 512, 3
# Number of spills that remain, of which every shard reads a slice. If a slice were smaller than SLICE_BYTES, fewer
# remain, because so many small reads take longer than another merge. See docs/decisions/025-leave-many-spills.md
FEW_SPILLS, MOST_SPILLS = 64, 512
SLICE_BYTES = 64 << 10
# Bytes of records that are merged at a time: some tens of kilobytes of each spill.
MERGED_BYTES = 8 << 20
# Bytes of one shard that stay in memory; more are written to the worker's own disk.
HELD_BYTES = 256 << 20

# Functions for workers that share one disk.


def merge_batch(batch: Sequence[Spill], *, folder: str, fan_in: int) -> Iterator[Spill]:
    """Yield the merged spill of a batch of `fan_in` spills, or a smaller batch unchanged. Raises OutputError."""
    yield from [_merged(batch, folder)] if len(batch) == fan_in else batch


def leave_few(spilled: Sequence[Spill], *, specs: Sequence[ShardSpec], folder: str, fan_in: int) -> Iterator[Spill]:
    """Yield at most `most_spills` spills, by merging the smallest of `spilled`. Raises OutputError."""
    remaining = sorted(spilled, key=lambda spill: spill.bytes)
    max_spills = most_spills(sum(spill.bytes for spill in spilled), shards=len(specs), fan_in=fan_in)
    while len(remaining) > max_spills:
        smallest = remaining[: min(fan_in, len(remaining) - max_spills + 1)]
        remaining = sorted([*remaining[len(smallest) :], _merged(smallest, folder)], key=lambda spill: spill.bytes)
        remove_merged(smallest, spilled)  # keeps `spilled`, which `Map.remove` removes
    yield from remaining


def remove_merged(batch: Iterable[Spill], remaining: Iterable[Spill]) -> None:
    """Remove the files of the spills in `batch` that are not in `remaining`."""
    for path in {spill.path for spill in batch} - {spill.path for spill in remaining}:
        Path(path).unlink(missing_ok=True)


def _merged(batch: Sequence[Spill], folder: str) -> Spill:
    """Merge spills into a file whose name is a digest of their paths, so that a repeated merge overwrites it."""
    name = hashlib.blake2b(repr([spill.path for spill in batch]).encode(), digest_size=12).hexdigest()
    return spills.merge(batch, str(Path(folder) / f"merged-{name}"), range_bytes=MERGED_BYTES)


def most_spills(size: int, *, shards: int, fan_in: int = FAN_IN) -> int:
    """Return how many spills may remain, if they have `size` bytes in all and each of `shards` reads its slice of each.

    >>> most_spills(0, shards=4), most_spills(1 << 40, shards=4), most_spills(1 << 30, shards=1 << 14)
    (64, 512, 64)
    """
    return min(fan_in, MOST_SPILLS, max(FEW_SPILLS, size // (max(shards, 1) * SLICE_BYTES)))


# Functions for workers that share no disk.


def number_batch(rows: Stored[Spill], *, batches: int) -> Iterator[tuple[int, Stored[Spill]]]:
    """Yield the rows of a block with the number of the batch in which they are merged with those of other blocks."""
    # A hash of the file's name, not a counter: any worker computes the same batch, also when the job is resubmitted.
    yield zlib.crc32(rows.path.rpartition("/")[2].encode()) % batches, rows


def merge_blocks(group: tuple[int, Iterable[Stored[Spill]]], *, plan: MergePlan) -> Iterator[tuple[int, Spill]]:
    """Merge the blocks of a batch, and yield their rows in each range of positions, with the number of the range."""
    number, blocks = group

    def cut(spill: Spill) -> Iterator[tuple[int, Spill]]:
        for position_range, piece in shards.cut_ranges(spill, plan.groups):
            yield position_range * plan.lanes + number % plan.lanes, piece

    yield from _merge(blocks, cut, size=shards.LARGEST_BATCH)


def cut_shards(
    group: tuple[int, Iterable[Stored[Spill]]], *, specs: Sequence[ShardSpec], plan: MergePlan
) -> Iterator[tuple[str, Spill]]:
    """Merge the rows of one range of positions, and yield them with the names of their shards."""
    cut = functools.partial(shards.cut_shards, shards=shards.of_splits(specs))
    yield from _merge(group[1], cut, size=shards.recut_bytes(len(specs), groups=plan.groups))


def _merge(
    stored: Iterable[Stored[Spill]], cut: Callable[[Spill], Iterable[tuple[Key, Spill]]], *, size: int
) -> Iterator[tuple[Key, Spill]]:
    """Yield the results of `cut` on merged rows, about `size` bytes at a time. The order of arrival has no influence."""
    for batch in _batches(sorted(stored, key=lambda rows: (rows.path, rows.begin)), size):
        yield from cut(spills.merged_in_memory(pieces.read_all(batch)))


def _batches(stored: Iterable[Stored[Spill]], size: int) -> Iterator[list[Stored[Spill]]]:
    """Yield the stored spills in lists of at least `size` bytes; the last list has the rest."""
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
    """Yield the spills of a shard's parts: in memory up to HELD_BYTES, the others on this worker's disk."""
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

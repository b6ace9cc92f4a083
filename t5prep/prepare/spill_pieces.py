"""Cut spills for the workers of an engine, so that what travels as one element is neither tiny nor huge.

A block of 2 MiB has less than one record for each of ten thousand shards. So records travel twice: the spills of several
blocks, merged, are cut into at most GROUPS ranges of positions, each piece at least PIECE_BYTES; and what has come
together in one range is merged again and cut into the shards of that range.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5prep.prepare import placement
from t5prep.prepare.shards import ShardSpec
from t5prep.prepare.spills import ENTRY, Spill

GROUPS = 256
PIECE_BYTES = 256 << 10
# Records of the first cut that one worker merges at a time, and of the second.
LARGEST_BATCH = 64 << 20
LARGEST_GROUP = 256 << 20
SMALLEST_BATCH = 4 << 20
# A spill has at most about three bytes for one of its text: where rows are short, most of it is the index.
BYTES_OUT = 3
# A piece is at most about so large: Flink sorts an element only if it fits into a buffer of a few megabytes.
LARGEST_PIECE = 512 << 10


class ShufflePlan(NamedTuple):
    """The numbers of ranges and lanes: blocks of one lane come together, so that no range is more than a worker holds."""

    groups: int = 1
    lanes: int = 1

    @property
    def batch_bytes(self) -> int:
        """Return how many bytes of records are merged before the first cut."""
        return max(SMALLEST_BATCH, min(LARGEST_BATCH, self.groups * PIECE_BYTES))


def for_source(source_bytes: int) -> ShufflePlan:
    """Return the plan for a source of so many bytes.

    >>> for_source(1_000_000), for_source(10**9), for_source(10**12)
    (ShufflePlan(groups=1, lanes=1), ShufflePlan(groups=32, lanes=1), ShufflePlan(groups=256, lanes=44))
    """
    size = BYTES_OUT * source_bytes
    groups = min(GROUPS, 1 << max(0, (size // LARGEST_BATCH).bit_length() - 1))
    return ShufflePlan(groups, max(1, -(-size // (groups * LARGEST_GROUP))))


def recut_bytes(shards: int, *, groups: int) -> int:
    """Return how many bytes of one range are merged before they are cut into the shards of that range.

    >>> [recut_bytes(shards, groups=256) >> 20 for shards in (256, 8192, 131072)]
    [4, 16, 256]
    """
    return max(SMALLEST_BATCH, min(LARGEST_GROUP, -(-shards // groups) * 2 * PIECE_BYTES))


def cut_ranges(spill: Spill, ranges: int) -> Iterator[tuple[int, Spill]]:
    """Yield the number of each of so many equal ranges of positions that a spill has records in, and these records."""
    for split in spill.splits:
        yield from _cut(spill, split, ranges)


def cut_shards(spill: Spill, shards: Mapping[str, Sequence[ShardSpec]]) -> Iterator[tuple[str, Spill]]:
    """Yield the name of each shard that a spill has records for, and these records; `shards` are those of each split in order.

    Pieces of the splits that a shard must not share ids with hold positions only.
    """
    for split, own in shards.items():
        for name in (split, *own[0].before):
            if name in spill.splits:
                for number, piece in _cut(spill, name, len(own), bare=name != split):
                    yield own[number].name, piece


def _cut(spill: Spill, split: str, ranges: int, *, bare: bool = False) -> Iterator[tuple[int, Spill]]:
    """Yield the number of each range of a split that a spill has records in, and these, without their bytes where `bare`.

    The records of a range may come in several pieces, in order.
    """
    entries = np.frombuffer(spill.data, ENTRY, spill.records)
    records = memoryview(spill.data)[spill.records * ENTRY.itemsize :]
    first, last = spill.splits[split]
    inner = np.searchsorted(entries["high"][first:last], np.array(placement.shard_edges(ranges)[1:-1], np.uint64))
    bounds = [first, *(inner + first).tolist(), last]
    for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
        sizes = np.full(end - begin, ENTRY.itemsize, np.int64)
        if not bare:
            sizes += entries["size"][begin:end]
        for a, b in itertools.pairwise([begin, *(_full(sizes) + begin).tolist(), end]):
            if a < b:
                yield number, _piece(entries[a:b].copy(), records, split, bare=bare)


def _piece(picked: np.ndarray, records: memoryview, split: str, *, bare: bool) -> Spill:
    """Return a spill of these entries alone."""
    data = b""
    if bare:
        picked["begin"] = picked["size"] = 0
    else:
        origin = int(picked["begin"][0])
        data = bytes(records[origin : int(picked["begin"][-1]) + int(picked["size"][-1])])
        picked["begin"] -= np.uint64(origin)
    return Spill(len(picked), {split: (0, len(picked))}, {split: len(data)}, data=picked.tobytes() + data)


def _full(sizes: np.ndarray) -> np.ndarray:
    """Return where a new piece begins, so that each has about LARGEST_PIECE bytes at most.

    >>> _full(np.full(5, LARGEST_PIECE // 2)).tolist()
    [2, 4]
    """
    return np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // LARGEST_PIECE)) + 1

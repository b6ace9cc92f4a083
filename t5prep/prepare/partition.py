"""Cut a sorted run into ranges of positions, and into the pieces that shards need, for a runner's own shuffle."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from t5prep.prepare import placement
from t5prep.prepare.shard_writer import ShardSpec
from t5prep.prepare.sorted_runs import INDEX_ENTRY, Run

# A piece is at most about so large: Flink sorts an element only if it fits into a buffer of a few megabytes.
LARGEST_PIECE = 512 << 10


def cut_ranges(run: Run, ranges: int) -> Iterator[tuple[int, Run]]:
    """Yield the number of each of so many equal ranges of positions that a run has records in, and these records."""
    for split in run.splits:
        yield from _cut(run, split, ranges)


def cut_shards(run: Run, shards: Mapping[str, Sequence[ShardSpec]]) -> Iterator[tuple[str, Run]]:
    """Yield the name of each shard that a run has records for, and these records; `shards` are those of each split in order.

    Pieces of the splits that a shard must not share ids with hold positions only.
    """
    for split, own in shards.items():
        for name in (split, *own[0].before):
            if name in run.splits:
                for number, piece in _cut(run, name, len(own), bare=name != split):
                    yield own[number].name, piece


def _cut(run: Run, split: str, ranges: int, *, bare: bool = False) -> Iterator[tuple[int, Run]]:
    """Yield the number of each range of a split that a run has records in, and these, without their bytes where `bare`.

    The records of a range may come in several pieces, in order.
    """
    entries = np.frombuffer(run.data, INDEX_ENTRY, run.records)
    records = memoryview(run.data)[run.records * INDEX_ENTRY.itemsize :]
    first, last = run.splits[split]
    inner = np.searchsorted(entries["high"][first:last], np.array(placement.shard_edges(ranges)[1:-1], np.uint64))
    bounds = [first, *(inner + first).tolist(), last]
    for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
        sizes = np.full(end - begin, INDEX_ENTRY.itemsize, np.int64)
        if not bare:
            sizes += entries["size"][begin:end]
        for a, b in itertools.pairwise([begin, *(_full(sizes) + begin).tolist(), end]):
            if a < b:
                yield number, _piece(entries[a:b].copy(), records, split, bare=bare)


def _piece(picked: np.ndarray, records: memoryview, split: str, *, bare: bool) -> Run:
    """Return a run of these entries alone."""
    data = b""
    if bare:
        picked["begin"] = picked["size"] = 0
    else:
        origin = int(picked["begin"][0])
        data = bytes(records[origin : int(picked["begin"][-1]) + int(picked["size"][-1])])
        picked["begin"] -= np.uint64(origin)
    return Run(len(picked), {split: (0, len(picked))}, {split: len(data)}, data=picked.tobytes() + data)


def _full(sizes: np.ndarray) -> np.ndarray:
    """Return where a new piece begins, so that each has about LARGEST_PIECE bytes at most.

    >>> _full(np.full(5, LARGEST_PIECE // 2)).tolist()
    [2, 4]
    """
    return np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // LARGEST_PIECE)) + 1

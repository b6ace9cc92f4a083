"""Cut a sorted run into ranges of positions, and into the pieces that shards need, for a runner's own shuffle."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from t5prep.prepare import placement
from t5prep.prepare.shard_writer import ShardSpec
from t5prep.prepare.sorted_runs import INDEX_ENTRY, Run


def cut_ranges(run: Run, ranges: int) -> Iterator[tuple[int, Run]]:
    """Yield the number of each of so many equal ranges of positions that a run has records in, and these records."""
    pieces: dict[int, list[Run]] = {}
    for split in run.splits:
        for number, piece in _cut(run, split, ranges):
            pieces.setdefault(number, []).append(piece)
    for number, parts in sorted(pieces.items()):
        yield number, _beside(parts)


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
    """Yield the number of each range of a split that a run has records in, and these, without their bytes where `bare`."""
    entries = np.frombuffer(run.data, INDEX_ENTRY, run.records)
    records = memoryview(run.data)[run.records * INDEX_ENTRY.itemsize :]
    first, last = run.splits[split]
    inner = np.searchsorted(entries["high"][first:last], np.array(placement.shard_edges(ranges)[1:-1], np.uint64))
    bounds = [first, *(inner + first).tolist(), last]
    for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
        if begin == end:
            continue
        picked, data = entries[begin:end].copy(), b""
        if bare:
            picked["begin"] = picked["size"] = 0
        else:
            origin = int(picked["begin"][0])
            data = bytes(records[origin : int(picked["begin"][-1]) + int(picked["size"][-1])])
            picked["begin"] -= np.uint64(origin)
        yield number, Run(len(picked), {split: (0, len(picked))}, {split: len(data)}, data=picked.tobytes() + data)


def _beside(parts: Sequence[Run]) -> Run:
    """Return runs of different splits as one."""
    if len(parts) == 1:
        return parts[0]
    index, data, splits, sizes = [], [], {}, {}
    records = written = 0
    for part in parts:
        entries = np.frombuffer(part.data, INDEX_ENTRY, part.records).copy()
        entries["begin"] += np.uint64(written)
        index.append(entries.tobytes())
        data.append(part.data[len(index[-1]) :])
        ((split, _),) = part.splits.items()
        splits[split], sizes[split] = (records, records + part.records), part.sizes[split]
        records, written = records + part.records, written + len(data[-1])
    return Run(records, splits, sizes, data=b"".join([*index, *data]))

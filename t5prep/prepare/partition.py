"""Cut a spill into the pieces that shards need, so that a runner's own shuffle can bring them together."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from t5prep.prepare import placement
from t5prep.prepare.block_sorter import INDEX_ENTRY, SortedSpill
from t5prep.prepare.shard_writer import ShardSpec


def cut(spill: SortedSpill, specs: Sequence[ShardSpec]) -> Iterator[tuple[str, SortedSpill]]:
    """Yield the name of each shard that the spill has records for, and that piece of the spill with its bytes.

    Pieces of the splits that a shard must not share ids with hold positions only.
    """
    entries = np.frombuffer(spill.data, INDEX_ENTRY, spill.records)
    records = memoryview(spill.data)[spill.records * INDEX_ENTRY.itemsize :]
    shards: dict[str, list[ShardSpec]] = {}
    for spec in specs:
        shards.setdefault(spec.split, []).append(spec)
    for split, own in shards.items():
        for name in (split, *own[0].before):
            if name not in spill.splits:
                continue
            first, last = spill.splits[name]
            for number, begin, end in _parts(entries["high"][first:last], len(own)):
                picked = entries[first + begin : first + end].copy()
                data = b""
                if name == split:
                    origin = int(picked["begin"][0])
                    data = bytes(records[origin : int(picked["begin"][-1]) + int(picked["size"][-1])])
                    picked["begin"] -= origin
                else:
                    picked["begin"] = picked["size"] = 0
                yield own[number].name, _piece(spill, name, picked, data)


def _parts(high: np.ndarray, shards: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number, begin and end of each shard's part of sorted positions, where there is one."""
    inner = np.searchsorted(high, np.array(placement.shard_edges(shards)[1:-1], np.uint64))
    bounds = np.concatenate(([0], inner, [len(high)]))
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        yield number, int(bounds[number]), int(bounds[number + 1])


def _piece(spill: SortedSpill, split: str, entries: np.ndarray, data: bytes) -> SortedSpill:
    return dataclasses.replace(
        spill,
        rows=0,
        records=len(entries),
        splits={split: (0, len(entries))},
        sizes={split: len(data)},
        rejected=b"",
        reasons={},
        sketch=None,
        data=entries.tobytes() + data,
    )

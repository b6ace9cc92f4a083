"""Write a shard from the slices of all spills that fall into it: merged, without duplicates, counted.

Memory stays bounded whatever a shard's size: it is written in ranges of positions, each about RANGE_BYTES, and a range
of a sorted spill is one read.
"""

import bisect
import collections
import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t5prep.dataset import block_index, shard_names, tfrecord
from t5prep.dataset.manifest import Shard
from t5prep.io import atomic_files, paths
from t5prep.prepare import placement, record_counts, references
from t5prep.prepare.block_sorter import INDEX_ENTRY, SortedSpill
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.record_layouts import Arrangement, Range

RANGE_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True)
class ShardSpec:
    """Describe a shard to write: which of its split's equal ranges of positions, and about how many bytes it has.

    `before` are splits whose ids this one must not have: where the source's files are splits, an id may stand in two.
    A block of the index has `every` records.
    """

    split: str
    number: int
    shards: int
    bytes: int
    before: tuple[str, ...] = ()
    every: int = 64

    @property
    def name(self) -> str:
        """Return the shard's file name."""
        return shard_names.name(self.split, self.number, self.shards)

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the range of positions, begin and end."""
        edges = placement.shard_edges(self.shards)
        return edges[self.number], edges[self.number + 1]


class WrittenShard(NamedTuple):
    """Hold a written shard, the counts of its records, and finished JSON lines of duplicates that were left out.

    `duplicates` are those of each source file, `reasons` why they are duplicates; `merged` rows are references of other
    rows' records; `blocks` are its part of the index.
    """

    spec: ShardSpec
    shard: Shard
    counts: record_counts.Counts
    rejected: bytes
    duplicates: Mapping[str, int]
    reasons: Mapping[str, int]
    merged: int = 0
    blocks: bytes = b""


class _LeftOut:
    """Collect the rows that get no record of their own."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.duplicates, self.reasons = collections.Counter[str](), collections.Counter[str]()
        self.merged = 0

    def add(self, reason: str, dropped: Iterable[tuple[str, bytes]]) -> None:
        """Take the source file and the JSON line of each."""
        for file, line in dropped:
            self.duplicates[file] += 1
            self.reasons[reason] += 1
            self.lines.append(line)


class _Slice(NamedTuple):
    spill: SortedSpill
    entries: np.ndarray
    data: memoryview


def write(
    spec: ShardSpec,
    spills: Sequence[SortedSpill],
    *,
    out: str,
    arrange: Arrangement,
    several: bool = False,
    same: str = "id",
    repeats: Sequence[Repeats] = (),
    range_bytes: int = RANGE_BYTES,
) -> WrittenShard:
    """Write one shard. Of several records with one id the one with the smallest bytes is kept, whoever came first.

    Where an id has `several` answers, only one with the same target is a duplicate; evaluation merges the others.
    `same` is what two records at one position have in common: the id that placed them, or the text. `repeats` are rows
    that are left out because they repeat another one.
    """
    left_out = _LeftOut()
    total, counts, sha256, sizes = 0, record_counts.Counts(), hashlib.sha256(), [np.zeros(0, np.uint32)]
    ranges = _ranges(spec, spills, left_out, several=several, same=same, repeats=repeats, range_bytes=range_bytes)
    with paths.whole(paths.at(out, spec.name)) as file:
        for data, sizes_of, counted in arrange(ranges):
            file.write(data)
            sha256.update(data)
            total += len(data)
            counts += counted
            sizes.append(sizes_of)
    shard = Shard(spec.name, counts.records, total, sha256.hexdigest())
    blocks = block_index.block_sizes(np.concatenate(sizes), every=spec.every).tobytes()
    lines, duplicates, reasons = b"".join(left_out.lines), dict(left_out.duplicates), dict(left_out.reasons)
    return WrittenShard(spec, shard, counts, lines, duplicates, reasons, left_out.merged, blocks)


def _ranges(
    spec: ShardSpec,
    spills: Sequence[SortedSpill],
    left_out: _LeftOut,
    *,
    several: bool,
    same: str,
    repeats: Sequence[Repeats],
    range_bytes: int,
) -> Iterator[Range]:
    """Yield the records of a shard in order, in ranges of positions; those without a record of their own go to `left_out`."""
    ranges = max(1, -(-spec.bytes // range_bytes))
    low, high = spec.bounds
    cuts = [low + (high - low) * i // ranges for i in range(ranges + 1)]
    for start, stop in itertools.pairwise(cuts):
        slices = list(_slices(spills, spec.split, start, stop))
        if not slices:
            continue
        entries = np.concatenate([piece.entries for piece in slices])
        of = np.repeat(np.arange(len(slices)), [len(piece.entries) for piece in slices])
        keys = ("target", "low", "high") if several else ("low", "high")
        order = np.lexsort([entries[key] for key in keys])
        for part in repeats:
            order, dropped = _without_repeats(order, entries, of, slices, part.slice(spec.split, start, stop))
            left_out.add("near duplicate", dropped)
        order, dropped = _without_duplicates(order, entries, of, slices, keys=keys, same=same)
        left_out.add(f"duplicate {same}", dropped)
        for other in spec.before:
            others, reason = list(_slices(spills, other, start, stop)), f"duplicate {same}: the split {other} has it"
            order, dropped = _without_leaks(order, entries, of, slices, others, reason)
            left_out.add(f"duplicate {same}", dropped)
        begins, sizes = entries["begin"][order].tolist(), entries["size"][order].tolist()
        pieces = zip(of[order].tolist(), begins, sizes, strict=True)
        data = b"".join(slices[part].data[begin : begin + size] for part, begin, size in pieces)
        whole = Range(entries[order], data)
        if several and spec.split != "train":
            rows = len(whole.entries)
            whole = references.merged(whole)
            left_out.merged += rows - len(whole.entries)
        yield whole


def _slices(spills: Iterable[SortedSpill], split: str, start: int, stop: int) -> Iterator[_Slice]:
    """Yield what each spill has of a range of positions; `begin` counts from the slice's own data."""
    for spill in spills:
        if split not in spill.splits:
            continue
        first, last = spill.splits[split]
        if spill.path:
            yield from _from_file(spill, first, last, start, stop)
        else:
            entries = np.frombuffer(spill.data, INDEX_ENTRY, spill.records)
            yield from _cut(
                spill, entries[first:last], start, stop, memoryview(spill.data)[spill.records * INDEX_ENTRY.itemsize :]
            )


def _cut(spill: SortedSpill, entries: np.ndarray, start: int, stop: int, data: memoryview) -> Iterator[_Slice]:
    high = entries["high"]
    a = bisect.bisect_left(high, start)
    b = bisect.bisect_left(high, stop) if stop < 1 << 64 else len(high)
    if a < b:
        picked = entries[a:b].copy()
        origin, end = int(picked["begin"][0]), int(picked["begin"][-1]) + int(picked["size"][-1])
        picked["begin"] -= origin
        yield _Slice(spill, picked, data[origin:end])


def _from_file(spill: SortedSpill, first: int, last: int, start: int, stop: int) -> Iterator[_Slice]:
    with atomic_files.open_scratch(Path(spill.path)) as file:
        index = os.pread(file.fileno(), (last - first) * INDEX_ENTRY.itemsize, first * INDEX_ENTRY.itemsize)
        entries = np.frombuffer(index, INDEX_ENTRY)
        for piece in _cut(spill, entries, start, stop, memoryview(b"")):
            begin = int(entries["begin"][bisect.bisect_left(entries["high"], start)])
            size = int(piece.entries["begin"][-1]) + int(piece.entries["size"][-1])
            data = os.pread(file.fileno(), size, spill.records * INDEX_ENTRY.itemsize + begin)
            yield _Slice(spill, piece.entries, memoryview(data))


def _without_repeats(
    order: np.ndarray, entries: np.ndarray, of: np.ndarray, slices: Sequence[_Slice], repeats: Repeats
) -> tuple[np.ndarray, list[tuple[str, bytes]]]:
    """Return the order without rows that repeat another one, and the file and JSON line of each of those."""
    if not len(repeats.dropped):
        return order, []
    repeated = {(row["file"], row["row"]): row for row in repeats.dropped.to_pylist()}
    keep, lines = np.ones(len(order), bool), []
    for place in np.flatnonzero(np.isin(entries["high"][order], repeats.dropped["high"].to_numpy())).tolist():
        i = order[place]
        file, row = slices[of[i]].spill.file, int(entries["row"][i])
        if kept := repeated.get((file, row)):
            keep[place] = False
            reason = (
                f"near duplicate: kept is {kept['kept_file']}:{kept['kept_row']}, id {kept['kept_id']} "
                f"(Jaccard similarity {kept['similarity']:.2f})"
            )
            lines.append(_line(file, row, _record(entries[i], slices[of[i]]), reason))
    return order[keep], lines


def _without_duplicates(
    order: np.ndarray,
    entries: np.ndarray,
    of: np.ndarray,
    slices: Sequence[_Slice],
    *,
    keys: Sequence[str],
    same: str,
) -> tuple[np.ndarray, list[tuple[str, bytes]]]:
    """Return the order with one record for equal keys, and the file and JSON line of each that was left out."""
    equal = np.zeros(len(order) + 1, bool)
    equal[1:-1] = np.all([entries[key][order[1:]] == entries[key][order[:-1]] for key in keys], axis=0)
    if not equal.any():
        return order, []
    keep, lines = np.ones(len(order), bool), []

    begin = 0
    while begin < len(order):
        end = begin + 1
        while equal[end]:
            end += 1
        if end - begin > 1:
            rivals = [
                (_record(entries[i], slices[of[i]]), slices[of[i]].spill.file, int(entries["row"][i]), i)
                for i in order[begin:end]
            ]
            (_, file, row, winner), *others = sorted(rivals)
            keep[begin:end] = order[begin:end] == winner
            lines += [
                _line(other_file, other_row, other, f"duplicate {same}: kept is {file}:{row}")
                for other, other_file, other_row, _ in others
            ]
        begin = end
    return order[keep], lines


def _without_leaks(
    order: np.ndarray,
    entries: np.ndarray,
    of: np.ndarray,
    slices: Sequence[_Slice],
    others: Sequence[_Slice],
    reason: str,
) -> tuple[np.ndarray, list[tuple[str, bytes]]]:
    """Return the order without records whose position another split has, and the file and JSON line of each of those."""
    if not others:
        return order, []
    taken = {
        position
        for piece in others
        for position in zip(*(piece.entries[k].tolist() for k in ("high", "low")), strict=True)
    }
    here = zip(entries["high"][order].tolist(), entries["low"][order].tolist(), strict=True)
    keep = np.fromiter((position not in taken for position in here), bool, len(order))
    lines = []
    for i in order[~keep]:
        record = _record(entries[i], slices[of[i]])
        lines.append(_line(slices[of[i]].spill.file, int(entries["row"][i]), record, reason))
    return order[keep], lines


def _record(entry: np.ndarray, piece: _Slice) -> bytes:
    return bytes(piece.data[int(entry["begin"]) : int(entry["begin"]) + int(entry["size"])])


def _line(file: str, row: int, record: bytes, reason: str) -> tuple[str, bytes]:
    (id,) = tfrecord.parse(tfrecord.payload(record))["id"]
    assert isinstance(id, bytes)
    line = {"file": file, "row": row, "id": id.decode("utf-8", "surrogatepass"), "reason": reason}
    return file, json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"

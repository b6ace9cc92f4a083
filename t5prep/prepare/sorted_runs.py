"""Hold sorted records in memory or in a file, read any range of positions from them, and merge several into one.

A run is an index, one entry a record, and then the records as they will stand in a shard, both sorted by split and
position. Because it is sorted, what one shard needs of it is one slice.
"""

import bisect
import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t5prep.errors import OutputError
from t5prep.io import atomic_files

# One record of a run. `high`, `low` are its position; `begin`, `size` where it stands; `file`, `row` where it comes from
# (the number of a file among those of the source); the rest is what statistics count. `target` is a digest of the
# labels: equal targets count as one label.
INDEX_ENTRY = np.dtype(
    [
        ("high", "u8"),
        ("low", "u8"),
        ("begin", "u8"),
        ("size", "u4"),
        ("file", "u4"),
        ("row", "u4"),
        ("inputs", "u4"),
        ("targets", "u4"),
        ("tokens", "u4"),
        ("target_tokens", "u4"),
        ("unknown", "u4"),
        ("target", "u4"),
        ("markup", "u1"),
    ]
)
# Every position is below this.
END = 1 << 64
# So many entries of an index are read at once; a larger index is bisected in its file.
_READ_ENTRIES = 1024
# So many records are joined at once: where records are short, the list of them needs more memory than they do.
_JOINED = 4096


class Slice(NamedTuple):
    """Hold what one run has of a range: entries, whose `begin` counts from the slice's own data, and the data."""

    entries: np.ndarray
    data: memoryview


@dataclasses.dataclass(frozen=True)
class Run:
    """Hold sorted records. `splits` gives the first entry and the end of each split, `sizes` the bytes of its records.

    The bytes are in `data`, or in the file at `path`.
    """

    records: int
    splits: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int]
    path: str = ""
    data: bytes = b""

    @property
    def bytes(self) -> int:
        """Return the bytes of all records."""
        return sum(self.sizes.values())

    def slice(self, split: str, start: int, stop: int) -> Slice | None:
        """Return the records of a split whose positions are in a range, or None where there are none.

        Raises OutputError where the file is gone.
        """
        if split not in self.splits:
            return None
        first, last = self.splits[split]
        if self.path:
            with atomic_files.open_scratch(Path(self.path)) as file:
                return self._read(file.fileno(), first, last, start, stop)
        entries = np.frombuffer(self.data, INDEX_ENTRY, self.records)[first:last]
        picked = _within(entries, start, stop).copy()
        origin, size = _moved_to_zero(picked)
        begin = self.records * INDEX_ENTRY.itemsize + origin
        return Slice(picked, memoryview(self.data)[begin : begin + size]) if len(picked) else None

    def _read(self, file: int, first: int, last: int, start: int, stop: int) -> Slice | None:
        picked = _read_entries(file, first, last, start, stop)
        if not len(picked):
            return None
        origin, size = _moved_to_zero(picked)
        data = _bytes_at(file, size, self.records * INDEX_ENTRY.itemsize + origin)
        return Slice(picked, memoryview(data))


class Gathered(NamedTuple):
    """Hold the records that several runs have in one range, not yet in order: entries, and the slice that each is in."""

    entries: np.ndarray
    of: np.ndarray
    slices: list[Slice]

    def record(self, i: int) -> bytes:
        """Return the bytes of one record."""
        begin = int(self.entries["begin"][i])
        return bytes(self.slices[self.of[i]].data[begin : begin + int(self.entries["size"][i])])

    def joined(self, order: np.ndarray) -> bytes:
        """Return the bytes of some records, one after the other."""
        begins, sizes = self.entries["begin"][order].tolist(), self.entries["size"][order].tolist()
        data = [part.data for part in self.slices]
        pieces = zip(self.of[order].tolist(), begins, sizes, strict=True)
        return b"".join([data[part][begin : begin + size] for part, begin, size in pieces])


def gather(runs: Iterable[Run], split: str, start: int = 0, stop: int = END) -> Gathered | None:
    """Return what all runs have of a range of positions, or None where they have nothing."""
    slices = [part for run in runs if (part := run.slice(split, start, stop)) is not None]
    if not slices:
        return None
    entries = np.concatenate([part.entries for part in slices])
    return Gathered(entries, np.repeat(np.arange(len(slices)), [len(part.entries) for part in slices]), slices)


def merge(runs: Sequence[Run], path: str, *, range_bytes: int) -> Run:
    """Merge runs into a file that appears whole, some `range_bytes` of records at a time; return the run in it.

    Raises OutputError.
    """
    merged = _empty(runs)
    begins = merged.records * INDEX_ENTRY.itemsize
    with atomic_files.scratch(Path(path)) as temporary, open(temporary, "wb") as file:
        written = 0
        for split, (first, _) in merged.splits.items():
            ranges = max(1, -(-merged.sizes[split] // range_bytes))
            for start, stop in itertools.pairwise(END * i // ranges for i in range(ranges + 1)):
                for entries, data in _sorted(runs, split, start, stop, written):
                    os.pwrite(file.fileno(), entries.tobytes(), first * INDEX_ENTRY.itemsize)
                    file.seek(begins + written)
                    file.write(data)
                    first, written = first + len(entries), written + len(data)
    return dataclasses.replace(merged, path=path)


def merged_in_memory(runs: Sequence[Run]) -> Run:
    """Return several runs as one, its bytes in memory."""
    if len(runs) == 1 and not runs[0].path:
        return runs[0]
    merged, index, records, written = _empty(runs), [], [], 0
    for split in merged.splits:
        for entries, data in _sorted(runs, split, 0, END, written):
            index.append(entries.tobytes())
            records.append(data)
            written += len(data)
    return dataclasses.replace(merged, data=b"".join([*index, *records]))


def save(path: Path, runs: Sequence[Run]) -> None:
    """Write where runs are into a scratch file that `load` reads. Raises OutputError."""
    atomic_files.write_scratch(
        path, json.dumps([[run.records, run.splits, run.sizes, run.path] for run in runs]).encode()
    )


def load(path: Path) -> list[Run]:
    """Return the runs that `save` wrote. Raises OutputError where the file is gone."""
    with atomic_files.open_scratch(path) as file:
        return [Run(*fields) for fields in json.loads(file.read())]


def _empty(runs: Sequence[Run]) -> Run:
    """Return the description of merged runs."""
    splits: dict[str, tuple[int, int]] = {}
    begin = 0
    for split in sorted({split for run in runs for split in run.splits}):
        records = sum(last - first for first, last in (run.splits[split] for run in runs if split in run.splits))
        splits[split] = begin, begin + records
        begin += records
    return Run(begin, splits, {split: sum(run.sizes.get(split, 0) for run in runs) for split in splits})


def _sorted(runs: Sequence[Run], split: str, start: int, stop: int, written: int) -> Iterator[tuple[np.ndarray, bytes]]:
    """Yield the sorted entries of a range and their records, which stand behind `written` bytes, some thousand at a time."""
    together = gather(runs, split, start, stop)
    if together is None:
        return
    order = np.lexsort((together.entries["low"], together.entries["high"]))
    for first in range(0, len(order), _JOINED):
        some = order[first : first + _JOINED]
        entries, data = together.entries[some], together.joined(some)
        entries["begin"] = np.cumsum(entries["size"], dtype=np.uint64) - entries["size"] + np.uint64(written)
        written += len(data)
        yield entries, data


def _within(entries: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return those of some sorted entries whose positions are in a range."""
    high = entries["high"]
    return entries[bisect.bisect_left(high, start) : bisect.bisect_left(high, stop) if stop < END else len(high)]


def _moved_to_zero(entries: np.ndarray) -> tuple[int, int]:
    """Let entries count from the first of them; return where that stood, and the bytes of all."""
    if not len(entries):
        return 0, 0
    origin, size = int(entries["begin"][0]), int(entries["begin"][-1]) + int(entries["size"][-1])
    entries["begin"] -= np.uint64(origin)
    return origin, size - origin


def _read_entries(file: int, first: int, last: int, start: int, stop: int) -> np.ndarray:
    """Return those of the entries `first` to `last` of a file whose positions are in a range."""
    if last - first > _READ_ENTRIES:
        first, last = _place(file, first, last, start), last if stop >= END else _place(file, first, last, stop)
        last = max(first, last)
    index = _bytes_at(file, (last - first) * INDEX_ENTRY.itemsize, first * INDEX_ENTRY.itemsize)
    return _within(np.frombuffer(index, INDEX_ENTRY), start, stop).copy()


def _bytes_at(file: int, size: int, at: int) -> bytes:
    """Return so many bytes of a file from a place on. Raises OutputError where it has fewer."""
    data = os.pread(file, size, at)
    while len(data) < size:  # one call reads at most 2 GiB
        more = os.pread(file, size - len(data), at + len(data))
        if not more:
            raise OutputError(
                "a file of sorted records is shorter than it was written: something changes files that this run still needs. "
                "Stop that, and start it again: what was tokenized is kept."
            )
        data += more
    return data


def _place(file: int, first: int, last: int, position: int) -> int:
    """Return the first of a file's entries whose position is not below another one."""
    while first < last:
        middle = (first + last) // 2
        if int.from_bytes(os.pread(file, 8, middle * INDEX_ENTRY.itemsize), "little") < position:
            first = middle + 1
        else:
            last = middle
    return first

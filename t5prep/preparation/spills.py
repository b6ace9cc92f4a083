"""Store rows sorted by split and position, in memory or in a file (a spill); read ranges of positions, and merge spills.

A spill is an index with one entry for each row, followed by the variable-length data in the same order. So the rows
of a shard are two contiguous reads: one of the index, one of the data.
"""

import bisect
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t5prep._native import copy_lists
from t5prep.errors import OutputError
from t5prep.io import atomic_files
from t5prep.tokens import ragged
from t5prep.tokens.ragged import Names, Ragged

# The index entry of a row, 66 bytes.
# * `high`, `low`: the position. * `begin`, `size`: where its data is: ids of the input, ids of the labels (`width`
# bytes each), the row's id, references. * `file`, `row`: its source: the index of a file among those of the source,
# and the row in it. * the others: for statistics. `target` is a digest of the labels, by which classes are counted.
ENTRY = np.dtype(
    [
        ("high", "u8"),
        ("low", "u8"),
        ("begin", "u8"),
        ("size", "u4"),
        ("file", "u4"),
        ("row", "u4"),
        ("inputs", "u4"),
        ("targets", "u4"),
        ("id_bytes", "u4"),
        ("tokens", "u4"),
        ("target_tokens", "u4"),
        ("unknown", "u4"),
        ("target", "u4"),
        ("markup", "u1"),
        ("width", "u1"),
    ]
)
# Exclusive upper limit of the high half of positions.
END = 1 << 64
# An index of up to this many entries is read at once; a larger one is searched in its file.
_READ_ENTRIES = 1024
# Least bytes of a row with its entry, to estimate how many entries some bytes of rows have.
_LEAST_ROW = 128
# Each reference is preceded by its size, in this many bytes.
_REFERENCE_HEAD = 4


class Columns(NamedTuple):
    """The columns that records consist of: row ids, token ids of both sides (uint16 or int32), and references.

    The references of a row are one byte string (references_of), which is empty for most rows.
    """

    ids: Names
    inputs: Ragged
    labels: Ragged
    references: Names


class Rows(NamedTuple):
    """Some rows of spills in any order: their entries (ENTRY[n]), and the bytes (uint8) that `begin` and `size` refer to."""

    entries: np.ndarray
    data: np.ndarray

    def take(self, order: np.ndarray) -> "Rows":
        """Return the rows at these indices, in this order."""
        return Rows(self.entries[order], self.data)

    def joined(self) -> np.ndarray:
        """Return the variable-length data of the rows, concatenated, `uint8[bytes]`."""
        sizes = self.entries["size"].astype(np.int64)
        places = ragged.begins(sizes)
        data = np.empty(int(places[-1]), np.uint8)
        copy_lists(self.data, self.entries["begin"].astype(np.int64), data, places[:-1], sizes, 1)
        return data

    def columns(self) -> Columns:
        """Return the columns that records consist of."""
        width, offsets = int(self.entries["width"].max(initial=2)), self.entries["begin"].astype(np.int64)
        sizes = [self.entries[name].astype(np.int64) * width for name in ("inputs", "targets")]
        sizes.append(self.entries["id_bytes"].astype(np.int64))
        sizes.append(self.entries["size"] - np.sum(sizes, axis=0))
        columns = []
        for lengths in sizes:
            places = ragged.begins(lengths)
            column = np.empty(int(places[-1]), np.uint8)
            copy_lists(self.data, offsets, column, places[:-1], lengths, 1)
            columns.append((column, places))
            offsets = offsets + lengths
        inputs, labels = (Ragged(column.view(TOKENS[width]), places // width) for column, places in columns[:2])
        ids, references = (Names(column.tobytes(), places) for column, places in columns[2:])
        return Columns(ids, inputs, labels, references)

    def compact(self) -> "Rows":
        """Return a copy of the rows that holds their data only, and not the buffer that they were cut from."""
        entries = self.entries.copy()
        entries["begin"] = ragged.begins(entries["size"].astype(np.int64))[:-1]
        return Rows(entries, self.joined())

    def id(self, i: int) -> str:
        """Return the id of row `i`."""
        return self.take(np.array([i])).columns().ids[0]

    def labels(self, i: int) -> tuple[int, ...]:
        """Return the token ids of the labels of row `i`."""
        return tuple(self.take(np.array([i])).columns().labels.ids.tolist())


# Types of token ids by their width in bytes: two bytes suffice for most vocabularies.
TOKENS: dict[int, np.dtype] = {2: np.dtype("<u2"), 4: np.dtype("<i4")}


def join(columns: Columns, entries: np.ndarray, order: np.ndarray) -> Rows:
    """Return rows in this order, from columns and entries. Fields of the entries that follow from the columns are set here."""
    entries = entries[order]
    width = columns.inputs.ids.dtype.itemsize
    parts = [(side.ids.view(np.uint8), side.starts * width) for side in (columns.inputs, columns.labels)]
    parts += [(np.frombuffer(texts.data, np.uint8), texts.starts) for texts in (columns.ids, columns.references)]
    lengths = [np.diff(starts)[order] for _, starts in parts]
    entries["inputs"], entries["targets"] = lengths[0] // width, lengths[1] // width
    entries["id_bytes"], entries["width"] = lengths[2], width
    entries["size"] = np.sum(lengths, axis=0)
    places = ragged.begins(entries["size"])
    data = np.empty(int(places[-1]), np.uint8)
    entries["begin"] = offsets = places[:-1]
    for (part, starts), part_lengths in zip(parts, lengths, strict=True):
        copy_lists(part, starts[:-1][order], data, offsets, part_lengths, 1)
        offsets = offsets + part_lengths
    return Rows(entries, data)


def references_of(texts: Iterable[bytes]) -> bytes:
    """Return the references of a row as one byte string, each preceded by its size."""
    return b"".join(len(text).to_bytes(_REFERENCE_HEAD, "little") + text for text in texts)


def split_references(data: bytes) -> list[bytes]:
    """Return the references in a result of `references_of`.

    >>> split_references(references_of([b"yes", b""]))
    [b'yes', b'']
    """
    texts, offset = [], 0
    while offset < len(data):
        begin = offset + _REFERENCE_HEAD
        offset = begin + int.from_bytes(data[offset:begin], "little")
        texts.append(data[begin:offset])
    return texts


@dataclasses.dataclass(frozen=True)
class Spill:
    """Sorted rows.

    `splits` has the first entry and the end of each split; `sizes` has the bytes of its variable-length data. Index
    and data are in `data`, or in the file `path`.
    """

    records: int
    splits: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int]
    path: str = ""
    data: bytes = b""

    @property
    def bytes(self) -> int:
        """The bytes of all rows without the index."""
        return sum(self.sizes.values())

    def spooled(self, path: Path) -> "Spill":
        """Write the bytes to a scratch file, and return the spill that reads them from there."""
        atomic_files.write_scratch(path, self.data)
        return dataclasses.replace(self, data=b"", path=str(path))

    def slice(self, split: str, start: int, stop: int, *, max_bytes: int = END) -> Rows | None:
        """Return the rows of a split with `start <= high < stop`, or None if there are none.

        Raises OutputError if the file is gone, and Crowded if the rows have more than `max_bytes` bytes.
        """
        with self._opened() as file:
            first, last = self._bounds(file, split, start, stop)
            return self._rows(file, first, last, max_bytes=max_bytes) if first < last else None

    def parts(self, split: str, start: int, stop: int, *, size: int) -> Iterator[Rows]:
        """Yield the rows of a split with `start <= high < stop`, in parts of about `size` bytes. Raises OutputError like `slice`."""
        with self._opened() as file:
            first, last = self._bounds(file, split, start, stop)
            while first < last:
                end = min(last, first + max(1, size // _LEAST_ROW))
                entries = self._entries(file, first, end)
                end = first + max(1, int(np.searchsorted(np.cumsum(entries["size"], dtype=np.int64), size)))
                yield self._rows(file, first, min(end, last), max_bytes=END)
                first = end

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Yield the descriptor of the file, or -1 if the bytes are in memory."""
        if not self.path:
            yield -1
            return
        with atomic_files.open_scratch(Path(self.path)) as file:
            yield file.fileno()

    def _bounds(self, file: int, split: str, start: int, stop: int) -> tuple[int, int]:
        """Return the first entry, and the end, of a split's rows with `start <= high < stop`."""
        first, last = self.splits.get(split, (0, 0))
        if file < 0 or last - first <= _READ_ENTRIES:
            high = self._entries(file, first, last)["high"]
            return (
                first + bisect.bisect_left(high, start),
                first + bisect.bisect_left(high, stop) if stop < END else last,
            )

        # Bisects the file: each step reads 8 bytes, instead of reading the whole index.
        def position(entry: int) -> int:
            return int.from_bytes(os.pread(file, 8, entry * ENTRY.itemsize), "little")

        begin = first + bisect.bisect_left(range(first, last), start, key=position)
        end = last if stop >= END else first + bisect.bisect_left(range(first, last), stop, key=position)
        return begin, max(begin, end)

    def _entries(self, file: int, first: int, last: int) -> np.ndarray:
        """Return the entries `first` to `last`."""
        if file < 0:
            return np.frombuffer(self.data, ENTRY, self.records)[first:last]
        return np.frombuffer(_bytes_at(file, (last - first) * ENTRY.itemsize, first * ENTRY.itemsize), ENTRY)

    def _rows(self, file: int, first: int, last: int, *, max_bytes: int) -> Rows:
        """Return the rows of the entries `first` to `last`. Raises Crowded if they have more than `max_bytes` bytes."""
        if (last - first) * ENTRY.itemsize > max_bytes:
            raise Crowded
        picked = self._entries(file, first, last).copy()
        origin, size = _moved_to_zero(picked)
        begin = self.records * ENTRY.itemsize + origin
        if picked.nbytes + size > max_bytes:
            raise Crowded
        data = self.data if file < 0 else _bytes_at(file, size, begin)
        return Rows(picked, np.frombuffer(data, np.uint8, size, begin if file < 0 else 0))


class Crowded(Exception):  # noqa: N818 - no error: the range must be divided
    """A range of positions has more rows than requested."""


def gather(
    spills: Iterable[Spill], split: str, start: int = 0, stop: int = END, *, max_bytes: int = END
) -> Rows | None:
    """Return the rows of all spills in a range of positions, unsorted, or None if there are none.

    Raises Crowded if they have more than `max_bytes` bytes.
    """
    slices, remaining_bytes = list[Rows](), max_bytes
    for spill in spills:
        if (part := spill.slice(split, start, stop, max_bytes=remaining_bytes)) is not None:
            slices.append(part)
            remaining_bytes -= part.entries.nbytes + len(part.data)
    return concatenate_rows(slices) if slices else None


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several parts, concatenated. The entries of the parts are changed."""
    if len(parts) == 1:
        return parts[0]
    for part, data_offset in zip(parts, ragged.begins([len(part.data) for part in parts]).tolist(), strict=False):
        part.entries["begin"] += np.uint64(data_offset)
    return Rows(np.concatenate([part.entries for part in parts]), np.concatenate([part.data for part in parts]))


def merge(spills: Sequence[Spill], path: str, *, range_bytes: int) -> Spill:
    """Merge spills into one file, about `range_bytes` at a time, and return its spill. The file appears when it is complete.

    Raises OutputError.
    """
    merged = _empty(spills)
    begins = merged.records * ENTRY.itemsize
    with atomic_files.scratch(Path(path)) as temporary, open(temporary, "wb") as file:
        written = 0
        for split, (first, _) in merged.splits.items():
            ranges = max(1, -(-merged.sizes[split] // range_bytes))
            for start, stop in itertools.pairwise(END * i // ranges for i in range(ranges + 1)):
                for entries, data in _sorted(spills, split, start, stop, written):
                    # The index is at the begin of the file, the data behind it: both grow at once.
                    os.pwrite(file.fileno(), entries.tobytes(), first * ENTRY.itemsize)
                    file.seek(begins + written)
                    file.write(data.data)
                    first, written = first + len(entries), written + len(data)
    return dataclasses.replace(merged, path=path)


def merged_in_memory(spills: Sequence[Spill]) -> Spill:
    """Return several spills merged into one, with its bytes in memory."""
    if len(spills) == 1 and not spills[0].path:
        return spills[0]
    merged, index, rows, written = _empty(spills), [], [], 0
    for split in merged.splits:
        for entries, data in _sorted(spills, split, 0, END, written):
            index.append(entries.tobytes())
            rows.append(data.tobytes())
            written += len(data)
    return dataclasses.replace(merged, data=b"".join([*index, *rows]))


def _empty(spills: Sequence[Spill]) -> Spill:
    """Return the merged spill without its bytes: the counts and sizes of its splits."""
    splits: dict[str, tuple[int, int]] = {}
    begin = 0
    for split in sorted({split for spill in spills for split in spill.splits}):
        records = sum(
            last - first for first, last in (spill.splits[split] for spill in spills if split in spill.splits)
        )
        splits[split] = begin, begin + records
        begin += records
    return Spill(begin, splits, {split: sum(spill.sizes.get(split, 0) for spill in spills) for split in splits})


def _sorted(
    spills: Sequence[Spill], split: str, start: int, stop: int, written: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the sorted entries of a range, and the data of its rows. Entries count from `written`, the bytes before them."""
    gathered_rows = gather(spills, split, start, stop)
    if gathered_rows is None:
        return
    rows = gathered_rows.take(np.lexsort((gathered_rows.entries["low"], gathered_rows.entries["high"])))
    data = rows.joined()
    sizes = rows.entries["size"].astype(np.uint64)
    rows.entries["begin"] = np.cumsum(sizes) - sizes + np.uint64(written)
    yield rows.entries, data


def _moved_to_zero(entries: np.ndarray) -> tuple[int, int]:
    """Subtract the first `begin` from all entries. Return that value, and the bytes of their data."""
    if not len(entries):
        return 0, 0
    origin, size = int(entries["begin"][0]), int(entries["begin"][-1]) + int(entries["size"][-1])
    entries["begin"] -= np.uint64(origin)
    return origin, size - origin


def _bytes_at(file: int, size: int, offset: int) -> bytes:
    """Return `size` bytes of a file from `offset` on. Raises OutputError if it has fewer."""
    data = os.pread(file, size, offset)
    while len(data) < size:  # Linux reads at most 2 GiB in one call
        chunk = os.pread(file, size - len(data), offset + len(data))
        if not chunk:
            raise OutputError(
                "A file of sorted records became shorter while this run still needed it. Stop the program "
                "that changes files, and run the command again. Tokenized blocks are cached.",
                code="output.scratch-altered",
            )
        data += chunk
    return data

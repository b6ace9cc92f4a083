"""Name the shards of a dataset, and read and write the three files beside them, which describe their records.

* `shards.index`: the bytes of each page of records, one little-endian uint32 a page. A reader can begin at any page.
* `shards.lengths`: the input and target tokens of each record, two little-endian numbers a record.
* `shards.origins`: the source file and row of each record, and its cut tokens: the numbers of ORIGIN.

In each file, splits are sorted by name and shards by number, and pages or records are in the order of the shard. The
manifest has the checksums of these files. docs/format.md describes them.
"""

import dataclasses
import functools
import hashlib
import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from t5prep.errors import DatasetError
from t5prep.io import paths

INDEX, LENGTHS, ORIGINS = "shards.index", "shards.lengths", "shards.origins"
# The numbers of an origin: the source file (its index in the manifest), the row in it, and the cut tokens of both sides.
ORIGIN = ("file", "row", "input_cut", "target_cut")
# A split has about this many pages. With many pages, shuffling pages is nearly as good as shuffling records.
_USUAL_PAGES = 4096
# A page has 8 to 64 records. A split with more than 2^20 pages of 64 has pages of up to 256 records: its index stays small.
# Two terabytes of records of 512 tokens have an index of 32 MB.
_MIN_PAGE_RECORDS, _USUAL_PAGE_RECORDS, _MAX_PAGE_RECORDS, _MOST_PAGES = 8, 64, 256, 1 << 20
# Larger splits have no lengths and origins. While a dataset is prepared, one process holds these of all its records.
MOST_RECORDS = 1 << 24
# The advice for a file that is missing or altered.
REPAIR_ADVICE = "Prepare the dataset again, or copy this file again from where it was made."
_WIDTHS = (0, 1, 2, 4)  # possible bytes of a number of an origin; 0 if the number is 0 for all records
_SHARD = re.compile(r".+\.tfrecord-\d{5,}-of-\d{5,}")


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """Describe one TFRecord file: its name in the dataset's folder, its number of records, its bytes and SHA-256 (hex)."""

    name: str
    records: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class SideFile:
    """Describe a file beside the shards: its name, its size in bytes, and its SHA-256 (hex)."""

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Index(SideFile):
    """Describe the file of the index. `every` has the number of records in a page, by split.

    The last page of a shard may have fewer records.
    """

    every: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Lengths(SideFile):
    """Describe the file of lengths. `records` has the number of records of each split in the file."""

    records: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Origins(Lengths):
    """Describe the file of origins. `widths` has the bytes of each number of ORIGIN: 0, 1, 2 or 4.

    A number with 0 bytes is 0 for all records. If records are packed, `records` counts the examples in them.
    """

    widths: list[int]


def name(split: str, number: int, shards: int) -> str:
    """Return the file name of the shard `number` of `shards` shards of a split.

    >>> name("train", 3, 16)
    'train.tfrecord-00003-of-00016'
    """
    return f"{split}.tfrecord-{number:05d}-of-{shards:05d}"


def is_shard(file: str) -> bool:
    """Check whether `file` is the name of a shard.

    >>> is_shard("train.tfrecord-00003-of-00016"), is_shard("manifest.json")
    (True, False)
    """
    return bool(_SHARD.fullmatch(file))


def strays(files: Iterable[str], manifest_shards: Iterable[str]) -> list[str]:
    """Return, sorted, the names in `files` that are shards, but not in the manifest."""
    return sorted(set(filter(is_shard, files)) - set(manifest_shards))


def records_per_page(records: int) -> int:
    """Return the number of records in a page of a split with `records` records: a power of two.

    >>> [records_per_page(records) for records in (100, 100_000, 1_000_000, 2_000_000_000)]
    [8, 16, 64, 256]
    """
    page_capacity = min(_USUAL_PAGE_RECORDS, records // _USUAL_PAGES)
    if records > _USUAL_PAGE_RECORDS * _MOST_PAGES:
        page_capacity = min(_MAX_PAGE_RECORDS, records // _MOST_PAGES)
    return 1 << (max(_MIN_PAGE_RECORDS, page_capacity).bit_length() - 1)


def page_sizes(sizes: np.ndarray, *, every: int) -> np.ndarray:
    """Return the bytes of each page, `uint32[pages]`, given the bytes of each record of a shard, `int[records]`.

    >>> page_sizes(np.array([5, 6, 7, 8, 9]), every=2).tolist()
    [11, 15, 9]
    """
    if not len(sizes):
        return np.zeros(0, "<u4")
    return np.add.reduceat(sizes.astype(np.int64), np.arange(0, len(sizes), every)).astype("<u4")


def page_records(shard: Shard, pages: int, *, every: int) -> np.ndarray:
    """Return the number of records in each of a shard's `pages` pages, int64[pages]. The last may have fewer than `every`.

    >>> page_records(Shard("", records=20, bytes=0, sha256=""), 3, every=8).tolist()
    [8, 8, 4]
    """
    return np.minimum(every, shard.records - every * np.arange(pages))


def write_index(out: str, shards: Iterable[bytes], *, every: Mapping[str, int]) -> Index:
    """Write the index of a dataset into the folder `out` atomically, and return its description.

    `shards` has the page sizes of each shard (uint32[pages]) as bytes, in the order of the file. `every` is that of Index.
    Raises OutputError.
    """
    return Index(**vars(_written(out, INDEX, shards)), every=dict(sorted(every.items())))


def _written(out: str, name: str, pieces: Iterable[bytes]) -> SideFile:
    """Write the concatenation of `pieces` to the file `name` in `out` atomically, and return its description."""
    size, sha256 = 0, hashlib.sha256()
    with paths.open_atomic(paths.join(out, name)) as file:
        for piece in pieces:
            file.write(piece)
            sha256.update(piece)
            size += len(piece)
    return SideFile(name, size, sha256.hexdigest())


def read_index(data: str | Path, index: Index, splits: Mapping[str, Sequence[Shard]]) -> dict[str, list[np.ndarray]]:
    """Return the bytes of the pages of each shard, `uint32[pages]`, by split.

    Raises DatasetError if the file is missing or altered, or its pages do not add up to the bytes of a shard; OutputError.
    """
    content, path = read_checked(data, index), paths.join(data, index.name)
    ordered = [(split, shard) for split in sorted(splits) for shard in splits[split]]
    counts = [-(-shard.records // index.every[split]) for split, shard in ordered]
    sizes, ends = np.frombuffer(content, "<u4", len(content) // 4), list(itertools.accumulate(counts, initial=0))
    read: dict[str, list[np.ndarray]] = {split: [] for split in splits}
    for (split, shard), begin, end in zip(ordered, ends, ends[1:], strict=False):
        pages = sizes[begin:end]
        if len(sizes) != ends[-1] or int(pages.sum(dtype=np.int64)) != shard.bytes:
            raise DatasetError(f"{path} is not the index of {shard.name}. {REPAIR_ADVICE}", code="dataset.altered")
        read[split].append(pages)
    return read


def compressed(numbers: np.ndarray) -> bytes:
    """Return `numbers` compressed: the lengths of a shard's records, int[records, 2], or their origins, int[4, records]."""
    return zlib.compress(numbers.astype("<u4").tobytes(), 1)  # level 1: the quickest


def _numbers_of(shard: bytes) -> np.ndarray:
    """Return the numbers that `compressed` compressed, as uint32[n]; none for b""."""
    return np.frombuffer(zlib.decompress(shard) if shard else b"", "<u4")


def write_lengths(out: str, splits: Mapping[str, Iterable[bytes]], *, longest: int) -> Lengths:
    """Write the lengths of a dataset into the folder `out` atomically, and return the file's description.

    `splits` has, by split, the `compressed` lengths of each shard, or b"" for a shard without records. `longest` is an upper
    bound of all lengths, and decides the bytes of a number. Raises OutputError.
    """
    numbers = "<u1" if longest < 1 << 8 else "<u2" if longest < 1 << 16 else "<u4"
    return _write_records(out, LENGTHS, splits, lambda shard: _numbers_of(shard).astype(numbers).reshape(-1, 2))


def write_origins(out: str, splits: Mapping[str, Sequence[bytes]]) -> Origins:
    """Write the origins of a dataset into the folder `out` atomically, and return the file's description.

    `splits` has, by split, the `compressed` origins of each shard, or b"" for a shard without records. Raises OutputError.
    """
    shards = (_numbers_of(shard).reshape(len(ORIGIN), -1) for split_shards in splits.values() for shard in split_shards)
    column_maxima = functools.reduce(np.maximum, (columns.max(axis=1, initial=0) for columns in shards))
    widths = [next(width for width in _WIDTHS if number < 1 << 8 * width) for number in column_maxima.tolist()]
    entry = _origin(widths)

    def entries(shard: bytes) -> np.ndarray:
        """Return the origins of a shard's records as entries of the file. A number of width 0 has no field."""
        columns = _numbers_of(shard).reshape(len(ORIGIN), -1)
        shard_entries = np.zeros(columns.shape[1], entry)
        for name, column in zip(ORIGIN, columns, strict=True):
            if name in (entry.names or ()):
                shard_entries[name] = column
        return shard_entries

    return Origins(**vars(_write_records(out, ORIGINS, splits, entries)), widths=widths)


def _write_records(
    out: str, name: str, splits: Mapping[str, Iterable[bytes]], entries: Callable[[bytes], np.ndarray]
) -> Lengths:
    """Write the file `name` atomically, and return its description.

    `entries` converts the compressed numbers of a shard to an array with one entry a record, which is written as it is.
    """
    records = dict.fromkeys(sorted(splits), 0)

    def pieces() -> Iterator[bytes]:
        for split in records:
            for shard_entries in map(entries, splits[split]):
                records[split] += len(shard_entries)
                yield shard_entries.tobytes()

    return Lengths(**vars(_written(out, name, pieces())), records=records)


def read_origins(data: str | Path, origins: Origins) -> dict[str, np.ndarray]:
    """Return the origins of the records of each split, in the order of the shards. Packed records have one for each example.

    Each is a structured array. It has the fields of ORIGIN whose width is not 0; `origin` returns any field. Raises
    DatasetError if the file is missing or altered; OutputError.
    """
    content, path = read_checked(data, origins), paths.join(data, origins.name)
    entry = _origin(origins.widths) if set(origins.widths) <= set(_WIDTHS) else np.dtype([])
    is_complete = bool(entry.itemsize) and len(content) == sum(origins.records.values()) * entry.itemsize
    if not is_complete or len(origins.widths) != len(ORIGIN):
        raise DatasetError(
            f"{path} does not have the origins of these records. {REPAIR_ADVICE}", code="dataset.altered"
        )
    return _by_split(np.frombuffer(content, entry), origins.records)


def _by_split(entries: np.ndarray, records: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return the entries of each split, given the entries of all splits in the order of the file."""
    ends = list(itertools.accumulate((count for _, count in sorted(records.items())), initial=0))
    return {split: entries[a:b] for split, a, b in zip(sorted(records), ends, ends[1:], strict=False)}


def origin(entries: np.ndarray, name: str) -> np.ndarray:
    """Return the field `name` of ORIGIN for `entries` of `read_origins`, int64[entries]: zeros if its width is 0."""
    return entries[name].astype(np.int64) if name in (entries.dtype.names or ()) else np.zeros(len(entries), np.int64)


def _origin(widths: Sequence[int]) -> np.dtype:
    """Return the numpy type of an origin, given the `widths` of its numbers in bytes."""
    return np.dtype([(name, f"<u{width}") for name, width in zip(ORIGIN, widths, strict=False) if width])


def read_lengths(data: str | Path, lengths: Lengths, *, records: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return the input and target tokens of each record, uint[records, 2], in the order of the shards, by split.

    `records` has the expected number of records of the splits that the caller needs. Raises DatasetError if the file is
    missing, altered, or has another number of records for one of them; OutputError.
    """
    content, path = read_checked(data, lengths), paths.join(data, lengths.name)
    total = sum(lengths.records.values())
    wrong = [split for split, count in records.items() if count != lengths.records[split]]
    if wrong or total == 0 or len(content) not in (2 * total, 4 * total, 8 * total):
        raise DatasetError(
            f"{path} does not have the lengths of the split {', '.join(wrong or records)}. {REPAIR_ADVICE}",
            code="dataset.altered",
        )
    entries = np.frombuffer(content, f"<u{len(content) // (2 * total)}")
    return _by_split(entries.reshape(-1, 2), lengths.records)


def read_checked(data: str | Path, file: SideFile) -> bytes:
    """Return the content of a file in the folder `data`. Raises DatasetError if it is missing or altered; OutputError."""
    path = paths.join(data, file.name)
    try:
        content = paths.read(path)
    except OSError as error:
        reason = error.strerror or "not found"
        raise DatasetError(
            f"{path} cannot be read ({reason}), but the manifest names it. {REPAIR_ADVICE}", code="dataset.unreadable"
        ) from error
    if len(content) != file.bytes:
        raise DatasetError(
            f"{path} has {len(content):,} bytes, but the manifest says {file.bytes:,}. {REPAIR_ADVICE}",
            code="dataset.altered",
        )
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != file.sha256:
        raise DatasetError(
            f"{path} has SHA-256 {sha256[:12]}…, but the manifest says {file.sha256[:12]}…. {REPAIR_ADVICE}",
            code="dataset.altered",
        )
    return content

"""Name the shards of a dataset, and keep three files beside them: of what stands in shards, and of where it comes from.

`shards.index` has how many bytes each page of records has, so that a reader can begin anywhere: one little-endian uint32 a
page. `shards.lengths` has how many tokens each record has: two little-endian numbers a record, its input and its target
tokens. `shards.origins` has where each record comes from and what was cut: the numbers of ORIGIN. In all of them, splits are
in the order of their names, shards in the order of their numbers, and pages or records in the order of the shard. The
manifest names the files with their checksums.
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
# What is known of the origin of a record: the number of its file among the source's, its row, and the tokens that were cut.
ORIGIN = ("file", "row", "input_cut", "target_cut")
# A split has about this many pages, so that an order of pages is nearly an order of records ...
_PAGES = 4096
# ... but a page has at least 8 records and at most 64, or in a split of more than 2^20 such pages at most 256: then the
# index of two terabytes of 512 tokens each has 32 MB.
_FEWEST, _USUAL, _MAX_PAGE_RECORDS, _MOST_PAGES = 8, 64, 256, 1 << 20
# Larger splits have no lengths and origins: while a dataset is prepared, those of all its records are in one process, compressed.
MOST_RECORDS = 1 << 24
# What to do about a file that is missing or altered.
AGAIN = "Prepare the dataset again, or copy this file again from where it was made."
_WIDTHS = (0, 1, 2, 4)
_SHARD = re.compile(r".+\.tfrecord-\d{5,}-of-\d{5,}")


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """Describe one TFRecord file: its name beside the manifest, its records, bytes and SHA-256."""

    name: str
    records: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class SideFile:
    """Describe a file beside the shards: its name, how many bytes it has, and their SHA-256 (hex)."""

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Index(SideFile):
    """Describe the file of an index, and the number of records in a page of each split: the last one of a shard may have fewer."""

    every: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Lengths(SideFile):
    """Describe the file of lengths, and the records of each split that is in it."""

    records: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Origins(Lengths):
    """Describe the file of origins as Lengths does, and how many bytes each number of ORIGIN has there: 0, 1, 2 or 4.

    One with no bytes is 0 for all records. Of packed records, `records` counts the examples in them.
    """

    widths: list[int]


def name(split: str, number: int, shards: int) -> str:
    """Return the file name of one of a split's shards.

    >>> name("train", 3, 16)
    'train.tfrecord-00003-of-00016'
    """
    return f"{split}.tfrecord-{number:05d}-of-{shards:05d}"


def is_shard(file: str) -> bool:
    """Return whether a file's name is that of a shard.

    >>> is_shard("train.tfrecord-00003-of-00016"), is_shard("manifest.json")
    (True, False)
    """
    return bool(_SHARD.fullmatch(file))


def strays(files: Iterable[str], manifest_shards: Iterable[str]) -> list[str]:
    """Return the shards among some files that are not among those that a manifest names, in order."""
    return sorted(set(filter(is_shard, files)) - set(manifest_shards))


def spacing(records: int) -> int:
    """Return how many records a page of a split with this many records has: a power of two.

    >>> [spacing(records) for records in (100, 100_000, 1_000_000, 2_000_000_000)]
    [8, 16, 64, 256]
    """
    page_capacity = min(_USUAL, records // _PAGES)
    if records > _USUAL * _MOST_PAGES:
        page_capacity = min(_MAX_PAGE_RECORDS, records // _MOST_PAGES)
    return 1 << (max(_FEWEST, page_capacity).bit_length() - 1)


def page_sizes(sizes: np.ndarray, *, every: int) -> np.ndarray:
    """Return the bytes of each page, `uint32[pages]`, from the bytes of each record of a shard, `int[records]`.

    >>> page_sizes(np.array([5, 6, 7, 8, 9]), every=2).tolist()
    [11, 15, 9]
    """
    if not len(sizes):
        return np.zeros(0, "<u4")
    return np.add.reduceat(sizes.astype(np.int64), np.arange(0, len(sizes), every)).astype("<u4")


def page_records(shard: Shard, pages: int, *, every: int) -> np.ndarray:
    """Return the records of each page of a shard, int64[pages]: the last one may have fewer than `every`.

    >>> page_records(Shard("", records=20, bytes=0, sha256=""), 3, every=8).tolist()
    [8, 8, 4]
    """
    return np.minimum(every, shard.records - every * np.arange(pages))


def write_index(out: str, shards: Iterable[bytes], *, every: Mapping[str, int]) -> Index:
    """Write the index of a dataset, whole, and return its description.

    `shards` are the page sizes of each shard as bytes, splits in the order of their names. Raises OutputError.
    """
    return Index(**vars(_written(out, INDEX, shards)), every=dict(sorted(every.items())))


def _written(out: str, name: str, pieces: Iterable[bytes]) -> SideFile:
    """Write a file of some pieces, whole, and return its description."""
    size, sha256 = 0, hashlib.sha256()
    with paths.open_atomic(paths.join(out, name)) as file:
        for piece in pieces:
            file.write(piece)
            sha256.update(piece)
            size += len(piece)
    return SideFile(name, size, sha256.hexdigest())


def read_index(data: str | Path, index: Index, splits: Mapping[str, Sequence[Shard]]) -> dict[str, list[np.ndarray]]:
    """Return the bytes of each page of each shard, `uint32[pages]`, by split, after checking them against the shards.

    Raises DatasetError if the file is missing, altered, or not the index of these shards; OutputError.
    """
    content, path = read_checked(data, index), paths.join(data, index.name)
    ordered = [(split, shard) for split in sorted(splits) for shard in splits[split]]
    counts = [-(-shard.records // index.every[split]) for split, shard in ordered]
    sizes, ends = np.frombuffer(content, "<u4", len(content) // 4), list(itertools.accumulate(counts, initial=0))
    read: dict[str, list[np.ndarray]] = {split: [] for split in splits}
    for (split, shard), begin, end in zip(ordered, ends, ends[1:], strict=False):
        pages = sizes[begin:end]
        if len(sizes) != ends[-1] or int(pages.sum(dtype=np.int64)) != shard.bytes:
            raise DatasetError(f"{path} is not the index of {shard.name}. {AGAIN}")
        read[split].append(pages)
    return read


def compressed(numbers: np.ndarray) -> bytes:
    """Return the lengths of a shard's records, int[records, 2], or their origins, int[4, records], in few bytes."""
    return zlib.compress(numbers.astype("<u4").tobytes(), 1)


def _numbers_of(shard: bytes) -> np.ndarray:
    """Return the numbers that `compressed` made few bytes of: uint32[n]; none of b""."""
    return np.frombuffer(zlib.decompress(shard) if shard else b"", "<u4")


def write_lengths(out: str, splits: Mapping[str, Iterable[bytes]], *, longest: int) -> Lengths:
    """Write the lengths of a dataset, whole, and return the file's description. Raises OutputError.

    `splits` are those of each shard, `compressed` (b"" of one without records), by the names of splits; no length is above
    `longest`.
    """
    numbers = "<u1" if longest < 1 << 8 else "<u2" if longest < 1 << 16 else "<u4"
    return _write_records(out, LENGTHS, splits, lambda shard: _numbers_of(shard).astype(numbers).reshape(-1, 2))


def write_origins(out: str, splits: Mapping[str, Sequence[bytes]]) -> Origins:
    """Write the origins of a dataset, whole, and return the file's description; `splits` are as for `write_lengths`.

    Raises OutputError.
    """
    shards = (_numbers_of(shard).reshape(len(ORIGIN), -1) for split_shards in splits.values() for shard in split_shards)
    column_maxima = functools.reduce(np.maximum, (columns.max(axis=1, initial=0) for columns in shards))
    widths = [next(width for width in _WIDTHS if number < 1 << 8 * width) for number in column_maxima.tolist()]
    entry = _origin(widths)

    def entries(shard: bytes) -> np.ndarray:
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
    """Write a file of what `entries` makes of each shard, one for each of its records, and return its description."""
    records = dict.fromkeys(sorted(splits), 0)

    def pieces() -> Iterator[bytes]:
        for split in records:
            for shard_entries in map(entries, splits[split]):
                records[split] += len(shard_entries)
                yield shard_entries.tobytes()

    return Lengths(**vars(_written(out, name, pieces())), records=records)


def read_origins(data: str | Path, origins: Origins) -> dict[str, np.ndarray]:
    """Return the origin of each record, or each example of packed ones, in the order of the shards, by split.

    Each is an array of the fields of ORIGIN that have bytes. Raises DatasetError if the file is missing or altered; OutputError.
    """
    content, path = read_checked(data, origins), paths.join(data, origins.name)
    entry = _origin(origins.widths) if set(origins.widths) <= set(_WIDTHS) else np.dtype([])
    is_complete = bool(entry.itemsize) and len(content) == sum(origins.records.values()) * entry.itemsize
    if not is_complete or len(origins.widths) != len(ORIGIN):
        raise DatasetError(f"{path} does not have the origins of these records. {AGAIN}")
    return _by_split(np.frombuffer(content, entry), origins.records)


def _by_split(entries: np.ndarray, records: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return the entries of each split's records, given those of all."""
    ends = list(itertools.accumulate((count for _, count in sorted(records.items())), initial=0))
    return {split: entries[a:b] for split, a, b in zip(sorted(records), ends, ends[1:], strict=False)}


def origin(entries: np.ndarray, name: str) -> np.ndarray:
    """Return one number of ORIGIN of some entries of `read_origins`: int64[entries]."""
    return entries[name].astype(np.int64) if name in (entries.dtype.names or ()) else np.zeros(len(entries), np.int64)


def _origin(widths: Sequence[int]) -> np.dtype:
    """Return the type of an entry of the origins."""
    return np.dtype([(name, f"<u{width}") for name, width in zip(ORIGIN, widths, strict=False) if width])


def read_lengths(data: str | Path, lengths: Lengths, *, records: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return the input and target tokens of each record, uint[records, 2], in the order of the shards, by split.

    `records` are those of some splits. Raises DatasetError if the file is missing, altered, or has others; OutputError.
    """
    content, path = read_checked(data, lengths), paths.join(data, lengths.name)
    total = sum(lengths.records.values())
    wrong = [split for split, count in records.items() if count != lengths.records[split]]
    if wrong or total == 0 or len(content) not in (2 * total, 4 * total, 8 * total):
        raise DatasetError(f"{path} does not have the lengths of the split {', '.join(wrong or records)}. {AGAIN}")
    entries = np.frombuffer(content, f"<u{len(content) // (2 * total)}")
    return _by_split(entries.reshape(-1, 2), lengths.records)


def read_checked(data: str | Path, file: SideFile) -> bytes:
    """Return the bytes of a file beside the manifest. Raises DatasetError if it is missing or altered; OutputError."""
    path = paths.join(data, file.name)
    try:
        content = paths.read(path)
    except OSError as error:
        reason = error.strerror or "not found"
        raise DatasetError(f"{path} cannot be read ({reason}), but the manifest names it. {AGAIN}") from error
    if len(content) != file.bytes:
        raise DatasetError(f"{path} has {len(content):,} bytes, the manifest says {file.bytes:,}. {AGAIN}")
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != file.sha256:
        raise DatasetError(f"{path} has SHA-256 {sha256[:12]}…, the manifest says {file.sha256[:12]}…. {AGAIN}")
    return content

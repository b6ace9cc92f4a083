"""Keep how many tokens each record of a dataset has, so that a reader can part records by length without reading them.

The file `shards.lengths` stands beside the index. It holds two little-endian numbers a record, its input and its target
tokens: splits in the order of their names, shards in the order of their numbers, records in the order of the shard.
"""

import dataclasses
import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from t5prep.dataset import checked_file
from t5prep.errors import DatasetError
from t5prep.io import paths

NAME = "shards.lengths"
# Larger splits have none: while a dataset is prepared, the lengths of all its records are in one process, compressed.
MOST_RECORDS = 1 << 24


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Describe the file of lengths: its name, its bytes and SHA-256, and the records of each split that is in it."""

    name: str
    bytes: int
    sha256: str
    records: dict[str, int]


def compressed(lengths: np.ndarray) -> bytes:
    """Return the lengths of a shard's records, int[records, 2], in few bytes."""
    return zlib.compress(lengths.astype("<u4").tobytes(), 1)


def write(out: str, splits: Mapping[str, Iterable[bytes]], *, longest: int) -> Lengths:
    """Write the lengths of a dataset, whole, and return the file's description. Raises OutputError.

    `splits` are those of each shard, `compressed` (b"" of one without records), by the names of splits; no length is above
    `longest`.
    """
    numbers, size, sha256, records = _numbers(longest), 0, hashlib.sha256(), {}
    with paths.whole(paths.at(out, NAME)) as file:
        for split in sorted(splits):
            begin = size
            for shard in splits[split]:
                content = np.frombuffer(zlib.decompress(shard) if shard else b"", "<u4").astype(numbers).tobytes()
                file.write(content)
                sha256.update(content)
                size += len(content)
            records[split] = (size - begin) // (2 * numbers.itemsize)
    return Lengths(NAME, size, sha256.hexdigest(), records)


def read(data: str | Path, lengths: Lengths, *, split: str, counts: Sequence[int]) -> np.ndarray:
    """Return the input and target tokens of each record of a split, int32[records, 2], in the order of its shards.

    `counts` are the records of its shards. Raises DatasetError where the file is missing, altered, or of other shards;
    OutputError.
    """
    numbers, content = _checked(data, lengths, {split: sum(counts)})
    own = lengths.records[split]
    before = sum(records for name, records in lengths.records.items() if name < split)
    part = np.frombuffer(content, numbers, 2 * own, offset=2 * before * numbers.itemsize)
    return part.astype(np.int32).reshape(own, 2)


def check(data: str | Path, lengths: Lengths, *, records: Mapping[str, int]) -> None:
    """Read the file once, and raise what `read` raises for one of the splits in it; `records` are those of every split."""
    _checked(data, lengths, {split: records[split] for split in lengths.records})


def _checked(data: str | Path, lengths: Lengths, records: Mapping[str, int]) -> tuple[np.dtype, bytes]:
    """Return the type of the numbers in the file, and its bytes. Raises DatasetError where splits have other `records`."""
    content, path = checked_file.read(data, lengths), paths.at(data, lengths.name)
    total = sum(lengths.records.values())
    for split, own in records.items():
        if own != lengths.records[split] or total == 0 or len(content) not in (2 * total, 4 * total, 8 * total):
            raise DatasetError(f"{path} does not have the lengths of the split {split}. {checked_file.AGAIN}")
    return np.dtype(f"<u{len(content) // (2 * total)}"), content


def _numbers(longest: int) -> np.dtype:
    """Return the type of the smallest numbers that hold a length."""
    return np.dtype("<u1" if longest < 1 << 8 else "<u2" if longest < 1 << 16 else "<u4")

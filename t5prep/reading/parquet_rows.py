"""Read the rows of Parquet files by row groups. Bytes that are UTF-8 become text."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.reading import rows
from t5prep.reading.rows import Record, Row
from t5prep.sources import RawFile

# The size of a part of a row group: so small that all workers finish at about the same time. Only the beginning of a group can
# be looked up, so a part decodes what stands before it unless this process has just read that: larger groups have larger parts.
PART_BYTES, LARGEST_PART_BYTES, PARTS_OF_GROUP = 4 << 20, 16 << 20, 8
_BATCH_ROWS = 2048  # rows read at once, so that a large group is never all in memory as Python objects


class Part(NamedTuple):
    """Some rows of a row group: the group, its rows to skip, the first row's number, how many rows and bytes.

    The file stores `packing` bytes for each of these.
    """

    group: int
    skip: int
    first: int
    rows: int
    bytes: int
    packing: float = 1.0


def parts(file: BinaryIO, *, name: str) -> tuple[tuple[str, ...], list[Part]]:
    """Return the columns of an open Parquet file, and the parts in which it is read. Raises SourceError."""
    try:
        opened = pyarrow.parquet.ParquetFile(file)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise SourceError(f"{name} is not a Parquet file ({error}).") from error
    parts, first = [], 1
    for number in range(opened.num_row_groups):
        group = opened.metadata.row_group(number)
        stored = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
        size = max(PART_BYTES, min(LARGEST_PART_BYTES, -(-group.total_byte_size // PARTS_OF_GROUP)))
        count = max(1, -(-group.total_byte_size // size))
        edges = [group.num_rows * part // count for part in range(count + 1)]
        for skip, end in itertools.pairwise(edges):
            size = group.total_byte_size * (end - skip) // max(1, group.num_rows)
            parts.append(Part(number, skip, first + skip, end - skip, size, stored / max(1, group.total_byte_size)))
        first += group.num_rows
    return tuple(opened.schema_arrow.names), parts


@dataclasses.dataclass
class _Group:
    """A row group of a file that is being read: which one and its columns, and how many of its rows are read, `at`.

    `rest` are rows after these that are decoded already.
    """

    of: tuple[RawFile, int, tuple[str, ...]]
    opened: BinaryIO
    batches: Iterator[pa.RecordBatch]
    at: int = 0
    rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> pa.RecordBatch:
        """Return the next rows, at most so many. Raises EOFError where there are no more."""
        batch = next(self.batches, None) if self.rest is None else self.rest
        if batch is None:
            raise EOFError
        self.rest = batch.slice(rows) if rows < batch.num_rows else None
        self.at += min(rows, batch.num_rows)
        return batch.slice(0, rows)


# The row group that this process read last, under 0: the next part of it goes on where that one ended.
_LAST: dict[int, _Group] = {}


def batches(file: RawFile, part: Part, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part as Arrow columns, some thousand at a time.

    Raises SourceError if the file is damaged.
    """
    of = (file, part.group, tuple(columns))
    group = _LAST.pop(0, None)  # another thread does not find it
    if group is not None and (group.of != of or group.at > part.skip):
        group.opened.close()
        group = None
    try:
        if group is None:
            opened = sources.open_random(file)
            reader = pyarrow.parquet.ParquetFile(opened)
            group = _Group(of, opened, reader.iter_batches(_BATCH_ROWS, [part.group], list(columns)))
        while group.at < part.skip:
            group.take(part.skip - group.at)
        while left := part.skip + part.rows - group.at:
            yield group.take(left)
    except EOFError:
        return
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{file.name} cannot be read ({error}). Fetch it again.") from error
    _LAST[0] = group


def rows_of(batches: Iterable[pa.RecordBatch], *, first: int, checked: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of batches, numbered from `first` on; in columns that are `checked`, a value that is not text is a reason.

    Columns that lead into others (`answers.text`) are added to the rows.
    """
    records = (record for batch in batches for record in _records(batch))
    for number, record in enumerate(records, first):
        if isinstance(record, str):
            yield Row(number, None, record)
            continue
        record = rows.with_paths(record, checked)
        if reason := rows.nul(record) or (rows.not_text(record, checked) if checked else ""):
            yield Row(number, None, reason)
        else:
            yield Row(number, record)


def _records(batch: pa.RecordBatch) -> Iterator[Record | str]:
    """Yield the rows of a batch, or the reason where a row cannot be read.

    Arrow does not check that text is UTF-8, and has times that Python has not.
    """
    if not batch.num_columns:
        yield from ({} for _ in range(batch.num_rows))
        return
    holds_bytes = any(_holds_bytes(field.type) for field in batch.schema)
    try:
        records = batch.to_pylist()
    except (ValueError, OverflowError):  # UnicodeDecodeError is a ValueError
        records = None
    if records is not None and not holds_bytes:
        yield from records
        return
    for i in range(batch.num_rows):
        try:
            record = records[i] if records is not None else batch.slice(i, 1).to_pylist()[0]
            yield {name: _text(value) for name, value in record.items()}
        except UnicodeDecodeError as error:
            yield f"not utf-8: byte 0x{error.object[error.start]:02x}"
        except (ValueError, OverflowError) as error:
            yield f"not text: a value that Python cannot hold ({error})"


def _holds_bytes(type: pa.DataType) -> bool:
    """Check whether values of a type are bytes or contain bytes."""
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    if any(is_kind(type) for is_kind in kinds):
        return True
    if pa.types.is_dictionary(type):
        return _holds_bytes(type.value_type)
    return any(_holds_bytes(type.field(i).type) for i in range(type.num_fields))


def _text(value: Any) -> Any:
    """Return a value with its bytes decoded as text. Raises UnicodeDecodeError."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_text(one) for one in value]
    if isinstance(value, tuple):  # an entry of a map
        return tuple(_text(one) for one in value)
    return {name: _text(one) for name, one in value.items()} if isinstance(value, dict) else value

"""Read the rows of Parquet files by row groups. Bytes that are UTF-8 become text."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from t5prep.errors import SourceError
from t5prep.reading import rows
from t5prep.reading.rows import Record, Row

# The size of a part of a row group. Each part decodes the group from its beginning, so parts are larger than blocks.
PART_BYTES = 16 << 20
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
        count = max(1, -(-group.total_byte_size // PART_BYTES))
        stored = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
        edges = [group.num_rows * part // count for part in range(count + 1)]
        for skip, end in itertools.pairwise(edges):
            size = group.total_byte_size * (end - skip) // max(1, group.num_rows)
            parts.append(Part(number, skip, first + skip, end - skip, size, stored / max(1, group.total_byte_size)))
        first += group.num_rows
    return tuple(opened.schema_arrow.names), parts


def batches(file: BinaryIO, part: Part, *, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part as Arrow columns, some thousand at a time.

    Raises SourceError if the file is damaged.
    """
    skip, rows = part.skip, part.rows
    try:
        opened = pyarrow.parquet.ParquetFile(file)
        for batch in opened.iter_batches(batch_size=_BATCH_ROWS, row_groups=[part.group], columns=list(columns)):
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            some = batch.slice(skip, rows)
            skip, rows = 0, rows - some.num_rows
            yield some
            if not rows:
                return
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{name} cannot be read ({error}). Fetch it again.") from error


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

"""Read the rows of Parquet files by row groups. Binary values that are UTF-8 become text."""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.reading import rows
from t5prep.reading.rows import Record, Row, Value
from t5prep.sources import RawFile
from t5prep.sources.arrow_floats import with_shortest_floats

# Size of a part of a row group, by the mean of the group; a part with long rows has several times as many bytes. A
# group can only be decoded from its beginning. So a part decodes all rows before it, unless this process has just
# read these. See docs/decisions/024-decode-a-row-group-once.md
PART_BYTES = 4 << 20
_READ_BYTES = 1 << 20
# A forged size of a row group would make millions of parts. This many have 16 GiB, more than any writer's group.
_MOST_PARTS = 4096
_BATCH_ROWS = 2048  # rows converted at once, to bound the memory of Python objects


class Part(NamedTuple):
    """Some rows of a row group.

    `group` is its number, `skip` the rows of it before the part, and `first` the number of the first row in the file.
    `bytes` is the size of the rows, and the file stores `packing` bytes for each of these.
    """

    group: int
    skip: int
    first: int
    rows: int
    bytes: int
    packing: float = 1.0


def parts(file: BinaryIO, *, name: str) -> tuple[tuple[str, ...], list[Part]]:
    """Return the columns of an open Parquet file, and the parts in which it is read. Raises SourceError."""
    import pyarrow.parquet

    try:
        opened = pyarrow.parquet.ParquetFile(file)
        names = tuple(opened.schema_arrow.names)
        # Checked here, because a name that is not UTF-8 would fail later, in a worker.
        for column in range(opened.metadata.num_columns):
            opened.metadata.schema.column(column).path.encode()
    except UnicodeError as error:
        raise SourceError(
            f"{name} has a column whose name is not UTF-8 ({error}). Rename the column with the program "
            "that wrote the file.",
            code="column.invalid-name",
        ) from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise SourceError(f"{name} is not a Parquet file ({error}).", code="file.damaged") from error
    groups = [opened.metadata.row_group(number) for number in range(opened.num_row_groups)]
    if sum(group.num_rows for group in groups) != opened.metadata.num_rows:
        raise SourceError(
            f"{name} is damaged: its row groups do not have the number of rows in its footer. Fetch the file again.",
            code="file.damaged",
        )
    packing = file.seek(0, io.SEEK_END) / max(1, sum(group.total_byte_size for group in groups))
    parts, first = [], 1
    for number, group in enumerate(groups):
        count = max(1, min(-(-group.total_byte_size // PART_BYTES), group.num_rows, _MOST_PARTS))
        edges = [group.num_rows * part // count for part in range(count + 1)]
        for skip, end in itertools.pairwise(edges):
            size = group.total_byte_size * (end - skip) // max(1, group.num_rows)
            parts.append(Part(number, skip, first + skip, end - skip, size, packing))
        first += group.num_rows
    return names, parts


@dataclasses.dataclass
class _Group:
    """An open row group.

    * `key`: its file and number.
    * `columns`: the columns that `batches` decodes.
    * `rows_read`: the number of rows that were taken.
    * `remaining_batch`: rows after these that are decoded already.
    * `digests`: digests of stored bytes, by column names.
    """

    key: tuple[RawFile, int]
    opened: BinaryIO
    reader: "pa.parquet.ParquetFile"
    columns: tuple[str, ...] | None = None
    batches: Iterator[pa.RecordBatch] = dataclasses.field(init=False)
    rows_read: int = 0
    remaining_batch: pa.RecordBatch | None = None
    digests: dict[tuple[str, ...], bytes] = dataclasses.field(default_factory=dict)

    def go_to(self, row: int, columns: tuple[str, ...]) -> None:
        """Move to a row, so that `take` returns `columns` from there. Earlier rows are decoded again. Raises EOFError."""
        if self.columns != columns or self.rows_read > row:
            self.columns, self.rows_read, self.remaining_batch = columns, 0, None
            self.batches = self.reader.iter_batches(_BATCH_ROWS, [self.key[1]], list(columns))
        while self.rows_read < row:
            self.take(row - self.rows_read)

    def take(self, rows: int) -> pa.RecordBatch:
        """Return the next rows, at most `rows`. Raises EOFError if there are no more."""
        batch = next(self.batches, None) if self.remaining_batch is None else self.remaining_batch
        if batch is None:
            raise EOFError
        self.remaining_batch = batch.slice(rows) if rows < batch.num_rows else None
        self.rows_read += min(rows, batch.num_rows)
        return batch.slice(0, rows)


# `group` is the last row group of this thread, because the next part usually continues it.
_LAST = threading.local()


@contextlib.contextmanager
def _group(file: RawFile, number: int) -> Iterator[_Group]:
    """Yield a row group. It stays open, because the next call probably needs the same one. Raises SourceError."""
    import pyarrow.parquet

    group = _LAST.__dict__.pop("group", None)
    try:
        if group is None or group.key != (file, number):
            if group is not None:
                group.opened.close()
            opened = sources.open_random(file)
            # By default Arrow prefetches all stored bytes of a row group. That is right for a remote file, and wastes
            # memory for a local one.
            open_options = {} if "://" in file.path else {"pre_buffer": False, "buffer_size": _READ_BYTES}
            group = _Group((file, number), opened, pyarrow.parquet.ParquetFile(opened, **open_options))
        yield group
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{file.name} cannot be read ({error}). Fetch the file again.", code="file.damaged"
        ) from error
    _LAST.group = group


def batches(file: RawFile, part: Part, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part as Arrow columns, up to 2,048 rows at a time.

    Raises SourceError if the file is damaged.
    """
    with contextlib.suppress(EOFError), _group(file, part.group) as group:
        group.go_to(part.skip, tuple(columns))
        while remaining_rows := part.skip + part.rows - group.rows_read:
            yield with_shortest_floats(group.take(remaining_rows))


def digest(file: RawFile, number: int, *, columns: Sequence[str]) -> bytes:
    """Return the digest of the stored bytes of a row group's columns (none named: all). Raises SourceError."""
    with _group(file, number) as group:
        if (column_names := tuple(columns)) not in group.digests:
            hasher, metadata = hashlib.blake2b(digest_size=20), group.reader.metadata
            roots = rows.roots(columns)
            # For a damaged chunk, `RowGroupMetaData.column` raises no error but aborts the process. Arrow's reader checks
            # each chunk and raises one.
            next(group.reader.iter_batches(1, [number], list(roots) or None), None)
            needed = tuple(f"{name}." for name in roots)  # a name may contain dots
            for index in range(metadata.num_columns):
                # The name comes from the schema. Arrow finds a column's chunk by index, and the chunk's own copy of
                # the name may be any bytes.
                name = metadata.schema.column(index).path
                if columns and not f"{name}.".startswith(needed):
                    continue
                chunk = metadata.row_group(number).column(index)
                offsets = (chunk.dictionary_page_offset, chunk.data_page_offset)
                group.opened.seek(min((offset for offset in offsets if offset and offset > 0), default=0))
                hasher.update(f"{name} {chunk.physical_type} {chunk.compression} ".encode())
                remaining_bytes = chunk.total_compressed_size
                while remaining_bytes > 0 and (piece := group.opened.read(min(_READ_BYTES, remaining_bytes))):
                    hasher.update(piece)
                    remaining_bytes -= len(piece)
            group.digests[column_names] = hasher.digest()
        return group.digests[column_names]


def rows_of(batches: Iterable[pa.RecordBatch], *, first: int, checked: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of batches, numbered from `first` on. A value in `checked` columns that is not text rejects its row.

    Values at paths in `checked` (`answers.text`) are added to the rows as columns.
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
    """Yield the rows of a batch, or for an unreadable row the reason.

    Arrow does not check that text is UTF-8, and its times have a wider range than Python's.
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


def _text(value: Value) -> Value:
    """Return a value with its bytes decoded as text. Raises UnicodeDecodeError."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_text(element) for element in value]
    if isinstance(value, tuple):  # an entry of a map
        return tuple(_text(element) for element in value)
    return {name: _text(element) for name, element in value.items()} if isinstance(value, dict) else value

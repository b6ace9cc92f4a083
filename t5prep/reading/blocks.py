"""Cutting files into blocks of some thousand rows, without parsing them.

A block is a reference (a file and a range of it) where the file can be read anywhere, and carries its bytes where it
cannot (gzip, a zip member, UTF-16). Finding where rows end costs a thousandth of tokenizing them, so one process cuts
and all the others work.
"""

import codecs
import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow.parquet

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.reading import formats
from t5prep.reading.formats import Format
from t5prep.reading.rows import Row
from t5prep.sources import RawFile

BLOCK_BYTES = 2 << 20  # 2 MiB: an eighth of a second of tokenizing, so that the last blocks end together
# A part of a Parquet row group: its beginning is decoded again for each, so they are fewer.
PARQUET_BYTES = 16 << 20
SNIFFED_BYTES = 1 << 20
# A row longer than this is a quote that was never closed.
LONGEST_ROW_BYTES = 256 << 20


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows of one file. `size` is in bytes; for Parquet `begin` is the number of a row group.

    `skip` are the rows of that row group before the first. `regular` where a CSV's quotes keep to RFC 4180.
    """

    file: RawFile
    format: Format
    columns: tuple[str, ...]
    first_row: int
    rows: int
    begin: int
    size: int
    data: bytes | None = None
    skip: int = 0
    regular: bool = False


def scan(file: RawFile, format: Format, *, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The blocks of a file, in order. Raises SourceError for a file with no rows or in another encoding."""
    if format.kind == "parquet":
        yield from _scan_parquet(file, format)
        return
    with sources.open_stream(file) as stream:
        seekable = not file.member and not file.name.lower().endswith(formats.PACKED) and "://" not in file.path
        head = stream.read(SNIFFED_BYTES)
        bom = next((mark for mark in _BOMS if head.startswith(mark)), b"")
        if bom and bom != codecs.BOM_UTF8:
            format = dataclasses.replace(format, encoding=_BOMS[bom])
        formats.check_encoding(head[len(bom) :], format, name=file.name)
        recoded = codecs.lookup(format.encoding).name.startswith(("utf-16", "utf-32"))
        if recoded:
            reader: _Readable = _Recoded(stream, head[len(bom) :], format.encoding)
            format = dataclasses.replace(format, encoding="utf-8")
        else:
            reader = _Pushed(stream, head[len(bom) :])
        yield from _scan_rows(reader, file, format, origin=len(bom), inline=recoded or not seekable, size=block_bytes)


_BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16, whose mark its own begins with
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def read(block: Block, *, columns: tuple[str, ...] = ()) -> Iterator[Row]:
    """The rows of a block. `columns` are those that will be asked for: others may not be read."""
    if block.format.kind == "parquet":
        with sources.open_random(block.file) as file:
            wanted = [column for column in block.columns if not columns or column in columns]
            rows = formats.parquet_rows(
                file, block.begin, columns=wanted, first=block.first_row - block.skip, skip=block.skip
            )
            yield from _at_most(rows, block)
        return
    rows = formats.rows(
        content(block),
        block.format,
        columns=block.columns,
        first=block.first_row,
        wanted=columns,
        regular=block.regular,
    )
    yield from _at_most(rows, block)


def content(block: Block) -> bytes:
    """The bytes of a block of text rows."""
    if block.data is not None:
        return block.data
    with open(block.file.path, "rb") as file:
        file.seek(block.begin)
        data = file.read(block.size)
    if len(data) != block.size:
        raise SourceError(f"{block.file.path} became shorter while it was read. Let it be written to its end first.")
    return data


def _at_most(rows: Iterator[Row], block: Block) -> Iterator[Row]:
    for row in rows:
        if row.number >= block.first_row + block.rows:
            return
        yield row


def _scan_parquet(file: RawFile, format: Format) -> Iterator[Block]:
    with sources.open_random(file) as opened:
        try:
            table = pyarrow.parquet.ParquetFile(opened)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise SourceError(f"{file.name} is not a Parquet file ({error}).") from error
        columns = tuple(table.schema_arrow.names)
        first = 1
        for number in range(table.num_row_groups):
            group = table.metadata.row_group(number)
            parts = max(1, -(-group.total_byte_size // PARQUET_BYTES))
            edges = [group.num_rows * part // parts for part in range(parts + 1)]
            for skip, end in itertools.pairwise(edges):
                size = group.total_byte_size * (end - skip) // max(1, group.num_rows)
                yield Block(file, format, columns, first + skip, end - skip, number, size, skip=skip)
            first += group.num_rows


def _scan_rows(
    reader: _Readable, file: RawFile, format: Format, *, origin: int, inline: bool, size: int
) -> Iterator[Block]:
    buffer, offset, first = b"", origin, 1
    columns: tuple[str, ...] = ("text",) if format.kind == "text" else ()
    headed = format.kind in ("csv", "tsv")
    wanted = size
    while True:
        chunk = reader.read(wanted)
        final = not chunk
        buffer += chunk
        if headed and not columns:
            end = _end_of_rows(buffer, format, final=final, most=1).end
            if not end and not final:
                continue
            header = next(formats.split_csv(buffer[:end].decode(format.encoding)), ([], 0))[0]
            if format.kind == "tsv":
                header = buffer[:end].decode(format.encoding).rstrip("\r\n").split("\t")
            if isinstance(header, str) or not "".join(header).strip():
                raise SourceError(f"{file.name} is empty or has no header line; the first line must name the columns.")
            columns = tuple(header)
            buffer, offset = buffer[end:], offset + end
        end, rows, regular = _end_of_rows(buffer, format, final=final or len(buffer) > LONGEST_ROW_BYTES)
        if end:
            data = buffer[:end] if inline else None
            yield Block(file, format, columns, first, rows, offset, end, data, regular=regular)
            buffer, offset, first = buffer[end:], offset + end, first + rows
        # A row longer than a block: read twice as much each time, so that looking for its end stays linear.
        wanted = max(size, len(buffer))
        if final:
            return


class _Rows(NamedTuple):
    """Where whole rows end in a buffer, how many there are until then, and whether they are CSV of one reading only."""

    end: int
    rows: int
    regular: bool


def _end_of_rows(buffer: bytes, format: Format, *, final: bool, most: int = 0) -> _Rows:
    """The whole rows of the buffer, or the first `most` of them."""
    if format.quoted and b'"' in buffer:
        if not most and (found := _end_by_quotes(buffer, final=final)) is not None:
            return _Rows(*found, True)
        return _Rows(*_end_by_parsing(buffer, format, final=final, most=most), False)
    if most:
        end = buffer.find(b"\n") + 1
        return _Rows(end if end or not final else len(buffer), 1, format.quoted)
    if final:
        return _Rows(len(buffer), buffer.count(b"\n") + (not buffer.endswith(b"\n") and bool(buffer)), format.quoted)
    end = buffer.rfind(b"\n") + 1
    return _Rows(end, buffer.count(b"\n", 0, end), format.quoted)


def _end_by_quotes(buffer: bytes, *, final: bool) -> tuple[int, int] | None:
    """The same for CSV that keeps to RFC 4180: what stands between two quoted fields begins and ends a field.

    None where it does not (`5" disk,`), and the rows have to be parsed.
    """
    data = np.frombuffer(buffer, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    # A quote beside another is half of a doubled one: it closes the field, and the other opens it again.
    opening, closing = quotes[::2], quotes[1::2]
    before, after = data[opening[opening > 0] - 1], data[closing[closing < len(data) - 1] + 1]
    closed = len(opening) == len(closing)
    if not (_BEFORE_QUOTES[before].all() and _AFTER_QUOTES[after].all()) or (final and not closed):
        return None
    newlines = np.flatnonzero(data == ord("\n"))
    outside = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    if final:
        return len(buffer), len(outside) + (not buffer.endswith(b"\n") and bool(buffer))
    return (int(outside[-1]) + 1, len(outside)) if len(outside) else (0, 0)


def _among(characters: bytes) -> np.ndarray:
    """Which byte is one of these, bool[256]."""
    return np.isin(np.arange(256), list(characters))


_BEFORE_QUOTES, _AFTER_QUOTES = _among(b',\n"'), _among(b',\r\n"')


def _end_by_parsing(buffer: bytes, format: Format, *, final: bool, most: int) -> tuple[int, int]:
    text = buffer.decode(format.encoding, "surrogateescape")
    ends: list[int] = []
    for row, end in formats.split_csv(text):
        if not final and (end == len(text) or row == formats.NEVER_CLOSED):
            break  # it may go on in what was not read yet
        ends.append(end)
        if len(ends) == most:
            break
    if not ends:
        return 0, 0
    return len(text[: ends[-1]].encode(format.encoding, "surrogateescape")), len(ends)


class _Pushed:
    """A stream with its first bytes pushed back."""

    def __init__(self, stream: _Readable, head: bytes) -> None:
        self._stream, self._head = stream, head

    def read(self, size: int, /) -> bytes:
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._stream.read(size)


class _Recoded:
    """A stream of UTF-16 or UTF-32 as UTF-8, in which a newline is one byte."""

    def __init__(self, stream: _Readable, head: bytes, encoding: str) -> None:
        self._pushed = _Pushed(stream, head)
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int, /) -> bytes:
        while data := self._pushed.read(size):
            if text := self._decoder.decode(data):
                return text.encode()
        return self._decoder.decode(b"", True).encode()

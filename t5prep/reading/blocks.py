"""Cut files into blocks of some thousand rows without parsing them, and read these blocks.

A block is a reference (a file and a range of it) where the file can be read at any place, and holds its bytes where it
cannot (gzip, a zip member, UTF-16). Finding the ends of rows costs a thousandth of tokenizing them, so one process cuts
and all the others tokenize.
"""

import codecs
import dataclasses
import re
from collections.abc import Iterator, Sequence

from t5prep import sources
from t5prep.errors import BalanceError, SourceError
from t5prep.reading import (
    csv_rows,
    encodings,
    formats,
    json_documents,
    parquet_rows,
    row_ends,
    rows,
    text_block,
)
from t5prep.reading.encodings import Readable
from t5prep.reading.formats import Format
from t5prep.reading.parquet_rows import Part
from t5prep.reading.rows import Row
from t5prep.sources import RawFile

BLOCK_BYTES = 2 << 20  # 2 MiB take an eighth of a second to tokenize, so all workers finish at about the same time
SNIFFED_BYTES = 1 << 20
# A row longer than this is a quote that was never closed.
LONGEST_ROW_BYTES = 256 << 20
_LINE = re.compile(rb"[^\r\n]*([\r\n]?)")


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows of one file. `size` is in bytes; for Parquet `begin` is the number of a row group.

    `skip` is the number of rows of that row group before the first. `regular` is true where a CSV's quotes follow RFC
    4180. `cut` is true where only the first `rows` rows of the `size` bytes are wanted.
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
    cut: bool = False

    def head(self, rows: int) -> "Block":
        """Return the first `rows` rows of this block."""
        return self if rows >= self.rows else dataclasses.replace(self, rows=rows, cut=True)


def scan(file: RawFile, format: Format, *, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Yield the blocks of a file, in order. Raises SourceError for a file with no rows or in another encoding."""
    if format.kind == "parquet":
        with sources.open_random(file) as opened:
            columns, parts = parquet_rows.parts(opened, name=file.name)
        for part in parts:
            yield Block(file, format, columns, part.first, part.rows, part.group, part.bytes, skip=part.skip)
        return
    with sources.open_stream(file) as stream:
        head = stream.read(SNIFFED_BYTES)
        mark = encodings.byte_order_mark(head)
        if mark:
            format = dataclasses.replace(format, encoding=encodings.BYTE_ORDER_MARKS[mark])
        encodings.check(head[len(mark) :], format, name=file.name)
        beginning = head[len(mark) :].decode(format.encoding, "replace").encode() if format.kind == "jsonl" else b""
        reader: Readable = encodings.Prepended(stream, head[len(mark) :])
        inline = bool(file.member) or "://" in file.path or file.name.lower().endswith(formats.PACKED)
        if not encodings.keeps_structure(format.encoding):
            inline, reader = True, encodings.Recoded(reader, format.encoding)
            format = dataclasses.replace(format, encoding="utf-8", written=codecs.lookup(format.encoding).name)
        if format.kind == "jsonl" and (format.records or json_documents.is_array(beginning)):
            yield from _of_document(reader, file, format, size=block_bytes)
            return
        if format.kind == "jsonl" and json_documents.is_object(beginning):
            json_documents.refuse_object(reader, encoding=format.encoding, name=file.name)
        yield from _cut(reader, file, format, origin=len(mark), inline=inline, size=block_bytes)


def read(block: Block, *, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Yield every row of a block, also blank ones. `columns` are the needed columns: others may be left out.

    Raises SourceError where one of these names stands for two columns, and BalanceError where the number of rows
    differs from the number counted when the block was cut: no row is lost silently.
    """
    _refuse_twins(block, columns)
    count = 0
    for row in _rows(block, columns):
        if block.cut and count == block.rows:
            return
        count += 1
        yield row
    if count != block.rows:
        raise BalanceError(
            f"{block.file.name}: {block.rows:,} rows from row {block.first_row:,} on were counted, and {count:,} were "
            "read. This is a mistake of t5prep, and nothing was prepared. Please report it with this file"
        )


def _rows(block: Block, columns: Sequence[str]) -> Iterator[Row]:
    if block.format.kind == "parquet":
        part = Part(block.begin, block.skip, block.first_row, block.rows, block.size)
        needed = rows.roots(columns)
        wanted = [column for column in block.columns if not columns or column in needed]
        with sources.open_random(block.file) as file:
            batches = parquet_rows.batches(file, part, name=block.file.name, columns=wanted)
            yield from parquet_rows.rows_of(batches, first=part.first, checked=columns)
        return
    yield from text_block.read(
        content(block),
        block.format,
        columns=block.columns,
        first=block.first_row,
        wanted=columns,
        regular=block.regular,
    )


def content(block: Block) -> bytes:
    """Return the bytes of a block of text rows. Raises SourceError where the file has become shorter."""
    if block.data is not None:
        return block.data
    with sources.open_random(block.file) as file:
        file.seek(block.begin)
        data = file.read(block.size)
    if len(data) != block.size:
        raise SourceError(f"{block.file.path} became shorter while it was read. Let it be written to its end first.")
    return data


def _refuse_twins(block: Block, columns: Sequence[str]) -> None:
    """Raise SourceError where a needed column (any column, where none is named) occurs twice."""
    if len(set(block.columns)) == len(block.columns):
        return
    for name in columns or block.columns:
        if block.columns.count(name) > 1:
            raise SourceError(
                f'{block.file.name} has {block.columns.count(name)} columns named "{name}", and which one is meant cannot '
                "be told. Give each a name of its own in the first line of the file."
            )


def _of_document(reader: Readable, file: RawFile, format: Format, *, size: int) -> Iterator[Block]:
    """Yield the rows of one JSON document as blocks of JSON lines, each of about `size` bytes."""
    lines, held, first, offset = [], 0, 1, 0
    form = dataclasses.replace(format, records="")
    for line in json_documents.lines(reader, format.records, encoding=format.encoding, name=file.name):
        lines.append(line)
        held += len(line)
        if held >= size:
            yield Block(file, form, (), first, len(lines), offset, held, b"".join(lines))
            first, offset, lines, held = first + len(lines), offset + held, [], 0
    if lines:
        yield Block(file, form, (), first, len(lines), offset, held, b"".join(lines))


def _cut(reader: Readable, file: RawFile, format: Format, *, origin: int, inline: bool, size: int) -> Iterator[Block]:
    """Yield the blocks of a stream of text rows, each of about `size` bytes. It begins at `origin` in its file."""
    buffer, offset, first = b"", origin, 1
    columns: tuple[str, ...] = ("text",) if format.kind == "text" else ()
    wanted = size
    while True:
        chunk = reader.read(wanted)
        final = not chunk
        buffer += chunk
        if format.kind == "csv" and not columns:
            if (line := csv_rows.SEPARATOR_LINE.match(buffer)) is not None:
                format = dataclasses.replace(format, delimiter=format.delimiter or line[1].decode("latin-1"))
                buffer, offset = buffer[line.end() :], offset + line.end()
            elif (
                not format.delimiter
                and (line := _LINE.match(buffer))
                and (line[1] or final or len(buffer) > LONGEST_ROW_BYTES)
            ):
                format = dataclasses.replace(format, delimiter=csv_rows.delimiter_of(line[0]))
        if format.headed and not columns:
            end = row_ends.of_first(
                buffer,
                quoted=format.quoted,
                final=final or len(buffer) > LONGEST_ROW_BYTES,
                delimiter=format.delimiter or ",",
            )
            if not end and not final:
                wanted = max(size, len(buffer))
                continue
            columns = _header(buffer[:end], format, name=file.name)
            buffer, offset = buffer[end:], offset + end
        end, rows, regular = row_ends.of_buffer(buffer, quoted=format.quoted, final=final, delimiter=format.delimiter)
        if not end and len(buffer) > LONGEST_ROW_BYTES:  # the first row is rejected, and ends at its first newline
            end = row_ends.of_first(buffer, quoted=format.quoted, final=True, delimiter=format.delimiter)
            rows, regular = 1, False
            if end == len(buffer):
                raise SourceError(
                    f"{file.name}: row {first:,} is longer than {LONGEST_ROW_BYTES >> 20} MiB. Is it really {format.kind}? "
                    "Say its format: --format " + "|".join(formats.KINDS)
                )
        if end:
            data = buffer[:end] if inline else None
            yield Block(file, format, columns, first, rows, offset, end, data, regular=regular)
            buffer, offset, first = buffer[end:], offset + end, first + rows
        # For a row longer than a block, the buffer doubles each time, so the time to find its end stays linear.
        wanted = max(size, len(buffer))
        if final:
            return


def _header(line: bytes, format: Format, *, name: str) -> tuple[str, ...]:
    """Return the column names in the first row of a file. Raises SourceError where it names none."""
    try:
        text = line.decode(format.encoding)
    except UnicodeDecodeError:
        raise SourceError(
            f"{name}: its first line, which names the columns, is not {format.written or format.encoding}."
        ) from None
    if format.quoted:
        fields = next((row.fields for row in csv_rows.split(text, format.delimiter)), [])
        if isinstance(fields, str):
            raise SourceError(f"{name}: its first line, which names the columns, cannot be read ({fields}).")
    else:
        fields = next(row_ends.lines(text), "").split("\t")
    if not "".join(fields).strip():
        raise SourceError(f"{name} is empty or has no header line; the first line must name the columns.")
    return tuple(fields)

"""Cut files into blocks of some thousand rows without parsing them, and read these blocks.

A block is a reference (a range of a file) if the file can be read at any position. Otherwise (gzip, a zip member,
UTF-16) the block carries its bytes. Finding the ends of rows costs a thousandth of tokenizing them. So one process
cuts, and all others tokenize.
"""

import codecs
import dataclasses
import itertools
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, TypedDict, TypeVar

import numpy as np

from t5prep import sources
from t5prep.errors import BalanceError, SourceError
from t5prep.options.files import FileOptions
from t5prep.reading import conll, documents, encodings, formats, json_documents, parquet_rows, rows, text_rows
from t5prep.reading.encodings import Readable
from t5prep.reading.formats import Format
from t5prep.reading.parquet_rows import Part
from t5prep.reading.rows import Row
from t5prep.sources import RawFile, unpacked_name

BLOCK_BYTES = 2 << 20  # 2 MiB take an eighth of a second to tokenize, so all workers finish at about the same time
# Bytes at the beginning of a file that its encoding and its format are detected from.
SNIFFED_BYTES = 1 << 20
# A block up to this size carries its bytes, also if its file could be read again. Blocks of many such files are
# joined, because each block costs some milliseconds.
SMALL_BYTES = 64 << 10
MOST_JOINED, JOINED_BYTES = 4096, 1 << 20
# A longer row shows that the file has another format. In CSV, an unclosed quote is the likely cause, and the search
# for its end takes ten times the row's bytes in memory.
LONGEST_ROW_BYTES = 256 << 20
LONGEST_QUOTED_BYTES = 64 << 20
_LINE = re.compile(rb"[^\r\n]*")
_LINE_END = re.compile(rb"[\r\n]")
_BLANK_LINES = re.compile(rb"(?: *[\r\n])*")


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows of one file.

    * `first_row`: number of the first row in its file, from 1.
    * `begin`, `size`: offset and length in bytes. For Parquet, `begin` is the number of a row group.
    * `data`: the bytes of the rows, None if they are read from the file.
    * `skip`: Parquet rows of the row group before the first row.
    * `packing`: stored bytes for each byte of `size`.
    * `regular`: the quotes of CSV follow RFC 4180.
    * `cut`: only the first `rows` rows in the bytes belong to the block.
    * `joined`: name and number of rows of each joined small file; `file` is the first of them.
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
    packing: float = 1.0
    regular: bool = False
    cut: bool = False
    joined: tuple[tuple[str, int], ...] = ()

    @property
    def files(self) -> tuple[tuple[str, int], ...]:
        """The names of the files of this block, each with the number of its rows."""
        return self.joined or ((self.file.name, self.rows),)

    def places(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for rows of these `numbers` (`int64[n]`) the index of their file in `files`, and their numbers in that file."""
        if not self.joined:
            return np.zeros(len(numbers), np.int64), numbers
        rows = np.array([rows for _, rows in self.joined])
        ends = np.cumsum(rows)
        file_indices = np.searchsorted(ends, numbers)
        return file_indices, numbers - (ends - rows)[file_indices]

    def head(self, rows: int) -> "Block":
        """Return a block of the first `rows` rows."""
        return self if rows >= self.rows else dataclasses.replace(self, rows=rows, cut=True)

    def pieces(self, size: int) -> Iterator["Block"]:
        """Yield the rows in blocks of about `size` bytes, for a part of a Parquet row group. Other blocks are not divided."""
        count = max(1, min(self.rows, -(-self.size // size))) if self.format.kind == "parquet" else 1
        for begin, end in itertools.pairwise(self.rows * piece // count for piece in range(count + 1)):
            yield dataclasses.replace(
                self,
                first_row=self.first_row + begin,
                skip=self.skip + begin,
                rows=end - begin,
                size=self.size // count,
            )


def scan(
    file: RawFile, format: Format, *, block_bytes: int = BLOCK_BYTES, content: bytes | None = None
) -> Iterator[Block]:
    """Yield the blocks of a file, in order. Raises SourceError for a file without a header or in another encoding.

    `content` has the file's bytes if they were read before.
    """
    if format.kind == "parquet":
        with sources.open_random(file) as opened:
            columns, parts = parquet_rows.parts(opened, name=file.name)
        for part in parts:
            extent = (part.first, part.rows, part.group, part.bytes)
            yield Block(file, format, columns, *extent, skip=part.skip, packing=part.packing)
        return
    with sources.open_stream(file, content=content) as stream:
        head = stream.read(SNIFFED_BYTES)
        mark = encodings.byte_order_mark(head)
        if mark:
            format = dataclasses.replace(format, encoding=encodings.BYTE_ORDER_MARKS[mark])
        encodings.check(head[len(mark) :], format, name=file.name)
        looks = format.kind == "jsonl" or (format.kind == "tsv" and not format.delimiter)
        beginning = head[len(mark) :].decode(format.encoding, "replace").encode() if looks else b""
        reader: Readable = encodings.PrependedStream(stream, head[len(mark) :], is_complete=len(head) < SNIFFED_BYTES)
        if format.kind == "tsv" and not format.delimiter:
            kind = "csv" if text_rows.is_quoted(beginning, final=len(head) < SNIFFED_BYTES) else "tsv"
            format = dataclasses.replace(format, kind=kind, delimiter="\t")
        # Archives, remote and compressed files cannot be read cheaply at an offset, so their blocks carry the bytes.
        inline = bool(file.member) or "://" in file.path or file.name.lower().endswith(formats.PACKED)
        # In Shift JIS and similar encodings, the byte of an escape character may be half of another character.
        if not encodings.keeps_structure(format.encoding) or (format.escape and format.encoding != "utf-8"):
            inline, reader = True, encodings.RecodedStream(reader, format.encoding)
            format = dataclasses.replace(format, encoding="utf-8", written=codecs.lookup(format.encoding).name)
        lines: Iterator[bytes] | None = None
        if format.kind == "jsonl" and (format.records or json_documents.is_array(beginning)):
            lines = json_documents.lines(reader, format.records, encoding=format.encoding, name=file.name)
            format = dataclasses.replace(format, records="")
        elif format.kind == "jsonl" and json_documents.is_document(beginning, unpacked_name(file.name)):
            lines = json_documents.lines_of_document(reader, encoding=format.encoding, name=file.name)
        elif format.kind == "document":
            lines = documents.lines(reader, encoding=format.encoding, name=file.name)
            format = dataclasses.replace(format, encoding="utf-8")
        elif format.kind == "conll":
            lines = conll.lines(reader, encoding=format.encoding, columns=format.columns)
            format = dataclasses.replace(format, encoding="utf-8", columns=())
        if lines is not None:
            yield from _of_lines(lines, file, format, (), size=block_bytes)
        else:
            yield from _cut_text(reader, file, format, origin=len(mark), inline=inline, size=block_bytes)


def complete_format(file: RawFile, form: Format, prepared: FileOptions, *, refuses_ambiguous: bool) -> Format:
    """Return the format `form` of a file, completed by the options `prepared` of other data where the file agrees.

    An empty encoding, delimiter or escape character of `form` is open. A file that is valid in UTF-8 and in the encoding of
    `prepared`, with different texts, is read as UTF-8, or raises SourceError if `refuses_ambiguous`. The delimiter of `prepared`
    applies to a table whose first line contains it.
    """
    is_table, encoding, delimiter = form.kind == "csv", form.encoding, form.delimiter
    if form.kind == "parquet" or not ((is_table and prepared.delimiter) or prepared.encoding != "utf-8"):
        return dataclasses.replace(form, encoding=encoding or "utf-8", escape=form.escape or prepared.escape * is_table)
    with sources.open_stream(file) as stream:
        head = stream.read(SNIFFED_BYTES)
    if not encoding:
        encoding = prepared.encoding
        if encodings.reads_as_utf8_too(head, encoding):
            if refuses_ambiguous:
                raise SourceError(
                    f"{file.name} is valid in UTF-8 and in {encoding}, the encoding of the model's data, but with "
                    f"different texts. Choose the encoding: --encoding utf-8 or --encoding {encoding}",
                    code="file.ambiguous-encoding",
                )
            encoding = "utf-8"
    encodings.check_name(encoding)
    if is_table and not delimiter and prepared.delimiter in head.decode(encoding, "replace").partition("\n")[0]:
        delimiter = prepared.delimiter
    return dataclasses.replace(
        form, encoding=encoding, delimiter=delimiter, escape=form.escape or prepared.escape * is_table
    )


def read(block: Block, *, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Yield each row of a block, including blank ones. `columns` are the needed columns; others may be missing in the records.

    Raises SourceError if a needed name occurs twice. Raises BalanceError if the number of rows differs from the
    number counted when the block was cut, so that no row is lost silently.
    """
    _refuse_twins(block, columns)
    count = 0
    for row in _rows(block, columns):
        if block.cut and count == block.rows:
            return
        count += 1
        yield row
    if count != block.rows:
        if block.format.kind == "parquet":  # counted by the program that wrote the file
            raise SourceError(
                f"{block.file.name} is damaged: it has {block.rows:,} rows from row {block.first_row:,} on by its metadata, "
                f"but {count:,} were read. Fetch the file again.",
                code="file.damaged",
            )
        raise BalanceError(
            f"{block.file.name} has {block.rows:,} rows from row {block.first_row:,} on, but {count:,} "
            "were read. This is a bug of t5prep, and nothing was prepared. Report it with this file.",
            code="pipeline.row-count-mismatch",
        )


def _rows(block: Block, columns: Sequence[str]) -> Iterator[Row]:
    """Yield each row of a block, without checks."""
    if block.format.kind == "parquet":
        part = Part(block.begin, block.skip, block.first_row, block.rows, block.size)
        needed = rows.roots(columns)
        parquet_columns = [column for column in block.columns if not columns or column in needed]
        batches = parquet_rows.batches(block.file, part, columns=parquet_columns)
        yield from parquet_rows.rows_of(batches, first=part.first, checked=columns)
        return
    yield from text_rows.read(
        content(block), block.format, columns=block.columns, first=block.first_row, typed_columns=columns
    )


def column_names(block: Block) -> tuple[str, ...]:
    """Return the column names of a block: of its header or schema, otherwise all keys of its rows."""
    return block.columns or tuple(dict.fromkeys(name for row in read(block) for name in row.record or ()))


def content(block: Block) -> bytes:
    """Return the bytes of a block of text rows. Raises SourceError if the file has become shorter."""
    if block.data is not None:
        return block.data
    with sources.open_random(block.file) as file:
        file.seek(block.begin)
        data = file.read(block.size)
    if len(data) != block.size:
        raise SourceError(
            f"{block.file.path} became shorter during reading. Wait until the file is complete, and run "
            "the command again.",
            code="source.concurrent-change",
        )
    return data


_Element = TypeVar("_Element")


def joined(
    elements: Iterable[Block | _Element], *, file_groups: Mapping[str, str], size: int = JOINED_BYTES
) -> Iterator[Block | _Element]:
    """Yield the elements, with blocks of small files joined into blocks of at most `size` bytes, and all others unchanged.

    A block costs some milliseconds even if it has few rows. Files are only joined if they have the same columns and
    format, and the same group in `file_groups`.
    """
    pending_blocks, bytes_held = list[Block](), 0
    kind: tuple[Hashable, ...] = ()
    for element in elements:
        if not isinstance(element, Block):
            yield element
            continue
        element_kind: tuple[Hashable, ...] = (
            element.format,
            element.columns,
            element.regular,
            file_groups.get(element.file.name),
        )
        joins = _may_be_joined(element)
        if pending_blocks and not (
            joins and element_kind == kind and bytes_held + element.size < size and len(pending_blocks) < MOST_JOINED
        ):
            yield _join(pending_blocks)
            pending_blocks, bytes_held = [], 0
        if not joins:
            yield element
            continue
        pending_blocks.append(element)
        kind, bytes_held = element_kind, bytes_held + element.size
    if pending_blocks:
        yield _join(pending_blocks)


def _may_be_joined(block: Block) -> bool:
    """Check whether a block is a complete small file whose rows stay the same if other rows follow."""
    return (
        block.data is not None
        and block.first_row == 1
        and block.size <= SMALL_BYTES
        and not block.cut
        and (block.regular or not block.format.quoted)  # an unclosed quote would continue in the next file
        and not block.data.endswith(b"\r")  # "\r" and an added newline would be one row end
    )


def _join(blocks: Sequence[Block]) -> Block:
    """Return small blocks as one block, in which each file ends with a newline."""
    if len(blocks) == 1:
        return blocks[0]
    data = b"".join(
        [block.data if block.data.endswith(b"\n") else block.data + b"\n" for block in blocks if block.data]
    )
    files = tuple((block.file.name, block.rows) for block in blocks)
    rows = sum(block.rows for block in blocks)
    return dataclasses.replace(blocks[0], rows=rows, begin=0, size=len(data), data=data, joined=files)


def _refuse_twins(block: Block, columns: Sequence[str]) -> None:
    """Raise SourceError if a needed column occurs twice. Without `columns`, all are needed."""
    if len(set(block.columns)) == len(block.columns):
        return
    for name in columns or block.columns:
        if block.columns.count(name) > 1:
            raise SourceError(
                f'{block.file.name} has {block.columns.count(name)} columns named "{name}". Rename them in '
                "the first line of the file, so that each name is unique.",
                code="column.duplicate",
            )


def _of_lines(
    lines: Iterable[bytes], file: RawFile, format: Format, columns: tuple[str, ...], *, size: int
) -> Iterator[Block]:
    """Yield blocks of about `size` bytes of converted rows, which carry their bytes because no file has them in this form."""
    block_lines, bytes_held, first, offset = list[bytes](), 0, 1, 0
    for line in itertools.chain(lines, [None]):
        if block_lines and (line is None or bytes_held >= size):
            yield Block(file, format, columns, first, len(block_lines), offset, bytes_held, b"".join(block_lines))
            first, offset, block_lines, bytes_held = first + len(block_lines), offset + bytes_held, [], 0
        if line is not None:
            block_lines.append(line)
            bytes_held += len(line)


def _cut_text(
    reader: Readable, file: RawFile, format: Format, *, origin: int, inline: bool, size: int
) -> Iterator[Block]:
    """Yield blocks of about `size` bytes of a stream of text rows, which begins at `origin` in its file.

    `inline`: each block carries its bytes, because the file cannot be read at any position.
    """
    buffer: bytes | bytearray = b""  # begins at `offset` in the file, with row number `first_row`
    offset, first_row, needs_reread = origin, 1, False
    columns = ("text",) if format.kind == "text" else format.columns
    is_at_start = format.kind in ("csv", "tsv")  # the first line is not read yet: it decides delimiter and columns
    read_size, longest = size, LONGEST_QUOTED_BYTES if format.quoted else LONGEST_ROW_BYTES
    while True:
        # The rest of a buffer is read again from the file. Appending new bytes to it would copy both, which takes
        # several times as long.
        chunk = (
            reader.read_at(offset, size)
            if needs_reread and isinstance(reader, encodings.PrependedStream)
            else reader.read(read_size)
        )
        final, needs_reread = (
            not chunk or (isinstance(reader, encodings.PrependedStream) and reader.is_exhausted),
            False,
        )
        buffer = buffer + chunk if buffer else chunk
        if is_at_start:
            skipped, divider = _before_first_line(buffer, format)
            buffer, offset = buffer[skipped:], offset + skipped
            last = final or len(buffer) > longest
            if divider or last or _LINE_END.search(buffer):
                divider = format.delimiter or divider or _delimiter_of(buffer, format, name=file.name)
                format = dataclasses.replace(format, delimiter=divider)
            end = text_rows.of_first(buffer, **_dialect(format), final=last) if format.delimiter else 0
            if not end and not final:
                read_size = max(size, len(buffer))
                continue
            line, is_at_start = bytes(buffer[:end]), False
            if format.headed:
                columns = _header(line, format, name=file.name)
                buffer, offset = buffer[end:], offset + end
            elif any(
                row.record and all(name == value for name, value in row.record.items())
                for row in text_rows.read(line, format, columns=columns, first=1)
            ):
                raise SourceError(
                    f"The first line of {file.name} already names its columns: {','.join(columns)}. Remove --columns.",
                    code="file.redundant-columns",
                )
        # The end of the last complete row in the buffer, the number of rows before it, and whether all of them are regular.
        end, rows, regular = text_rows.of_buffer(buffer, **_dialect(format), final=final)
        if not end and len(buffer) > longest:  # the first row is rejected and ends at its first newline
            end = text_rows.of_first(buffer, **_dialect(format), final=True)
            rows, regular = 1, False
            if end == len(buffer):
                raise SourceError(
                    f"Row {first_row:,} of {file.name} is longer than {longest >> 20} MiB, so the file is perhaps not {format.kind}. "
                    "Name its format: --format " + "|".join(formats.KINDS),
                    code="row.oversized",
                )
        if end:
            data = bytes(buffer[:end]) if inline or end <= SMALL_BYTES else None
            yield Block(file, format, columns, first_row, rows, offset, end, data, regular=regular)
            needs_reread = not inline
            buffer, offset, first_row = b"" if needs_reread else buffer[end:], offset + end, first_row + rows
        # For a row longer than a block the buffer doubles, so that the time to find its end stays linear.
        read_size = max(size, len(buffer))
        if final:
            return


class _Dialect(TypedDict):
    """Arguments of the functions that find row ends."""

    quoted: bool
    delimiter: str
    escape: str


def _dialect(format: Format) -> _Dialect:
    """Return the arguments for the functions of `text_rows` that find row ends."""
    return {"quoted": format.quoted, "delimiter": format.delimiter or ",", "escape": format.escape}


def _before_first_line(buffer: bytes | bytearray, format: Format) -> tuple[int, str]:
    """Return the offset of a table's first line, and the delimiter in a preceding line `sep=;` of Excel, or "".

    Blank lines before it are skipped, as pandas does.
    """
    begin = len(_BLANK_LINES.match(buffer)[0])  # type: ignore[index]
    separator = text_rows.SEPARATOR_LINE.match(buffer, begin) if format.kind == "csv" else None
    if separator is None:
        return begin, ""
    return _BLANK_LINES.match(buffer, separator.end()).end(), separator[1].decode("latin-1")  # type: ignore[union-attr]


def _delimiter_of(buffer: bytes | bytearray, format: Format, *, name: str) -> str:
    """Return the delimiter that the first line of a table implies. Raises SourceError if two are possible."""
    line = _LINE.match(buffer)
    delimiter = text_rows.delimiter_of(line[0] if line else b"", columns=len(format.columns))
    if not delimiter:
        raise SourceError(
            f"The first line of {name} has {len(format.columns)} columns both with a comma and with a "
            'semicolon as delimiter. Name the delimiter: --delimiter ";"',
            code="file.ambiguous-delimiter",
        )
    return delimiter


def _header(line: bytes, format: Format, *, name: str) -> tuple[str, ...]:
    """Return the column names in the first row of a file. Raises SourceError if it has none."""
    try:
        text = line.decode(format.encoding)
    except UnicodeDecodeError:
        raise SourceError(
            f"The header line of {name}, which names the columns, is not "
            f"{format.written or format.encoding}. Name the encoding of the file: --encoding NAME",
            code="file.wrong-encoding",
        ) from None
    if format.quoted:
        fields = next((row.fields for row in text_rows.split(text, format.delimiter, format.escape)), [])
        if isinstance(fields, str):
            raise SourceError(
                f"The header line of {name}, which names the columns, cannot be read ({fields}). Correct the "
                "first line of the file.",
                code="file.invalid-header",
            )
    else:
        fields = next(text_rows.lines(text), "").split("\t")
    if not "".join(fields).strip():
        raise SourceError(
            f"{name} is empty or has no header line. Name the columns in the first line of the file.",
            code="file.missing-header",
        )
    return tuple(fields)


# Paired files, whose lines belong together, as translations are often stored: train.source and train.target.
# Both files are read line by line into blocks with the columns `source` and `target`, so later stages need not know
# pairs.

COLUMNS = ("source", "target")
_ONE_FIELD = re.compile(rb"[\t\r]")


@dataclasses.dataclass(frozen=True)
class Pair:
    """A file of source lines, and the file of their targets."""

    source: RawFile
    target: RawFile


def match(files: Sequence[RawFile], endings: Sequence[tuple[str, str]]) -> list[RawFile | Pair]:
    """Return the files. Two files that differ only in a pair of `endings` (`.en`, `.ro`) become one Pair.

    Raises SourceError for a file whose partner is missing.
    """
    if not endings:
        return list(files)
    by_name = {unpacked_name(file.name): file for file in files}
    matched: list[RawFile | Pair] = []
    for file in files:
        name = unpacked_name(file.name)
        candidates = ((end, index, ends) for ends in endings for index, end in enumerate(ends))
        matched_ending = next(
            ((name.removesuffix(end), index, ends) for end, index, ends in candidates if name.endswith(end)), None
        )
        if not matched_ending:
            matched.append(file)
            continue
        stem, index, ends = matched_ending
        partner = by_name.get(stem + ends[1 - index])
        if partner is None:
            raise SourceError(
                f"{file.name} has no partner {stem + ends[1 - index]}. Name the folder, or both files with a "
                f'quoted glob: --source "{stem}.*"',
                code="source.missing-pair",
            )
        if index == 0:
            matched.append(Pair(file, partner))
    return matched


def files(element: RawFile | Pair) -> tuple[RawFile, ...]:
    """Return the file, or both files of a pair."""
    return (element.source, element.target) if isinstance(element, Pair) else (element,)


def scan_element(
    element: RawFile | Pair,
    options: FileOptions,
    *,
    otherwise: str = "",
    block_bytes: int = BLOCK_BYTES,
    content: bytes | None = None,
) -> Iterator[Block]:
    """Yield the blocks of a file (`scan`), or of the paired lines of two files.

    `otherwise` is the format of files whose names do not reveal it, or "". Raises SourceError if one file of a pair
    has more lines.
    """
    if isinstance(element, Pair):
        form = Format("tsv", options.encoding)
        yield from _of_lines(_lines_of_pair(element), element.source, form, COLUMNS, size=block_bytes)
    else:
        form = formats.detect(element.name, options, otherwise=otherwise)
        yield from scan(element, form, block_bytes=block_bytes, content=content)


def _lines_of_pair(pair: Pair) -> Iterator[bytes]:
    """Yield the lines of both files of a pair, joined by a tab. Raises SourceError if one has more lines."""
    with sources.open_stream(pair.source) as source_stream, sources.open_stream(pair.target) as target_stream:
        for number, both in enumerate(itertools.zip_longest(_lines(source_stream), _lines(target_stream))):
            if None in both:
                longer, shorter = (pair.source, pair.target) if both[0] is not None else (pair.target, pair.source)
                raise SourceError(
                    f"{shorter.name} ends after {number:,} lines, but {longer.name} has more. Make both files "
                    "equally long.",
                    code="file.unequal-lines",
                )
            # A tab or \r would separate columns or rows; the tokenizer reads them as spaces anyway.
            yield b"\t".join(_ONE_FIELD.sub(b" ", side) for side in both if side is not None) + b"\n"


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a stream without their ends."""
    for line in stream:
        yield line.rstrip(b"\r\n")

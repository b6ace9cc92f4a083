"""Read the rows of text files: CSV, TSV, JSON lines, plain lines.

Arrow reads CSV and JSON lines in a sixth of the time of Python's reader. Both must return the same rows, so Arrow
reads only unambiguous data. If Arrow fails (a row of another length, invalid UTF-8), Python's reader finds the reason
for each row.
"""

import codecs
import csv
import functools
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from t5prep import _native
from t5prep._native import plain_json_lines
from t5prep.json_values import JSON
from t5prep.reading import rows
from t5prep.reading.formats import Format
from t5prep.reading.rows import Record, Row, is_path

NEVER_CLOSED = "broken quoting: a quote opens in this row and does not close"
# Hint at the end of a reason, if an escape character may explain the row.
ESCAPED = r" (a backslash may stand for an escape: --escape '\')"
# The line with the delimiter that Excel writes and reads before the header.
SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?(?:\r\n|\r|\n)')
_QUOTED = re.compile(rb'"[^"]*"')
_EMPTY_LINE = re.compile(rb"\A[\r\n]|\n[\r\n]|\r\r")
csv.field_size_limit(sys.maxsize)  # the default of 128 kB refuses real documents


class Parsed(NamedTuple):
    """A row: its fields, or the reason why it cannot be read, and the offset of its end in characters.

    `open` is true if the text ended before the row was certainly complete.
    """

    fields: list[str] | str
    end: int
    open: bool = False


def delimiter_of(line: bytes, *, columns: int = 0) -> str:
    """Return the delimiter in the first line of a table: a comma, or the semicolon that Excel writes in most of Europe.

    If the line is a row, the number of `columns` decides; "" if it fits both delimiters.

    >>> delimiter_of(b'id,text'), delimiter_of(b'id;"a, b"'), delimiter_of(b"a;b,c"), delimiter_of(b"text")
    (',', ';', ',', ',')
    >>> delimiter_of(b"joy;a, b, c", columns=2), delimiter_of(b"joy;a, b", columns=2)
    (';', '')
    """
    plain = _QUOTED.sub(b"", line)
    if columns > 1:
        fitting = [delimiter for delimiter in ",;" if plain.count(delimiter.encode()) + 1 == columns]
        return "" if len(fitting) > 1 else "".join(fitting) or ","
    return ";" if b";" in plain and b"," not in plain else ","


def is_quoted(beginning: bytes, *, final: bool) -> bool:
    r"""Check whether the beginning of a TSV in UTF-8 has quotes as in CSV: all are regular, and all rows have the same length.

    >>> is_quoted(b'text\tlabel\n"a ""b""\tc"\tgood\n', final=True), is_quoted(b'text\tlabel\n"a" b\tgood\n', final=True)
    (True, False)
    """
    rows = _ends_of_regular(beginning, final=final, delimiter="\t") if b'"' in beginning else None
    complete_rows = beginning[: rows.end].decode(errors="replace") if rows else ""
    fields = csv.reader(io.StringIO(complete_rows, newline=""), delimiter="\t")
    return '"' in complete_rows and len({len(row) for row in fields if row}) == 1


def split(text: str, delimiter: str = ",", escape: str = "") -> Iterator[Parsed]:
    """Yield the rows of CSV text.

    An unclosed quote rejects only the line in which it opens, not the rest of the file.
    """
    # Lines are read one by one instead of into a list: a field of 100 MB may have lines of one character.
    source = io.StringIO(text, newline="")
    begin = 0
    # `hopeless` is the last line of an earlier row with an unclosed quote: each line up to it began inside of quotes.
    # A row that begins before it and continues over a line end cannot be closed either, so only its first line is
    # parsed. Otherwise many unclosed quotes would take quadratic time. `unfinished`: the text ended inside of that
    # earlier row.
    hopeless, unfinished = 0, False
    while begin < len(text):
        source.seek(begin)
        alone = begin < hopeless
        ahead = [source.readline()] if alone else source
        reader = csv.reader(ahead, delimiter=delimiter, escapechar=escape or None, strict=True)
        while True:
            lines_before = reader.line_num
            try:
                fields: list[str] | str = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                is_unfinished = "unexpected end of data" in str(error)
                if is_unfinished or reader.line_num - lines_before > 1:
                    if not alone:
                        hopeless, unfinished = _line_start(text, source.tell()), is_unfinished
                    source.seek(begin)
                    source.readline()
                    opened, begin = begin, source.tell()
                    yield Parsed(NEVER_CLOSED + _if_escaped(text[opened:begin], escape), begin, unfinished)
                    break
                fields = f"broken quoting: {error}{_if_escaped(text[begin : source.tell()], escape)}"
            begin = source.tell()
            yield Parsed(fields, begin, begin == len(text))


def _if_escaped(row: str, escape: str) -> str:
    """Return ESCAPED for a row with a backslash before a quote, if no escape character is set; otherwise ""."""
    return ESCAPED if not escape and '\\"' in row else ""


def _line_start(text: str, end: int) -> int:
    r"""Return the begin of the line that ends at `end`.

    >>> _line_start("a\nb\r\n", 5), _line_start("a\nb", 3), _line_start("a\n", 2)
    (2, 2, 0)
    """
    last = end - 2 if text.endswith("\r\n", 0, end) else end - 1 if text.endswith(("\r", "\n"), 0, end) else end
    return max(text.rfind("\n", 0, last), text.rfind("\r", 0, last)) + 1


def csv_rows(text: str, columns: Sequence[str], delimiter: str = ",", escape: str = "") -> Iterator[Record | str]:
    """Yield each row of CSV text as a record ({} if it is blank), or as the reason why it cannot be read."""
    try:
        lines = io.StringIO(text, newline="")
        reader = csv.reader(lines, delimiter=delimiter, escapechar=escape or None, strict=True)
        parsed: Iterable[list[str] | str] = list(reader)
    except csv.Error:
        parsed = (row.fields for row in split(text, delimiter, escape))
    for fields in parsed:
        if isinstance(fields, str):
            yield fields
            continue
        row = build_record(fields, columns)
        is_escaped = isinstance(row, str) and not escape and any(field.endswith("\\") for field in fields[:-1])
        yield f"{row}{ESCAPED}" if is_escaped else row


def build_record(fields: list[str], columns: Sequence[str]) -> Record | str:
    """Return the record of some fields, {} for no fields, or the reason why they are invalid."""
    if fields and len(fields) != len(columns):
        return f"wrong number of fields: {len(fields)} where there are {len(columns)} columns"
    return dict(zip(columns, fields, strict=False))


def ends(
    buffer: bytes | bytearray, *, final: bool, max_rows: int = 0, delimiter: str = ",", escape: str = ""
) -> tuple[int, int]:
    """Return the end of the last complete row in a buffer, and the number of rows, at most `max_rows` unless it is 0.

    All encodings that are read so write quotes, delimiters and newlines as ASCII does, and use these bytes for
    nothing else. So decoding as Latin-1 finds them, with one character for each byte.
    """
    end = rows = 0
    for row in split(buffer.decode("latin-1"), delimiter, escape):
        if row.open and not final:
            break  # the row may continue in bytes not read yet
        end, rows = row.end, rows + 1
        if rows == max_rows:
            break
    return end, rows


def csv_table(
    data: bytes, encoding: str, *, columns: Sequence[str], needed_columns: Sequence[str], delimiter: str = ","
) -> pa.Table | None:
    """Return complete rows with regular quotes as columns of large_string, or None if Python's reader is needed.

    >>> csv_table(b'1,"a, ""b"" c"', "utf-8", columns=("id", "text"), needed_columns=["text"]).to_pydict()
    {'text': ['a, "b" c']}
    """
    try:
        if codecs.lookup(encoding).name != "utf-8":
            data = data.decode(encoding).encode()
    except UnicodeError:
        return None
    # Arrow and Python differ about a lone carriage return. With one column, an empty line is ambiguous. Arrow drops a
    # byte order mark.
    if len(columns) < 2 or b"\0" in data or data.startswith(codecs.BOM_UTF8) or _ends_a_row_alone(data):
        return None
    if len(set(columns)) != len(columns):
        return None
    try:
        parsed = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=columns, use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.large_string()),
                include_columns=[column for column in columns if column in needed_columns],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    # Arrow reads an empty line as a row of empty fields, which cannot be told from a row of only delimiters.
    if not _EMPTY_LINE.search(data):
        return parsed.combine_chunks()
    lengths = [pc.binary_length(column) for column in parsed.columns]
    empty = functools.reduce(pc.and_, (pc.equal(length, 0) for length in lengths)) if lengths else pa.array([True])
    return None if pc.any(empty).as_py() else parsed.combine_chunks()


def _ends_a_row_alone(data: bytes) -> bool:
    """Check whether a carriage return without a newline occurs outside of quotes."""
    if b"\r" not in data:
        return False
    characters = np.frombuffer(data, np.uint8)
    returns = np.flatnonzero(characters == ord("\r"))
    alone = returns[characters[np.minimum(returns + 1, len(characters) - 1)] != ord("\n")]
    if not len(alone):
        return False
    quotes = np.flatnonzero(characters == ord('"'))
    return bool((np.searchsorted(quotes, alone) % 2 == 0).any())


# Row ends in bytes: one definition for cutting files, for Python's parsers, and for Arrow.
# A row ends at `\n`, `\r\n` or a single `\r`, as in Python's universal newlines; in CSV only outside of quotes.
# `\r\r\n` ends a row and a blank row after it.

_END = re.compile(rb"\r\n|\r|\n")


def row_ends(data: bytes) -> Iterator[int]:
    """Yield the end of each row in bytes without quotes."""
    return (match.end() for match in _END.finditer(data))


class Ends(NamedTuple):
    """The end of the last complete row in a buffer, the number of rows, and whether the quotes are regular (RFC 4180)."""

    end: int
    rows: int
    regular: bool


def lines(text: str) -> Iterator[str]:
    r"""Yield the lines of a text without their ends: `\n`, `\r\n` or `\r`.

    str.splitlines would also split at U+2028 and other characters that may occur in texts.
    """
    for line in io.StringIO(text, newline=None):
        yield line.removesuffix("\n")


def of_buffer(buffer: bytes | bytearray, *, quoted: bool, final: bool, delimiter: str = ",", escape: str = "") -> Ends:
    """Return the complete rows at the beginning of a buffer. `final`: nothing follows, so the last row is complete."""
    if quoted and escape and escape.encode() in buffer:
        return Ends(*ends(buffer, final=final, delimiter=delimiter, escape=escape), False)
    if quoted and b'"' in buffer:
        regular = _ends_of_regular(buffer, final=final, delimiter=delimiter)
        return regular or Ends(*ends(buffer, final=final, delimiter=delimiter), False)
    if final:
        return Ends(
            len(buffer), _native.row_ends(buffer) + (bool(buffer) and not buffer.endswith((b"\n", b"\r"))), quoted
        )
    end = _last(buffer)
    return Ends(end, _native.row_ends(memoryview(buffer)[:end]), quoted)


def _ends_of_regular(buffer: bytes | bytearray, *, final: bool, delimiter: str) -> Ends | None:
    """Return the complete rows at the beginning of a buffer, or None if some quotes are not regular."""
    # The function in C only knows commas as delimiters, so the two characters are swapped.
    swapped = bytes.maketrans(f"{delimiter},".encode(), f",{delimiter}".encode())
    match = _native.csv_rows(buffer if delimiter == "," else buffer.translate(swapped), final)
    return Ends(*match, True) if match is not None else None


def of_first(buffer: bytes | bytearray, *, quoted: bool, final: bool, delimiter: str = ",", escape: str = "") -> int:
    """Return the end of the first row in a buffer, or 0 if more bytes are needed."""
    match = _END.search(buffer)
    line = buffer[: match.start() if match else None]
    if quoted and (b'"' in line or (escape and escape.encode() in line)):
        return ends(buffer, final=final, max_rows=1, delimiter=delimiter, escape=escape)[0]
    if match and (final or match.end() < len(buffer) or match[0] != b"\r"):
        return match.end()
    return len(buffer) if final else 0


def _last(buffer: bytes | bytearray) -> int:
    r"""Return the end of the last certainly complete row: a `\r` at the end may be half of `\r\n`."""
    size = len(buffer) - buffer.endswith(b"\r")
    newline = buffer.rfind(b"\n", 0, size)
    return max(newline, buffer.rfind(b"\r", max(newline, 0), size)) + 1


# JSON lines: Arrow reads them as columns if each line is one plain object, otherwise Python's reader does.
# Both must return the same rows, so Arrow reads only unambiguous data. In all other cases Python's reader finds the
# reason for each row.


class Plain(NamedTuple):
    """The columns of lines that have a text, a number or a boolean in each column, and which lines these are, `bool[lines]`.

    Columns that no line has are omitted. The types are large_string, int64, float64 or bool. `unread` has the names
    of further columns in the first line.
    """

    table: pa.Table
    lines: np.ndarray
    unread: frozenset[str]


def json_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the object of each line ({} for a blank one), or the reason why the line has none."""
    for line in lines(text):
        if not line.strip():
            yield {}
            continue
        try:
            row = _decode(line)
        except (ValueError, RecursionError) as error:
            yield f"not JSON: {error}"
            continue
        if isinstance(row, dict):
            yield row or "no columns: an empty JSON object"
        else:
            yield f"not a JSON object: {type(row).__name__}"


def json_table(data: bytes, *, needed_columns: Sequence[str]) -> Plain | None:
    r"""Return the needed columns of complete lines in UTF-8, or None if Python's reader is needed.

    Numbers are exactly those of Python: a column of integers is int64. In a column of float64 only lines whose number
    has a fraction are included, because Arrow does not distinguish 1 from 1.0.

    >>> json_table(b'{"text": "a", "n": 7}\n{"text": null, "n": 8}', needed_columns=["text", "n"]).table.to_pydict()
    {'text': ['a'], 'n': [7]}
    >>> json_table(b'{"text": "a"}\n{"text": 7}', needed_columns=["text"])
    """
    if (
        not needed_columns
        or any(map(is_path, needed_columns))
        or b"\0" in data
        or not (count := plain_json_lines(data))
    ):
        return None
    end = data.find(b"\n")
    try:
        first = _decode(data[: end if end >= 0 else len(data)].decode())
    except (ValueError, RecursionError):
        return None
    kinds = _kinds(first, needed_columns)
    parsed = _parsed(data, kinds) if kinds else None
    if parsed is None and kinds and pa.int64() in kinds.values():  # some numbers may have fractions
        parsed = _parsed(data, {name: pa.float64() if kind == pa.int64() else kind for name, kind in kinds.items()})
    if parsed is None or parsed.num_rows != count:
        return None
    present_columns = [
        name for name in needed_columns if parsed[name].null_count < count or f'"{name}"'.encode() in data
    ]
    if not present_columns:
        return None
    parsed = parsed.select(present_columns).combine_chunks()
    plain = np.ones(count, bool)
    for column in parsed.columns:
        if column.null_count:
            plain &= column.is_valid().to_numpy()
        if pa.types.is_floating(column.type):
            numbers = column.to_numpy()
            plain &= np.isfinite(numbers) & (numbers != np.floor(numbers))
    return Plain(
        parsed if plain.all() else parsed.filter(pa.array(plain)), plain, frozenset(first) - set(needed_columns)
    )


def _kinds(first: Record, needed_columns: Sequence[str]) -> dict[str, pa.DataType] | None:
    """Return the types of the needed columns in the first row, or None if one is a list or an object."""
    types = {
        str: pa.large_string(),
        type(None): pa.large_string(),
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
    }
    kinds = {name: types.get(type(first.get(name))) for name in needed_columns}
    return None if None in kinds.values() else kinds


def _parsed(data: bytes, kinds: Mapping[str, pa.DataType]) -> pa.Table | None:
    """Return columns of these types, or None if a value has another type."""
    try:
        _check_utf8(data)  # Arrow's JSON reader does not check it
        return pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(kinds.items())), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowException:
        return None


def _check_utf8(data: bytes) -> None:
    """Raise ArrowInvalid for bytes that are not UTF-8, in a tenth of the time of Python's decoder."""
    edges = pa.py_buffer(np.array([0, len(data)], np.int64))
    pa.Array.from_buffers(pa.large_binary(), 1, [None, edges, pa.py_buffer(data)]).cast(pa.large_string())


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    """Return a JSON object. Raises ValueError if a name occurs twice, because one value would be lost."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the name "{twice}" stands twice in an object')
    return fields


_decode = json.JSONDecoder(object_pairs_hook=_object).decode


# Parsing of a block of any text format: CSV, TSV, JSON lines, plain lines.
# An unreadable row yields a reason instead of an exception: it goes to rejected.jsonl, and other rows are not
# affected. The text of a reason before its first colon is its kind, by which reasons are counted.

# JSON escapes that may produce invalid text: NUL, or half of a surrogate pair.
_ESCAPED = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def read(
    data: bytes, format: Format, *, columns: Sequence[str], first: int, typed_columns: Sequence[str] = ()
) -> Iterator[Row]:
    """Yield each row of a block of complete rows. `first` is the number of its first row.

    In JSON formats, values of the `typed_columns` must be texts or numbers.
    """
    try:
        text, broken = data.decode(format.encoding), False
    except UnicodeDecodeError:
        # Undecodable bytes become lone surrogates, so that only their rows are rejected.
        text, broken = data.decode(format.encoding, "surrogateescape"), True
    as_json = format.kind in ("jsonl", "conll", "document")
    suspicious = broken or b"\0" in data or (as_json and _ESCAPED.search(data) is not None)
    # In the other formats every value is text.
    check_types = typed_columns if as_json else ()
    divided = (format.delimiter, format.escape) if format.kind == "csv" else ()
    for number, row in enumerate(_PARSERS[format.kind](text, columns, *divided), first):
        if isinstance(row, str):
            yield Row(number, None, row)
        elif not row:
            yield Row(number, None)
        else:
            row = rows.with_paths(row, check_types)
            reason = rows.damage(row, format, broken=broken) if suspicious else ""
            reason = reason or (rows.not_text(row, check_types) if check_types else "")
            yield Row(number, None if reason else row, reason)


def tsv_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the record of each line ({} for an empty one), or the reason why the line is invalid."""
    for line in lines(text):
        yield build_record(line.split("\t") if line else [], columns)


def text_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield each line as the column `text`, or {} for a blank one."""
    for line in lines(text):
        yield {"text": line} if line.strip() else {}


def made_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the record or the reason in each line of JSON from `conll` or `documents`."""
    yield from map(json.loads, lines(text))


_PARSERS = {
    "csv": csv_rows,
    "tsv": tsv_rows,
    "jsonl": json_rows,
    "text": text_rows,
    "conll": made_rows,
    "document": made_rows,
}

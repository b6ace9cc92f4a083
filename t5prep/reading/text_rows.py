"""Read the rows of text files: CSV, TSV, JSON lines, plain lines.

CSV and JSON lines are read by Arrow where it gives the same rows as Python's own reader, in a sixth of the time. The two
must give the same rows, so Arrow reads only data that cannot be read in two ways. Where Arrow fails (a row of another
length, bytes that are not UTF-8), Python's reader is used, which says what is wrong with which row.
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
# The end of the reason of a row that an escape character may explain.
ESCAPED = r" (a backslash may stand for an escape: --escape '\')"
# The line that Excel reads and writes before the one with the columns' names.
SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?(?:\r\n|\r|\n)')
_QUOTED = re.compile(rb'"[^"]*"')
_EMPTY_LINE = re.compile(rb"\A[\r\n]|\n[\r\n]|\r\r")
csv.field_size_limit(sys.maxsize)  # the default of 128 kB refuses real documents


class Parsed(NamedTuple):
    """One row: its fields or why it cannot be read, and the number of characters up to its end.

    `open` is true if the text ended before the row was known to be whole.
    """

    fields: list[str] | str
    end: int
    open: bool = False


def delimiter_of(line: bytes, *, columns: int = 0) -> str:
    """Return what divides the columns of a first line: a comma, or the semicolon of Excel in most of Europe.

    Where the line is a row already, the number of columns decides; "" if it does not tell the two apart.

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
    r"""Check whether the beginning of a TSV in UTF-8 has quotes as CSV has them: all are regular, and all rows equally long.

    >>> is_quoted(b'text\tlabel\n"a ""b""\tc"\tgood\n', final=True), is_quoted(b'text\tlabel\n"a" b\tgood\n', final=True)
    (True, False)
    """
    rows = _ends_of_regular(beginning, final=final, delimiter="\t") if b'"' in beginning else None
    complete_rows = beginning[: rows.end].decode(errors="replace") if rows else ""
    fields = csv.reader(io.StringIO(complete_rows, newline=""), delimiter="\t")
    return '"' in complete_rows and len({len(row) for row in fields if row}) == 1


def split(text: str, delimiter: str = ",", escape: str = "") -> Iterator[Parsed]:
    """Yield the rows of CSV text.

    A quote that never closes costs the line in which it opens, not the rest of the file.
    """
    # Lines are read one after the other, and not listed: in a field of 100 MB each may be one character.
    source = io.StringIO(text, newline="")
    begin = 0
    # An earlier row that came to nothing was in quotes at the beginning of each line up to this one, and open at its end or not.
    # So a row that goes on in one of these lines comes to nothing too: this needs no look at them.
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
                goes_on = "unexpected end of data" in str(error)
                if goes_on or reader.line_num - lines_before > 1:
                    if not alone:
                        hopeless, unfinished = _line_start(text, source.tell()), goes_on
                    source.seek(begin)
                    source.readline()
                    opened, begin = begin, source.tell()
                    yield Parsed(NEVER_CLOSED + _if_escaped(text[opened:begin], escape), begin, unfinished)
                    break
                fields = f"broken quoting: {error}{_if_escaped(text[begin : source.tell()], escape)}"
            begin = source.tell()
            yield Parsed(fields, begin, begin == len(text))


def _if_escaped(row: str, escape: str) -> str:
    """Return ESCAPED for a row with a backslash before a quote and no escape character, "" for others."""
    return ESCAPED if not escape and '\\"' in row else ""


def _line_start(text: str, end: int) -> int:
    r"""Return where the line begins that ends at a place.

    >>> _line_start("a\nb\r\n", 5), _line_start("a\nb", 3), _line_start("a\n", 2)
    (2, 2, 0)
    """
    last = end - 2 if text.endswith("\r\n", 0, end) else end - 1 if text.endswith(("\r", "\n"), 0, end) else end
    return max(text.rfind("\n", 0, last), text.rfind("\r", 0, last)) + 1


def csv_rows(text: str, columns: Sequence[str], delimiter: str = ",", escape: str = "") -> Iterator[Record | str]:
    """Yield each row of CSV text as its record, {} if it is blank, or as the reason why it cannot be read."""
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
    """Return the record of some fields, {} if there are none, or the reason why they make none."""
    if fields and len(fields) != len(columns):
        return f"wrong number of fields: {len(fields)} where there are {len(columns)} columns"
    return dict(zip(columns, fields, strict=False))


def ends(
    buffer: bytes | bytearray, *, final: bool, max_rows: int = 0, delimiter: str = ",", escape: str = ""
) -> tuple[int, int]:
    """Return where the last whole row of a buffer ends, and the number of rows; only the first `max_rows`, if it is not 0.

    Every encoding that is read so writes quotes, commas and newlines as ASCII does, and uses their bytes for nothing
    else. So Latin-1 finds them, one character for each byte.
    """
    end = rows = 0
    for row in split(buffer.decode("latin-1"), delimiter, escape):
        if row.open and not final:
            break  # the row may continue in bytes that are not read yet
        end, rows = row.end, rows + 1
        if rows == max_rows:
            break
    return end, rows


def csv_table(
    data: bytes, encoding: str, *, columns: Sequence[str], needed_columns: Sequence[str], delimiter: str = ","
) -> pa.Table | None:
    """Return whole rows whose quotes are regular as columns of large_string; None if Python's reader must be used.

    >>> csv_table(b'1,"a, ""b"" c"', "utf-8", columns=("id", "text"), needed_columns=["text"]).to_pydict()
    {'text': ['a, "b" c']}
    """
    try:
        if codecs.lookup(encoding).name != "utf-8":
            data = data.decode(encoding).encode()
    except UnicodeError:
        return None
    # Readers differ about a lone carriage return; an empty line is ambiguous with one column; Arrow drops a BOM.
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
    # Arrow reads an empty line as a row of empty fields, which look like a row of nothing but delimiters.
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


# Find where rows end in bytes, by one definition for cutting, Python's parsers and Arrow.
#
# A row ends at `\n`, `\r\n` or a single `\r`, as in Python's universal newlines; in CSV only outside of quotes. `\r\r\n`
# ends a row and a blank row after it.

_END = re.compile(rb"\r\n|\r|\n")


def row_ends(data: bytes) -> Iterator[int]:
    """Yield where each row of bytes without quotes ends."""
    return (match.end() for match in _END.finditer(data))


class Ends(NamedTuple):
    """The end of the last whole row in a buffer, the number of rows, and whether they are regular (RFC 4180)."""

    end: int
    rows: int
    regular: bool


def lines(text: str) -> Iterator[str]:
    r"""Yield the lines of a text without their ends: `\n`, `\r\n` or `\r`.

    str.splitlines is not used, because it also splits at U+2028 and other characters that are text.
    """
    for line in io.StringIO(text, newline=None):
        yield line.removesuffix("\n")


def of_buffer(buffer: bytes | bytearray, *, quoted: bool, final: bool, delimiter: str = ",", escape: str = "") -> Ends:
    """Return the whole rows at the beginning of a buffer. `final`: nothing follows, so the last row is whole."""
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
    """Return the whole rows at the beginning of a buffer, None if some quotes in it are not regular."""
    # What is in C knows commas alone.
    swapped = bytes.maketrans(f"{delimiter},".encode(), f",{delimiter}".encode())
    match = _native.csv_rows(buffer if delimiter == "," else buffer.translate(swapped), final)
    return Ends(*match, True) if match is not None else None


def of_first(buffer: bytes | bytearray, *, quoted: bool, final: bool, delimiter: str = ",", escape: str = "") -> int:
    """Return where the first row of a buffer ends; 0 if more bytes are needed to know it."""
    match = _END.search(buffer)
    line = buffer[: match.start() if match else None]
    if quoted and (b'"' in line or (escape and escape.encode() in line)):
        return ends(buffer, final=final, max_rows=1, delimiter=delimiter, escape=escape)[0]
    if match and (final or match.end() < len(buffer) or match[0] != b"\r"):
        return match.end()
    return len(buffer) if final else 0


def _last(buffer: bytes | bytearray) -> int:
    r"""Return where the last row ends for certain: a `\r` at the very end may be half of `\r\n`."""
    size = len(buffer) - buffer.endswith(b"\r")
    newline = buffer.rfind(b"\n", 0, size)
    return max(newline, buffer.rfind(b"\r", max(newline, 0), size)) + 1


# Read JSON lines: by Arrow as columns, where every line is one plain object; else by Python's own reader.
#
# The two readers must give the same rows, so Arrow reads only data that cannot be read in two ways; in any doubt Python's
# reader is used, which says what is wrong with which row.


class Plain(NamedTuple):
    """Columns of the lines that have a text, a number or a truth value in each of them, and which lines these are: bool[lines].

    Columns that no line has are left out. They are large_string, int64, float64 or bool. `unread` are the names of those that
    the first line has beside them.
    """

    table: pa.Table
    lines: np.ndarray
    unread: frozenset[str]


def json_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the object of each line, {} for a blank one, or the reason why a line holds none."""
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
    r"""Return the wanted columns of whole lines in UTF-8; None if Python's reader must be used.

    Numbers are exactly those that Python reads: a column of whole numbers is int64, and in one of float64 each has a
    fraction, for Arrow does not tell 1 from 1.0.

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
    if parsed is None and kinds and pa.int64() in kinds.values():  # some may have fractions
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
    """Return the types of the wanted columns as the first row has them; None if one is a list or an object."""
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
    """Return columns of these types; None if a value is of another one."""
    try:
        _check_utf8(data)  # the reader of JSON does not
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
    """Raise ArrowInvalid for what Python does not decode either, in a tenth of its time."""
    edges = pa.py_buffer(np.array([0, len(data)], np.int64))
    pa.Array.from_buffers(pa.large_binary(), 1, [None, edges, pa.py_buffer(data)]).cast(pa.large_string())


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    """Return an object of JSON. Raises ValueError if a name occurs twice, because one value would be lost."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the name "{twice}" stands twice in an object')
    return fields


_decode = json.JSONDecoder(object_pairs_hook=_object).decode


# Parse the rows of a block of bytes in any text format: CSV, TSV, JSON lines, plain lines.
#
# A row that cannot be read gives a reason, not an exception: it goes to rejected.jsonl, and the other rows continue.
# Reasons are counted by their text before the first colon.

# Escapes of JSON that may give invalid text: a NUL, half of a surrogate pair.
_ESCAPED = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def read(
    data: bytes, format: Format, *, columns: Sequence[str], first: int, wanted: Sequence[str] = ()
) -> Iterator[Row]:
    """Yield every row of a block that consists of whole rows; `first` is the number of its first row.

    Of JSON lines, the values of the `wanted` columns must be texts or numbers.
    """
    try:
        text, broken = data.decode(format.encoding), False
    except UnicodeDecodeError:
        # Undecodable bytes become lone surrogates, which mark the rows they are in and no others.
        text, broken = data.decode(format.encoding, "surrogateescape"), True
    as_json = format.kind in ("jsonl", "conll", "document")
    suspicious = broken or b"\0" in data or (as_json and _ESCAPED.search(data) is not None)
    # In the other formats every value is text.
    check_types = wanted if as_json else ()
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
    """Yield the record of each line, {} for an empty one, or the reason why a line holds none."""
    for line in lines(text):
        yield build_record(line.split("\t") if line else [], columns)


def text_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield each line as the column `text`, {} for a blank one."""
    for line in lines(text):
        yield {"text": line} if line.strip() else {}


def made_rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the record or the reason in each line of JSON that `conll` or `documents` made."""
    yield from map(json.loads, lines(text))


_PARSERS = {
    "csv": csv_rows,
    "tsv": tsv_rows,
    "jsonl": json_rows,
    "text": text_rows,
    "conll": made_rows,
    "document": made_rows,
}

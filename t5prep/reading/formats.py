"""Rows of a block of bytes: CSV, TSV, JSON lines, plain lines, Parquet.

A row that cannot be read is a reason, not an exception: it ends in rejected.jsonl and the others go on. Reasons are
counted by what stands before their first colon.
"""

import codecs
import csv
import dataclasses
import io
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow.parquet

from t5prep.errors import SourceError, UsageError
from t5prep.reading import csv_by_arrow
from t5prep.reading.rows import Record, Row

NEVER_CLOSED = "broken quoting: a quote opens in this row and does not close"
csv.field_size_limit(sys.maxsize)  # the default of 128 kB refuses real documents

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
}
KINDS = ("csv", "tsv", "jsonl", "parquet", "text")
PACKED = (".gz", ".bz2", ".xz")
# In bytes, of every encoding that Python knows.
_LONGEST_CHARACTER = 8
# Escapes of JSON that may stand for no text: a NUL, half of a surrogate pair.
_ESCAPED = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


@dataclasses.dataclass(frozen=True)
class Format:
    """How the bytes of a file become rows. TSV has no quoting (as GLUE's files and IANA's registration have none)."""

    kind: str
    encoding: str = "utf-8"

    @property
    def quoted(self) -> bool:
        """Whether a newline may stand inside a row."""
        return self.kind == "csv"


def detect(name: str, *, kind: str = "", encoding: str = "utf-8") -> Format:
    """The format of a file by its name, or `kind` where the user names it. Raises UsageError."""
    if kind and kind not in KINDS:
        raise UsageError(f'--format "{kind}": it is one of {", ".join(KINDS)}')
    stem = name.lower()
    for suffix in PACKED:
        stem = stem.removesuffix(suffix)
    known = kind or next((kind for suffix, kind in SUFFIXES.items() if stem.endswith(suffix)), "")
    if not known:
        raise UsageError(f"the name {name} does not say what format it is in. Say it: --format {'|'.join(KINDS)}")
    return Format(known, encoding)


def rows(
    data: bytes,
    format: Format,
    *,
    columns: Sequence[str],
    first: int,
    wanted: Sequence[str] = (),
    regular: bool = False,
) -> Iterator[Row]:
    """Rows of a block that begins and ends between two rows; `first` is the number of its first row.

    CSV that is known to be `regular` is read faster, and of `wanted` columns only those (none: all).
    """
    if regular and (records := csv_by_arrow.read(data, format.encoding, columns=columns, wanted=wanted)) is not None:
        yield from itertools.starmap(Row, enumerate(records, first))
        return
    try:
        text, broken = data.decode(format.encoding), False
    except UnicodeDecodeError:
        # Undecodable bytes become lone surrogates, which mark the rows they are in and no others.
        text, broken = data.decode(format.encoding, "surrogateescape"), True
    suspicious = broken or b"\0" in data or (format.kind == "jsonl" and _ESCAPED.search(data) is not None)
    parse = {"csv": _csv, "tsv": _tsv, "jsonl": _jsonl, "text": _text}[format.kind]
    for number, row in enumerate(parse(text, columns), first):
        if isinstance(row, str):
            yield Row(number, None, row)
        elif row and (reason := _damage(row, format, broken=broken) if suspicious else ""):
            yield Row(number, None, reason)
        elif row:
            yield Row(number, row)


def parquet_rows(file: Any, group: int, *, columns: Sequence[str], first: int, skip: int = 0) -> Iterator[Row]:
    """Rows of one row group of an open Parquet file after the first `skip`, in slices: a large group never becomes a list."""
    table = pyarrow.parquet.ParquetFile(file)
    number = first
    for batch in table.iter_batches(batch_size=2048, row_groups=[group], columns=list(columns) or None):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            number += batch.num_rows
            continue
        number, batch, skip = number + skip, batch.slice(skip), 0
        for record in _records(batch):
            if isinstance(record, str):
                yield Row(number, None, record)
            elif reason := _nul(record):
                yield Row(number, None, reason)
            else:
                yield Row(number, record)
            number += 1


def _records(batch: pyarrow.RecordBatch) -> Iterator[Record | str]:
    """The rows of a batch; where one holds bytes that are no UTF-8 (Arrow does not look), why it cannot be read."""
    try:
        yield from batch.to_pylist()
        return
    except UnicodeDecodeError:
        pass
    for i in range(batch.num_rows):
        try:
            yield batch.slice(i, 1).to_pylist()[0]
        except UnicodeDecodeError as error:
            yield f"not utf-8: byte 0x{error.object[error.start]:02x}"


def _nul(record: Record) -> str:
    """Why a row of Parquet is refused, whose strings are UTF-8 already; "" where it is not."""
    for column, value in record.items():
        if "\0" in (value if isinstance(value, str) else "".join(_strings(value))):
            return f"NUL byte: in {column}"
    return ""


def split_csv(text: str) -> Iterator[tuple[list[str] | str, int]]:
    """Rows of CSV text (or why one cannot be read), each with the number of characters up to its end.

    A quote that never closes costs the line it stands in, not the rest of the file.
    """
    lines = io.StringIO(text, newline="").readlines()
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    begin = 0
    while begin < len(lines):
        reader = csv.reader(iter(lines[begin:]) if begin else iter(lines), strict=True)
        origin = begin
        while True:
            try:
                row: list[str] | str = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if origin + reader.line_num > begin + 1 or "unexpected end of data" in str(error):
                    yield NEVER_CLOSED, ends[begin + 1]
                    begin += 1
                    break
                row = f"broken quoting: {error}"
            begin = origin + reader.line_num
            yield row, ends[begin]


def _csv(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    try:
        rows: Iterable[list[str] | str] = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        rows = (row for row, _ in split_csv(text))
    for row in rows:
        yield row if isinstance(row, str) else _named(row, columns)


def _tsv(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    for line in _lines(text):
        yield _named(line.split("\t") if line else [], columns)


def _named(fields: list[str], columns: Sequence[str]) -> Record | str:
    if fields and len(fields) != len(columns):
        return f"wrong number of fields: {len(fields)} where the header has {len(columns)}"
    return dict(zip(columns, fields, strict=False))


def _jsonl(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    for line in _lines(text):
        if not line.strip():
            yield {}
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield f"not JSON: {error}"
            continue
        yield row if isinstance(row, dict) else f"not a JSON object: {type(row).__name__}"


def _text(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    for line in _lines(text):
        yield {"text": line} if line.strip() else {}


def _lines(text: str) -> Iterator[str]:
    # Only \n ends a line here: str.splitlines would also cut at U+2028 and others that are text.
    for line in io.StringIO(text, newline="\n"):
        yield line.rstrip("\r\n")


def _damage(record: Record, format: Format, *, broken: bool) -> str:
    """Why a row's values are no text, or "". Undecodable bytes of a `broken` block are the surrogates from U+DC80 on."""
    for column, value in record.items():
        text = value if isinstance(value, str) else "".join(_strings(value))
        if "\0" in text:
            return f"NUL byte: in {column}"
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            if broken and 0xDC80 <= code <= 0xDCFF:
                return f"not {format.encoding}: byte 0x{code - 0xDC00:02x} in {column}"
            return f"no text: half of a surrogate pair (U+{code:04X}) in {column}"
    return ""


def _strings(value: Any) -> Iterator[str]:
    """Every string of a JSON value, keys included, in no order. Without recursion: a row may be nested as deep as it likes."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one


def check_encoding(head: bytes, format: Format, *, name: str) -> None:
    """Refuses a file whose beginning is not in the encoding it should be in, and names a likely one.

    Raises SourceError. Damage further on costs only the rows it is in.
    """
    try:
        head.decode(format.encoding)
    except LookupError:
        raise UsageError(f'--encoding "{format.encoding}" is not an encoding that Python knows. Try utf-8.') from None
    except UnicodeDecodeError as error:
        if error.start >= len(head) - _LONGEST_CHARACTER and _goes_on(head, format.encoding):
            return
        import charset_normalizer

        found = charset_normalizer.from_bytes(head[max(0, error.start - 4096) :][: 1 << 16])
        likely = [encoding for match in found for encoding in match.could_be_from_charset]
        # Windows' Western encoding is what most such files are in; its neighbours fit the same few bytes as well.
        guess = "cp1252" if "cp1252" in likely or not likely else likely[0].replace("_", "-")
        line = head.count(b"\n", 0, error.start) + 1
        raise SourceError(
            f"{name} is not {format.encoding}: byte 0x{head[error.start]:02x} in line {line}. "
            f"Say what it is; it looks like --encoding {guess}"
        ) from None


def _goes_on(head: bytes, encoding: str) -> bool:
    """Whether nothing is wrong but that the last character is cut: a decoder of streams waits for its rest."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except (UnicodeError, LookupError):
        return False
    return True

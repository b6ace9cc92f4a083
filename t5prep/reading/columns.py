"""Read the rows of a block as Arrow columns, without a Python object for each row where Arrow can read them."""

import codecs
import collections
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.errors import SourceError
from t5prep.io.progress import number_of
from t5prep.options.files import FileOptions
from t5prep.reading import blocks, column_checks, formats, parquet_rows, text_rows
from t5prep.reading.blocks import Block
from t5prep.reading.parquet_rows import Part
from t5prep.reading.rows import Record, Row, Value, as_text, root
from t5prep.sources import Resolved


class Columns(NamedTuple):
    """The rows of a block: in a table if they have a text or a number in each column, otherwise in `other_rows`.

    * `table`: columns of large_string or numbers, without nulls.
    * `numbers`: the numbers of its rows in the file, `int64[rows]`.
    * `unread`: names of further columns that its rows have.
    """

    table: pa.Table
    numbers: np.ndarray
    other_rows: list[Row]
    unread: frozenset[str] = frozenset()

    def rows(self, mask: np.ndarray | None = None) -> list[Row]:
        """Return the rows of `table` that `mask` (`bool[rows]`, None: all) selects, and all `other_rows`, ordered by number."""
        mask = np.ones(len(self.numbers), bool) if mask is None else mask
        selected_table = self.table if mask.all() else self.table.filter(pa.array(mask))
        names = selected_table.column_names
        values = zip(*(column.to_pylist() for column in selected_table.columns), strict=True)
        records: Iterable[Record] = (dict(zip(names, row, strict=True)) for row in values)
        if self.unread:
            records = (_Partial(record, self.unread) for record in records)
        table_rows = [Row(number, record) for number, record in zip(self.numbers[mask].tolist(), records, strict=True)]
        return sorted([*table_rows, *self.other_rows], key=lambda row: row.number) if self.other_rows else table_rows


class _Partial(dict[str, Value]):
    """A record without some columns of its row. Access to an unread column raises KeyError instead of returning None."""

    def __init__(self, record: Record, unread: frozenset[str]) -> None:
        super().__init__(record)
        self._unread = unread

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a column, or `default`. Raises KeyError for a column that was not read."""
        return self[name] if name in self or name in self._unread else default


def read(block: Block, *, names: Sequence[str]) -> Columns:
    """Return all rows of a block except blank ones, with the columns `names`; rows in `other_rows` may have more.

    Raises the errors of `blocks.read`.
    """
    block_columns = _by_arrow(block, names)
    # Each row must be accounted for. Otherwise Python's reader decides.
    if block_columns is not None and len(block_columns.numbers) + len(block_columns.other_rows) == block.rows:
        return block_columns
    rows = [row for row in blocks.read(block, columns=names) if not row.blank]
    return Columns(pa.table({}), np.zeros(0, np.int64), rows)


def gathered(read: Columns, names: Sequence[str]) -> Columns:
    """Return rows that Python read as a table, if they have a text in each column; all others stay in `other_rows`.

    The table has each of `names` that any row has, so that no row loses a value.
    """
    if len(read.numbers) or not read.other_rows:
        return read
    names = [name for name in names if any(row.record is not None and name in row.record for row in read.other_rows)]
    numbers, other_rows = [], []
    texts: list[list[str]] = [[] for _ in names]
    for row in read.other_rows:
        values = [row.record.get(name) for name in names] if row.record is not None else [None]
        if all(type(value) is str for value in values):
            numbers.append(row.number)
            for text, value in zip(texts, values, strict=True):
                text.append(value)  # type: ignore[arg-type]
        else:
            other_rows.append(row)
    if not names:
        return read
    table = pa.table([pa.array(text, pa.large_string()) for text in texts], names=list(names))
    return Columns(table, np.array(numbers, np.int64), other_rows)


def text_of(column: pa.ChunkedArray) -> pa.LargeStringArray:
    """Return the values of a column as texts. Numbers become the texts that `str` makes of Python's numbers."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_floating(array.type):
        return pa.array(list(map(repr, array.to_pylist())), pa.large_string())  # Arrow writes some floats differently
    return array.cast(pa.large_string())


def _by_arrow(block: Block, names: Sequence[str]) -> Columns | None:
    """Return the rows of a block as Arrow reads them, or None if Python must read each row."""
    if block.format.kind == "jsonl":
        return _json(block, names) if codecs.lookup(block.format.encoding).name == "utf-8" else None
    present_columns = [name for name in names if name in block.columns]
    if not present_columns or any(block.columns.count(name) != 1 for name in present_columns):
        return None
    if block.format.kind == "parquet":
        # A path into a column (`answers.text`) needs Python objects.
        inside = any(name not in present_columns and root(name) in block.columns for name in names)
        return None if inside else _parquet(block, present_columns)
    if not block.regular:
        return None
    table = text_rows.csv_table(
        blocks.content(block),
        block.format.encoding,
        columns=block.columns,
        needed_columns=present_columns,
        delimiter=block.format.delimiter,
    )
    if table is None or table.num_rows < block.rows:
        return None
    return Columns(table.slice(0, block.rows), _numbers(block), [])


def _json(block: Block, names: Sequence[str]) -> Columns | None:
    """Return the rows of JSON lines, or None if Python must read each row. Lines that Arrow cannot represent go to `other_rows`."""
    data = blocks.content(block)
    plain = text_rows.json_table(data, needed_columns=names)
    if plain is None or len(plain.lines) < block.rows:
        return None
    mask = plain.lines[: block.rows]
    table, numbers = plain.table.slice(0, int(mask.sum())), _numbers(block)
    if mask.all():
        return Columns(table, numbers, [], plain.unread)
    other_indices = np.flatnonzero(~mask)
    lines = data.split(b"\n")
    other_lines = b"\n".join([lines[index] for index in other_indices.tolist()]) + b"\n"
    rows = text_rows.read(other_lines, block.format, columns=(), first=1, typed_columns=names)
    other_rows = [
        row._replace(number=number) for row, number in zip(rows, numbers[other_indices].tolist(), strict=True)
    ]
    return Columns(table, numbers[mask], other_rows, plain.unread)


def _parquet(block: Block, names: Sequence[str]) -> Columns | None:
    """Return the rows of a part of a Parquet file, or None if Python must read each row."""
    part = Part(block.begin, block.skip, block.first_row, block.rows, block.size)
    batches = list(parquet_rows.batches(block.file, part, columns=names))
    if sum(batch.num_rows for batch in batches) != block.rows or not batches:
        return None
    table = pa.Table.from_batches(batches).select(list(names)).combine_chunks()
    arrays, plain = [], np.ones(table.num_rows, bool)
    for column in table.columns:
        array, good = _typed(column)
        if array is None:
            return None
        arrays.append(array)
        plain &= good
    numbers, typed = _numbers(block), pa.table(arrays, names=list(names))
    if plain.all():
        return Columns(typed, numbers, [])
    other_mask = ~plain
    rows = parquet_rows.rows_of(table.filter(pa.array(other_mask)).to_batches(), first=1, checked=names)
    other_rows = [row._replace(number=number) for row, number in zip(rows, numbers[other_mask].tolist(), strict=True)]
    return Columns(typed.filter(pa.array(plain)), numbers[plain], other_rows)


def _typed(column: pa.ChunkedArray) -> tuple[pa.Array | None, np.ndarray]:
    """Return a column of texts or numbers, and which of its values are usable, `bool[rows]`.

    The column is None if Python must examine each value.
    """
    type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    good = column.is_valid().to_numpy()
    if pa.types.is_integer(type) or pa.types.is_boolean(type):
        return column.combine_chunks().cast(type), good
    if pa.types.is_float32(type) or pa.types.is_float64(type):
        numbers = column.cast(pa.float64()).combine_chunks()
        return numbers, good & np.isfinite(numbers.fill_null(0).to_numpy(zero_copy_only=False))
    if not (pa.types.is_string(type) or pa.types.is_large_string(type)):
        return None, good
    texts = column.cast(pa.large_string()).combine_chunks()
    try:
        texts.validate(full=True)  # Arrow does not check UTF-8 when it reads
    except pa.ArrowInvalid:
        return None, good
    # One look at all bytes: NUL is rare, and a search in each text takes longer.
    if (content := texts.buffers()[2]) is None or np.frombuffer(content, np.uint8).min(initial=1):
        return texts, good
    nul = pc.match_substring(texts, "\0").fill_null(False)
    return texts, good & ~nul.to_numpy(zero_copy_only=False)


def _numbers(block: Block) -> np.ndarray:
    """Return the numbers of a block's rows in its file, `int64[rows]`."""
    return np.arange(block.first_row, block.first_row + block.rows)


# Texts of a corpus for work that needs no examples: training a tokenizer, auditing one.


def texts_of(record: Record, *, columns: Sequence[str]) -> Iterator[str]:
    """Yield the texts of a row in the given columns (default: `text`); of a list, each element.

    >>> list(texts_of({"text": ["a", "b"], "n": 1}, columns=("text", "n")))
    ['a', 'b', '1']
    """
    for column in columns or ("text",):
        value = record.get(column)
        for element in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(element, Mapping) and (text := as_text(element)):
                yield text


def texts(
    source: Resolved,
    *,
    columns: Sequence[str] = (),
    limit: int | None = None,
    options: FileOptions = FileOptions(),  # noqa: B008 - frozen
) -> Iterator[str]:
    """Yield the texts of the first `limit` rows of a source, in order. Unreadable rows are skipped.

    Raises SourceError for a missing column, and at the end if no row has a text.
    """
    options = formats.with_card(options, source)
    check(source, columns=columns, options=options)
    remaining_rows, count = math.inf if limit is None else limit, 0
    reasons = collections.Counter[str]()
    for block in (block for file in source.files for block in blocks.scan_element(file, options)):
        if remaining_rows < block.rows:
            block = block.head(int(remaining_rows))
        for row in read(block, names=tuple(columns) or ("text",)).rows():
            count += 1
            row_texts = list(texts_of(row.record or {}, columns=columns))
            if not row_texts:
                reasons[row.reason or _no_text(row.record or {}, columns)] += 1
            yield from row_texts
        remaining_rows -= block.rows
        if not remaining_rows:
            break
    if reasons.total() == count:
        raise without_texts(source, count, columns=columns, reasons=reasons)


def _no_text(record: Record, columns: Sequence[str]) -> str:
    """Return why a row has no text in the given columns."""
    for name in columns or ("text",):
        if isinstance(value := record.get(name), Mapping) and value:
            return f"not text: {name} is an object, whose parts are columns too, as {name}.{next(iter(value))}"
    return "empty text"


def without_texts(
    source: Resolved, count: int, *, columns: Sequence[str] = (), reasons: Mapping[str, int] = MappingProxyType({})
) -> SourceError:
    """Return the error for a source without any text. `reasons` has the number of rows for each reason."""
    if not count:
        return SourceError(f"{source.uri} has no rows. Name a file with rows.", code="row.missing")
    top_reasons = collections.Counter(reasons).most_common(3)
    reason_note = f": {', '.join(f'{reason} ({number:,})' for reason, number in top_reasons)}" if top_reasons else ""
    column_note = f" in {', '.join(columns)}" if columns else ""
    return SourceError(
        f"No text{column_note} in {number_of(count, 'row')} of {source.uri}{reason_note}. Name the "
        "column with the text: --column NAME",
        code="row.text-missing",
    )


def check(source: Resolved, *, columns: Sequence[str], options: FileOptions) -> None:
    """Check that the first files of a source have these columns. Raises SourceError.

    options: the user's, completed by the card (`formats.with_card`)
    """
    if not source.files:
        raise SourceError(f"{source.uri} has no files.", code="source.files-missing")
    for file in source.files[: column_checks.FILES_LOOKED_AT]:
        scanned = blocks.scan_element(file, options)
        lacking = column_checks.find_missing(scanned, tuple(columns) or ("text",), name=file.name)
        if lacking.column:
            otherwise = "" if lacking.advice else " Name the column with the text: --column NAME"
            raise SourceError(f"{file.name} has no column {lacking.column}{otherwise}", code="column.missing")

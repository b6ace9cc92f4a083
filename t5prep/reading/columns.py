"""Read the rows of a block as columns of text, without a Python object for each row where Arrow can read them."""

import codecs
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep import sources
from t5prep.reading import blocks, csv_by_arrow, json_by_arrow, parquet_rows
from t5prep.reading.blocks import Block
from t5prep.reading.parquet_rows import Part
from t5prep.reading.rows import Row


class Columns(NamedTuple):
    """Hold the rows of a block: those that have a text in each column, and the others.

    `table` has a column of large_string, without nulls, for each name; `numbers` are the numbers of its rows,
    int64[rows].
    """

    table: pa.Table
    numbers: np.ndarray
    others: list[Row]


def read(block: Block, *, columns: Sequence[str]) -> Columns:
    """Return all rows of a block except blank ones, with these columns only. Raises what blocks.read raises."""
    table = _by_arrow(block, columns)
    if table is not None and table.num_rows == block.rows:
        return Columns(table, np.arange(block.first_row, block.first_row + block.rows), [])
    numbers, others = [], []
    texts: list[list[str]] = [[] for _ in columns]
    for row in blocks.read(block, columns=columns):
        values = [row.record.get(name) for name in columns] if row.record is not None else [None]
        if all(type(value) is str for value in values):
            numbers.append(row.number)
            for text, value in zip(texts, values, strict=True):
                text.append(value)  # type: ignore[arg-type]
        elif not row.blank:
            others.append(row)
    text_table = pa.table([pa.array(text, pa.large_string()) for text in texts], names=list(columns))
    return Columns(text_table, np.array(numbers, np.int64), others)


def _by_arrow(block: Block, columns: Sequence[str]) -> pa.Table | None:
    """Return the rows of a block as Arrow reads them, None where Python must look at every row."""
    if block.format.kind == "jsonl":
        utf8 = codecs.lookup(block.format.encoding).name == "utf-8"
        table = json_by_arrow.table(blocks.content(block), wanted=columns) if utf8 else None
    elif any(block.columns.count(name) != 1 for name in columns):
        return None
    elif block.format.kind == "parquet":
        table = _parquet(block, columns)
    elif block.regular:
        table = csv_by_arrow.table(blocks.content(block), block.format.encoding, columns=block.columns, wanted=columns)
    else:
        return None
    if table is None or (block.cut and table.num_rows < block.rows):
        return None
    return table.slice(0, block.rows) if block.cut else table


def _parquet(block: Block, columns: Sequence[str]) -> pa.Table | None:
    part = Part(block.begin, block.skip, block.first_row, block.rows, block.size)
    with sources.open_random(block.file) as file:
        batches = list(parquet_rows.batches(file, part, name=block.file.name, columns=columns))
    if not batches:
        return None
    table = pa.Table.from_batches(batches).select(list(columns))
    if not all(pa.types.is_string(field.type) or pa.types.is_large_string(field.type) for field in table.schema):
        return None
    arrays = [column.cast(pa.large_string()).combine_chunks() for column in table.columns]
    for array in arrays:
        try:
            array.validate(full=True)  # Arrow does not check UTF-8 when it reads
        except pa.ArrowInvalid:
            return None
        if array.null_count or pc.any(pc.match_substring(array, "\0")).as_py():
            return None
    return pa.table(arrays, names=list(columns))

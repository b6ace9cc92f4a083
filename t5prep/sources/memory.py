"""Make a source of rows that a program has in memory (DataFrames, Arrow tables, datasets, dicts, texts), or of a stream."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from t5prep.errors import UsageError
from t5prep.sources import RawFile, Resolved

_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"PAR1": ".parquet"}
_KINDS = "a DataFrame, an Arrow table, a dataset of the Hub's datasets, dicts with one row each, or texts"


@contextlib.contextmanager
def written(rows: Any, *, name: str, text_column: str) -> Iterator[tuple[Resolved, bool]]:
    """Yield rows as a source, a JSON lines file of this `name` that is removed afterwards; and whether all are texts.

    A text is a row with one column, `text_column`. Raises UsageError for what is no rows, or none.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, count, texts = Path(folder) / "rows.jsonl", 0, 0
        with open(path, "w", encoding="utf-8") as file:
            for row in _rows(rows):
                if not isinstance(row, str | Mapping):
                    raise UsageError(f"Rows are {_KINDS}; one of these is of the type {type(row).__name__}.")
                values = {text_column: row} if isinstance(row, str) else dict(row)
                file.write(json.dumps(values, default=str) + "\n")
                count, texts = count + 1, texts + isinstance(row, str)
        if not count:
            raise UsageError("There are no rows: give at least one text, or one dict.")
        raw = RawFile(name=name, path=str(path), bytes=path.stat().st_size)
        yield Resolved("rows in memory", "", (raw,), licence="", citation=""), texts == count


@contextlib.contextmanager
def table(rows: Any) -> Iterator[Resolved]:
    """Yield rows with named columns as a source of one file. Raises UsageError for anything else."""
    with written(rows, name="rows.jsonl", text_column="text") as (source, as_texts):
        if as_texts:
            raise UsageError('These are texts without a column. Give rows as dicts, [{"text": "..."}], or name a file.')
        yield source


@contextlib.contextmanager
def piped(stream: BinaryIO, *, name: str) -> Iterator[Resolved]:
    """Yield a stream as a source of this `name`, copied to a temporary file: it may be compressed, or Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        with open(path, "wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        with open(path, "rb") as file:
            head = file.read(8)
        suffix = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
        raw = RawFile(name=name + suffix, path=str(path), bytes=path.stat().st_size)
        yield Resolved(name, "", (raw,), licence="", citation="")


def _rows(rows: Any) -> Iterator[Any]:
    """Yield the rows of a table, or the items of something else. Raises UsageError."""
    if hasattr(rows, "__arrow_c_stream__"):  # Arrow, Polars, pandas from 2.2
        import pyarrow as pa

        for batch in pa.RecordBatchReader.from_stream(rows):
            columns = [column for column in batch.schema.names if not column.startswith("__index_level_")]
            yield from batch.select(columns).to_pylist()
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas before
        yield from rows.to_dict("records")
    elif isinstance(rows, Mapping):
        raise UsageError(f"A dict is one row: put it into a list. Rows are {_KINDS}.")
    elif isinstance(rows, Iterable):
        yield from rows
    else:
        raise UsageError(f"Rows are {_KINDS}; this is of the type {type(rows).__name__}.")

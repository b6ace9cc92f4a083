"""Make a source of rows in memory (DataFrames, Arrow tables, datasets, dicts, texts), or of a stream."""

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import Path, PurePath
from typing import BinaryIO
from uuid import UUID

import numpy as np

from t5prep.errors import UsageError
from t5prep.io import atomic_files
from t5prep.json_values import JSON
from t5prep.sources import RawFile, Resolved, card
from t5prep.sources.arrow_floats import with_shortest_floats

_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ": ".xz", b"\x28\xb5\x2f\xfd": ".zst", b"PAR1": ".parquet"}
_KINDS = "a DataFrame, an Arrow table, a dataset of the Hub's datasets, dicts with one row each, or texts"


@contextlib.contextmanager
def written(rows: object, *, name: str, text_column: str) -> Iterator[tuple[Resolved, bool]]:
    """Yield rows as a source of one temporary JSON lines file with this `name`, and whether all rows are texts.

    A text is a row with one column, `text_column`. Raises UsageError for no rows, or for values that are not rows.
    """
    with atomic_files.temporary_folder() as folder:
        path, count, texts = Path(folder) / "rows.jsonl", 0, 0
        with open(path, "w", encoding="utf-8") as file:
            for row in _rows(rows):
                if not isinstance(row, str | Mapping):
                    raise UsageError(
                        f"A row has the unsupported type {type(row).__name__}. Pass {_KINDS}.", code="row.wrong-type"
                    )
                values = {text_column: row} if isinstance(row, str) else dict(row)
                file.write(json.dumps({str(name): as_json(value) for name, value in values.items()}) + "\n")
                count, texts = count + 1, texts + isinstance(row, str)
        if not count:
            raise UsageError("There are no rows. Pass at least one text or one dict.", code="row.missing")
        raw = RawFile(name=name, path=str(path), bytes=path.stat().st_size)
        names = _class_names(rows)
        yield Resolved("rows in memory", "", (raw,), class_names=names), texts == count


@contextlib.contextmanager
def table(rows: object) -> Iterator[Resolved]:
    """Yield rows with named columns as a source of one file. Raises UsageError for anything else."""
    with written(rows, name="rows.jsonl", text_column="text") as (source, as_texts):
        if as_texts:
            raise UsageError(
                'The rows are texts without a column. Pass dicts, such as [{"text": "..."}], or name a file.',
                code="row.missing-column-names",
            )
        yield source


@contextlib.contextmanager
def piped(stream: BinaryIO, *, name: str) -> Iterator[Resolved]:
    """Yield a stream as a source with this `name`. It is copied to a temporary file, because it may be compressed, or Parquet."""
    with atomic_files.temporary_folder() as folder:
        path = Path(folder) / "stdin"
        with open(path, "wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        with open(path, "rb") as file:
            head = file.read(8)
        suffix = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
        raw = RawFile(name=name + suffix, path=str(path), bytes=path.stat().st_size)
        yield Resolved(name, "", (raw,))


def _class_names(rows: object) -> dict[str, tuple[str, ...]]:
    """Return the class names of numbered classes in a dataset of the library `datasets`, also those in lists."""
    features = getattr(rows, "features", None)
    return card.classes_of(features.to_dict()) if features is not None and hasattr(features, "to_dict") else {}


def as_json(value: object) -> JSON:
    """Return a value in its JSON form: bytes as the text that they encode, arrays as lists, sets sorted.

    Invalid UTF-8 becomes lone surrogates. A value without a text becomes an object with the name of its type. A
    reader rejects both with a reason.

    >>> as_json({"q": b"caf\\xc3\\xa9", "labels": {"b", "a"}, "at": object()})
    {'q': 'café', 'labels': ['a', 'b'], 'at': {'type': 'object'}}
    """
    value = _without_numpy(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="surrogateescape")
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(as_json, value))
    if isinstance(value, set | frozenset):
        return sorted(map(as_json, value), key=lambda inner: (str(type(inner)), str(inner)))
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas' types, by name: pandas need not be installed
        return None
    return str(value) if isinstance(value, Decimal | UUID | PurePath | date | time) else {"type": type(value).__name__}


def _without_numpy(value: object) -> object:
    """Return an array as a list, and a number or time of numpy as Python's, if there is an equal one."""
    if isinstance(value, np.floating):
        return float(str(value))  # with the digits of its own type: 0.1 instead of 0.10000000149011612
    if isinstance(value, np.datetime64):
        exact = value.astype("M8[us]") if np.datetime_data(value.dtype)[0] == "ns" else value
        time_of_python = exact.item() if exact == value or np.isnat(value) else value
        return value if isinstance(time_of_python, int) else time_of_python
    if isinstance(value, np.generic) and not isinstance(value, np.timedelta64):
        return value.item()
    if hasattr(value, "__array__") and not isinstance(value, np.generic):  # also a tensor, or a pandas column
        array = np.asarray(value)
        return [*array] if array.ndim else _without_numpy(array[()])
    return value


def _rows(rows: object) -> Iterator[object]:
    """Yield the rows of a table, or the items of another iterable. Raises UsageError."""
    if hasattr(rows, "__arrow_c_stream__"):  # Arrow, Polars, pandas from 2.2 on
        import pyarrow as pa

        try:
            for batch in pa.RecordBatchReader.from_stream(rows):
                columns = [column for column in batch.schema.names if not column.startswith("__index_level_")]
                yield from with_shortest_floats(batch.select(columns)).to_pylist()
        except pa.ArrowException as error:
            raise UsageError(
                f"The rows cannot be read as an Arrow table ({error}). Use values of one type in each column, "
                'or pass the rows as dicts: rows.to_dict("records")',
                code="row.mixed-types",
            ) from error
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # older pandas
        yield from rows.to_dict("records")
    elif isinstance(rows, Mapping):
        raise UsageError(
            f"A dict is a single row, not a collection of rows. Put the dict in a list. t5prep accepts {_KINDS}.",
            code="row.wrong-type",
        )
    elif isinstance(rows, Iterable):
        yield from rows
    else:
        raise UsageError(f"Rows cannot be of the type {type(rows).__name__}. Pass {_KINDS}.", code="row.wrong-type")

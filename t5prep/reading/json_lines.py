"""Read JSON lines: by Arrow as columns, where every line is one plain object; else by Python's own reader.

The two readers must give the same rows, so Arrow reads only data that cannot be read in two ways; in any doubt Python's
reader is used, which says what is wrong with which row.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json

from t5prep._native import plain_json_lines
from t5prep.reading import row_ends
from t5prep.reading.rows import Record, is_path


class Plain(NamedTuple):
    """Columns of the lines that have a text or a number in each of them, and which lines these are: bool[lines].

    Columns that no line has are left out. They are large_string, int64 or float64. `unread` are the names of those that
    the first line has beside them.
    """

    table: pa.Table
    lines: np.ndarray
    unread: frozenset[str]


def rows(text: str, columns: Sequence[str]) -> Iterator[Record | str]:
    """Yield the object of each line, {} for a blank one, or the reason why a line holds none."""
    for line in row_ends.lines(text):
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


def table(data: bytes, *, wanted: Sequence[str]) -> Plain | None:
    r"""Return the wanted columns of whole lines in UTF-8; None where Python's reader must be used.

    Numbers are exactly those that Python reads: a column of whole numbers is int64, and in one of float64 each has a
    fraction, for Arrow does not tell 1 from 1.0.

    >>> table(b'{"text": "a", "n": 7}\n{"text": null, "n": 8}', wanted=["text", "n"]).table.to_pydict()
    {'text': ['a'], 'n': [7]}
    >>> table(b'{"text": "a"}\n{"text": 7}', wanted=["text"])
    """
    if not wanted or any(map(is_path, wanted)) or b"\0" in data or not (count := plain_json_lines(data)):
        return None
    end = data.find(b"\n")
    try:
        first = _decode(data[: end if end >= 0 else len(data)].decode())
    except (ValueError, RecursionError):
        return None
    kinds = _kinds(first, wanted)
    parsed = _parsed(data, kinds) if kinds else None
    if parsed is None and kinds and pa.int64() in kinds.values():  # some may have fractions
        parsed = _parsed(data, {name: pa.float64() if kind == pa.int64() else kind for name, kind in kinds.items()})
    if parsed is None or parsed.num_rows != count:
        return None
    there = [name for name in wanted if parsed[name].null_count < count or f'"{name}"'.encode() in data]
    if not there:
        return None
    parsed = parsed.select(there).combine_chunks()
    plain = np.ones(count, bool)
    for column in parsed.columns:
        if column.null_count:
            plain &= column.is_valid().to_numpy()
        if pa.types.is_floating(column.type):
            numbers = column.to_numpy()
            plain &= np.isfinite(numbers) & (numbers != np.floor(numbers))
    return Plain(parsed if plain.all() else parsed.filter(pa.array(plain)), plain, frozenset(first) - set(wanted))


def _kinds(first: Record, wanted: Sequence[str]) -> dict[str, pa.DataType] | None:
    """Return the types of the wanted columns as the first row has them; None where one is neither text nor number."""
    types = {str: pa.large_string(), type(None): pa.large_string(), int: pa.int64(), float: pa.float64()}
    kinds = {name: types.get(type(first.get(name))) for name in wanted}
    return None if None in kinds.values() else kinds


def _parsed(data: bytes, kinds: Mapping[str, pa.DataType]) -> pa.Table | None:
    """Return columns of these types; None where a value is of another one."""
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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ValueError where a name occurs twice, because one value would be lost."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the name "{twice}" stands twice in an object')
    return fields


_decode = json.JSONDecoder(object_pairs_hook=_object).decode

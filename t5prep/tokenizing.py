"""A block of rows becomes a table of features: tokenized once, kept, and placed as often as one likes."""

import contextlib
import dataclasses
import hashlib
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from t5prep import blocks, files, task
from t5prep.blocks import Block
from t5prep.encode import DocumentEncoder, Encoder, Features
from t5prep.errors import Reject, SourceError
from t5prep.formats import Row
from t5prep.settings import Settings
from t5prep.text import folded
from t5prep.tokenizer import Tokenizer
from t5prep.types import EOS, Example, Protected

# One row of the source, in the order of the source. A row with a `reason` made no example. `same` is a digest of the
# input's text, where a text that stands twice is to be found.
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.string()),
        ("reason", pa.string()),
        ("split", pa.string()),
        ("inputs", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int32())),
        ("references", pa.list_(pa.string())),
        ("tokens", pa.int32()),
        ("target_tokens", pa.int32()),
        ("exact", pa.bool_()),
        ("markup", pa.bool_()),
        ("same", pa.string()),
    ]
)


class BlockTokenizer:
    """Tokenizes blocks of one task. `kept` is a directory where tables are kept under the digest of what made them."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer, *, kept: Path | None = None) -> None:
        self._task = task.get(settings.task)
        self._options = task.make_options(self._task, settings.options)
        self._columns = tuple(self._task.columns(self._options))
        self._names = task.column_names(self._columns)
        self._id_column = self._task.id_column(self._options)
        self._encode: Callable[[Example], Features] = (
            DocumentEncoder(tokenizer)
            if self._task.documents
            else Encoder(
                tokenizer,
                input_length=settings.input_length,
                target_length=settings.target_length,
                policy=settings.truncation,
                marker=settings.marker,
            )
        )
        self._dedup = settings.dedup == "exact"
        self._key = settings.tokenizing(tokenizer.sha256)
        self._kept = kept

    def __call__(self, block: Block) -> pa.Table:
        """The table (SCHEMA) of a block; row numbers count from the block's first row, so that they can be reused."""
        if self._kept is None or block.format.kind == "parquet":
            return self._tokenize(block)
        data = blocks.content(block)
        said = f"{self._key} {block.format} {block.columns} {block.rows} "
        name = hashlib.blake2b(said.encode() + data, digest_size=20).hexdigest()
        path = self._kept / name[:2] / f"{name}.arrow"
        with contextlib.suppress(FileNotFoundError, pa.ArrowInvalid), pa.OSFile(str(path)) as file:
            return pa.ipc.open_file(file).read_all()
        table = self._tokenize(dataclasses.replace(block, data=data))
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, SCHEMA) as writer:
            writer.write_table(table)
        files.write_scratch(path, buffer.getvalue())
        return table

    def _tokenize(self, block: Block) -> pa.Table:
        if block.columns and (missing := task.missing_column(self._columns, block.columns)):
            raise SourceError(f"{block.file.name} has no column {missing}; it has {', '.join(block.columns)}.")
        columns = _Columns()
        for row in blocks.read(block, columns=self._names):
            if row.record is None:
                columns.reject(row, block, None, row.reason)
                continue
            try:
                example = self._task.to_example(row.record, self._options)
                features = self._encode(example)
            except Reject as reject:
                columns.reject(row, block, self._id(row), str(reject))
            except KeyError as error:
                if error.args[0] not in self._names:
                    raise
                columns.reject(row, block, self._id(row), f"missing field: {error.args[0]}")
            else:
                columns.add(row, block, example, features, same=_digest(example) if self._dedup else None)
        return columns.table()

    def _id(self, row: Row) -> str | None:
        id = (row.record or {}).get(self._id_column)
        return None if id is None else str(id)


def _digest(example: Example) -> str:
    """What is the same for the same text, as 32 hex digits."""
    parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    said = (part.text if isinstance(part, Protected) else part for part in parts if part is not EOS)
    return hashlib.blake2b(
        folded(" ".join(map(str, said))).encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()


class _Columns:
    """A table under construction. Ids go into flat arrays: a Python list of lists would cost three times as much."""

    def __init__(self) -> None:
        self._plain: dict[str, list] = {name: [] for name in SCHEMA.names if name not in ("inputs", "labels")}
        self._ids = {"inputs": array("i"), "labels": array("i")}
        self._ends = {"inputs": array("i", [0]), "labels": array("i", [0])}

    def add(self, row: Row, block: Block, example: Example, features: Features, *, same: str | None) -> None:
        self._append(
            row=row.number - block.first_row,
            id=example.id,
            reason=None,
            split=example.split,
            references=example.references,
            tokens=features.tokens,
            target_tokens=features.target_tokens,
            exact=features.exact,
            markup=features.markup,
            same=same,
        )
        self._extend(features.inputs, features.labels)

    def reject(self, row: Row, block: Block, id: str | None, reason: str) -> None:
        empty = dict.fromkeys(("split", "references", "tokens", "target_tokens", "exact", "markup", "same"))
        self._append(row=row.number - block.first_row, id=id, reason=reason, **empty)
        self._extend([], [])

    def _append(self, **values: object) -> None:
        for name, value in values.items():
            self._plain[name].append(value)

    def _extend(self, inputs: list[int], labels: list[int]) -> None:
        for name, ids in (("inputs", inputs), ("labels", labels)):
            self._ids[name].extend(ids)
            self._ends[name].append(len(self._ids[name]))

    def table(self) -> pa.Table:
        arrays = []
        for field in SCHEMA:
            if field.name in self._ids:
                ends = pa.array(np.frombuffer(self._ends[field.name], np.int32))
                values = pa.array(
                    np.frombuffer(self._ids[field.name], np.int32) if self._ids[field.name] else [], pa.int32()
                )
                arrays.append(pa.ListArray.from_arrays(ends, values))
            else:
                arrays.append(pa.array(self._plain[field.name], field.type))
        return pa.Table.from_arrays(arrays, schema=SCHEMA)

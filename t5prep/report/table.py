"""Read a dataset as one table for people's own tools: its records, or the rows that made none, with the texts they had."""

import array
import collections
import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from t5prep.dataset import table as tables
from t5prep.dataset.prepared import Dataset
from t5prep.errors import OutputError, T5prepError, UsageError

if TYPE_CHECKING:
    from t5prep.preparation.source_rows import SourceRows


def table(
    data: str | Path,
    *,
    splits: Sequence[str] = (),
    tokenizer: str | None = None,
    rejected: bool = False,
    predictions: str | Path | None = None,
    source: str = "",
    trust_code: bool = False,
) -> pa.RecordBatchReader:
    """Read a prepared dataset as a table of texts, in the order of its shards, a few thousand records at a time.

    Args:
        data: The dataset's directory or gs:// prefix.
        splits: The splits to read; none are all.
        tokenizer: The tokenizer, if the one that the manifest names cannot be found.
        rejected: Read the rows that made no record instead.
        predictions: What `t5prep eval --predictions` wrote. Adds the columns `prediction`, `right` and, if there are some,
            `loss` and `scores`; a record without a prediction has null.
        source: Where the source of rejected rows lies now, if the address in the manifest does not lead there.
        trust_code: Whether to execute a Python file of the task, which makes the texts of rejected rows again, though this
            user has never run it.

    Returns:
        A reader of record batches. `id`, `split`, `shard`, `place` (the record's number in its shard), `input`, `target`,
        `input_tokens`, `target_tokens` (EOS counted, padding not), `cut` (whether the input was), `input_cut`, `target_cut` (how
        many tokens), `file`, `row` (where it stands in its source); if near-duplicates were looked for, `near_duplicates` (how
        many rows were left out as nearly the same) and `cluster` (the id of the one that was kept, here and among the rejected
        rows); and `references` if some split has them. What a dataset cannot tell is null (docs/format.md: `origins`). In a
        packed dataset `id`, `file`, `row` and `cluster` are lists, one value for each example in the record.

        Of rejected rows: `file`, `row`, `id`, `reason`, `cluster` as above, and `input` and `target`, the texts that the row had
        before filters and cuts. They are made from the source once more. Of a row that made no example, `input` is the JSON
        of its columns. If the source is gone, or is another one by now, both are null, and stderr says why.

    Raises:
        DatasetError: There is no dataset, or no such split, or a record is damaged.
        UsageError: `predictions` holds none, or rejected rows are asked for with either.
        TokenizerError: The tokenizer is not the dataset's.

    Example:
        frame = t5prep.table("data/sample").read_pandas()
    """
    if not rejected:
        return tables.records(Dataset(data, tokenizer=tokenizer), splits=splits, predictions=predictions)
    if predictions is not None or splits:
        raise UsageError("Rejected rows are in no split and have no predictions: leave --split and --predictions out.")
    from t5prep.preparation.source_rows import (
        SourceRows,  # what prepares datasets takes a quarter of a second to import
    )

    return rejected_with_texts(SourceRows(Dataset(data, tokenizer=tokenizer), source=source, trust_code=trust_code))


def rejected_with_texts(rows: "SourceRows") -> pa.RecordBatchReader:
    """Read the rejected rows of a dataset with their texts, as `table` does."""
    schema = tables.rejected(rows.dataset).schema
    for name in ("input", "target"):
        schema = schema.append(pa.field(name, pa.string()))
    return pa.RecordBatchReader.from_batches(schema, _with_texts(rows, schema))


def _with_texts(rows: "SourceRows", schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rejected rows with their texts. The source has another order than these rows, so texts wait on the disk."""
    import sqlite3  # nothing else needs it, and some Pythons are built without it

    rows_by_file = collections.defaultdict[str, array.array](lambda: array.array("q"))
    for batch in tables.rejected(rows.dataset):
        for file, row in zip(batch["file"].to_pylist(), batch["row"].to_pylist(), strict=True):
            rows_by_file[file].append(row)
    with contextlib.closing(sqlite3.connect("", check_same_thread=False)) as waiting:
        waiting.execute("CREATE TABLE texts (file, row, input, target, PRIMARY KEY (file, row)) WITHOUT ROWID")
        try:
            for file, numbers, *texts in rows.texts({file: np.unique(those) for file, those in rows_by_file.items()}):
                text_rows = zip(itertools.repeat(file), numbers.tolist(), *(text.to_pylist() for text in texts))
                waiting.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?, ?, ?)", text_rows)
        except T5prepError as error:
            message = f"The texts of rejected rows are not there, because their source is not read again: {error}"
            print(message, file=sys.stderr, flush=True)
        except sqlite3.Error as error:
            raise OutputError(
                f"The texts of rejected rows find no room in {tempfile.gettempdir()} ({error}). Set TMPDIR to another folder."
            ) from error
        find = "SELECT input, target FROM texts WHERE file = ? AND row = ?"
        for batch in tables.rejected(rows.dataset):
            places = zip(batch["file"].to_pylist(), batch["row"].to_pylist(), strict=True)
            texts = [waiting.execute(find, row_key).fetchone() or (None, None) for row_key in places]
            columns = [pa.array(column_texts, pa.string()) for column_texts in zip(*texts, strict=True)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)

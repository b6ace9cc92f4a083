"""Read a dataset as one table for pandas, DuckDB and the like: its records, or its rejected rows with their texts."""

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

from t5prep.dataset import record_table
from t5prep.dataset.prepared import Dataset
from t5prep.errors import OutputError, T5prepError, UsageError
from t5prep.options.fields import accepts, build, without_effect
from t5prep.options.models import SourceOptions

if TYPE_CHECKING:
    from t5prep.preparation.source_rows import SourceRows


@accepts(SourceOptions)
def table(
    data: str | Path,
    *,
    splits: Sequence[str] = (),
    rejected: bool = False,
    predictions: str | Path | None = None,
    **options: object,
) -> pa.RecordBatchReader:
    """Read a prepared dataset as a table of texts, in the order of its shards, in batches of up to 4,096 records.

    The texts of rejected rows are made again, from the source and by the code of the task.

    Args:
        data: The dataset's directory or gs:// prefix.
        splits: The splits to read; none means all.
        rejected: Whether to read the rejected rows instead of the records.
        predictions: The output of `t5prep eval --predictions`. Adds the columns `prediction` and `right`, and `loss` and
            `scores` if the file has them. A record without a prediction has null.
        **options

    Returns:
        A reader of record batches with these columns for records:

        * `id`, `split`, `shard`, and `place`: the record's number in its shard.
        * `input`, `target`: the texts. `input_tokens`, `target_tokens`: their tokens, with EOS and without padding.
        * `cut`: whether the input was cut. `input_cut`, `target_cut`: the number of cut tokens.
        * `file`, `row`: the row in the source.
        * `near_duplicates`, `cluster`, with `--dedup near`: the number of rows removed as near-duplicates of this one, and the
          id of the row that remains. Rejected rows have the same `cluster`.
        * `references`, if a split has them.

        A value that the dataset does not store is null (docs/format.md: `origins`). In a packed dataset, `id`, `file`, `row`
        and `cluster` are lists with one value for each example of the record.

        Rejected rows have `file`, `row`, `id`, `reason` and `cluster`, and their texts before filters and cuts: `input` and
        `target`. These texts are made again from the source. If a row made no example, `input` is the JSON of its columns. If
        the source is missing or has changed, both are null, and a message on stderr says why.

    Raises:
        DatasetError: There is no dataset, no such split, or a damaged record.
        UsageError: `predictions` has no predictions, or `rejected` is combined with `splits` or `predictions`.
        TokenizerError: The tokenizer is not the dataset's.

    Example:
        frame = t5prep.table("data/sample").read_pandas()
    """
    chosen = build(SourceOptions, options, owner="table")
    dataset = Dataset(data, tokenizer=chosen.tokenizer)
    if not rejected:
        if chosen.source or chosen.trust_code:
            raise without_effect("--source" if chosen.source else "--trust-code", ["--rejected"])
        return record_table.records(dataset, splits=splits, predictions=predictions)
    if predictions is not None or splits:
        raise UsageError(
            "Rejected rows have neither a split nor predictions. Remove --split and --predictions.",
            code="option.conflict",
        )
    from t5prep.preparation.source_rows import (
        SourceRows,  # what prepares datasets takes a quarter of a second to import
    )

    return rejected_with_texts(SourceRows(dataset, source=chosen.source, trust_code=chosen.trust_code))


def rejected_with_texts(rows: "SourceRows") -> pa.RecordBatchReader:
    """Return the rejected rows of a dataset with their texts, as `table` does. `rows` reads the dataset's source."""
    schema = record_table.rejected(rows.dataset).schema
    for name in ("input", "target"):
        schema = schema.append(pa.field(name, pa.string()))
    return pa.RecordBatchReader.from_batches(schema, _with_texts(rows, schema))


def _with_texts(rows: "SourceRows", schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rejected rows with their texts.

    The source has another order than `rejected.jsonl`, and the texts may not fit into memory. So one pass over the source
    writes them into a temporary SQLite file, and a pass over the rejected rows looks them up there.
    """
    import sqlite3  # imported here, because some Pythons are built without it

    rows_by_file = collections.defaultdict[str, array.array](lambda: array.array("q"))
    for batch in record_table.rejected(rows.dataset):
        for file, row in zip(batch["file"].to_pylist(), batch["row"].to_pylist(), strict=True):
            rows_by_file[file].append(row)
    with contextlib.closing(sqlite3.connect("", check_same_thread=False)) as waiting:
        waiting.execute("CREATE TABLE texts (file, row, input, target, PRIMARY KEY (file, row)) WITHOUT ROWID")
        try:
            for file, numbers, *texts in rows.texts(
                {file: np.unique(row_numbers) for file, row_numbers in rows_by_file.items()}
            ):
                text_rows = zip(itertools.repeat(file), numbers.tolist(), *(text.to_pylist() for text in texts))
                waiting.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?, ?, ?)", text_rows)
        except T5prepError as error:
            message = f"The texts of rejected rows are missing, because the source could not be read again: {error}"
            print(message, file=sys.stderr, flush=True)
        except sqlite3.Error as error:
            raise OutputError(
                f"{tempfile.gettempdir()} has no space for the texts of rejected rows ({error}). Set TMPDIR "
                "to another folder.",
                code="output.temporary-folder-unwritable",
            ) from error
        find = "SELECT input, target FROM texts WHERE file = ? AND row = ?"
        for batch in record_table.rejected(rows.dataset):
            places = zip(batch["file"].to_pylist(), batch["row"].to_pylist(), strict=True)
            texts = [waiting.execute(find, row_key).fetchone() or (None, None) for row_key in places]
            columns = [pa.array(column_texts, pa.string()) for column_texts in zip(*texts, strict=True)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)

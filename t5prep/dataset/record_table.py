"""Read a dataset as a table of texts, one row for each record, and write it as Parquet, CSV or JSON lines.

The sizes below are measured in docs/decisions/022-write-text-tables-uncompressed.md.
"""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from t5prep._native import read_texts
from t5prep.dataset import rejected_rows, shard_files, tfrecord
from t5prep.dataset.prepared import REJECTED, Dataset
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.errors import UsageError
from t5prep.io import paths
from t5prep.tasks.targets import ClassTarget, HeadTarget
from t5prep.tokens import decoding
from t5prep.tokens.ragged import Names

# Records in a batch, which are decoded together, and batches in a Parquet row group. More take memory, and save no time.
_BATCH_RECORDS, _GROUP_BATCHES = 4096, 4
_THREADS, _AHEAD = 2, 4  # threads that decode, and batches that they decode ahead of the consumer
# Maximum number of ids in a batch, if all records were as large as the largest. It keeps a row group far below 300 MB, the
# most that the Hub's viewer reads.
_MOST_IDS = 1 << 22
_NAME = pa.dictionary(pa.int32(), pa.string())  # a column with few different texts, such as the split


def records(
    opened: Dataset, *, splits: Sequence[str] = (), predictions: str | Path | None = None
) -> pa.RecordBatchReader:
    """Return the records of a dataset as a table of texts. `t5prep.table` (report/table.py) lists the columns and errors.

    No `splits` means all. `predictions` is a file with answers of a model, whose columns are added (`Answers`).
    """
    for split in splits:
        opened.split(split)  # raises DatasetError now for an unknown split, and not when the first batch is read
    records = _Records(opened)
    answers = None if predictions is None else Answers(predictions)
    schema = pa.schema([*records.schema, *(answers.fields if answers else ())])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in _made_ahead(records.batches(splits or sorted(opened.manifest.splits))):
            columns = answers.columns(batch) if answers else []
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _made_ahead(makers: Iterator[Callable[[], pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `makers` return, in their order. Threads make the next `_AHEAD` batches meanwhile.

    Threads help, because decoding and joining texts in C release the interpreter's lock.
    """
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        waiting = collections.deque(map(pool.submit, itertools.islice(makers, _AHEAD)))
        while waiting:
            batch = waiting.popleft().result()
            waiting.extend(map(pool.submit, itertools.islice(makers, 1)))
            yield batch


class _Records:
    """Read the records of a dataset as batches of texts with the columns of `schema`."""

    def __init__(self, opened: Dataset) -> None:
        self._opened, dataset = opened, opened.manifest
        settings = dataset.settings
        self._texts = decoding.decoder(opened.tokenizer, keep_newlines=settings.keep_newlines)
        self._packed, self._target = settings.is_packed, dataset.target
        is_class = isinstance(self._target, ClassTarget)
        self._lengths = {"input_ids": settings.input_length, "labels": settings.target_length}
        self._marked = dataset.marked and not self._target.classes
        self._references = "references" in dataset.features
        self._clusters = _Clusters(opened) if dataset.near_duplicates else None
        self._files = _texts([file.name for file in dataset.source.files])
        wrap_type = pa.list_ if self._packed else lambda arrow_type: arrow_type
        self.schema = pa.schema(
            [
                ("id", wrap_type(pa.string())),
                *((name, _NAME) for name in ("split", "shard")),
                ("place", pa.int64()),
                ("input", pa.string()),
                ("target", _NAME if is_class else pa.string()),
                ("input_tokens", pa.int32()),
                ("target_tokens", pa.int32()),
                ("cut", pa.bool_()),
                ("input_cut", pa.int32()),
                ("target_cut", pa.int32()),
                ("file", pa.list_(pa.string()) if self._packed else _NAME),
                ("row", wrap_type(pa.int64())),
                *([("near_duplicates", pa.int32()), ("cluster", wrap_type(pa.string()))] if self._clusters else ()),
                *([("references", pa.list_(pa.string()))] if self._references else ()),
            ]
        )

    def batches(self, splits: Sequence[str]) -> Iterator[Callable[[], pa.RecordBatch]]:
        """Yield functions that each return a batch of records, in the order of `splits` and their shards.

        Reading files and ids happens here, in order. The returned functions decode, and may run in threads.
        """
        dataset, pages, origins = self._opened.manifest, self._opened.pages, self._opened.origins
        for split in splits:
            # `offset` counts origins and `first` records, because a packed record has one origin for each example.
            every, split_origins, offset = self._opened.index.every[split], origins.get(split), 0
            for shard, sizes in zip(dataset.splits[split].shards, pages[split], strict=True):
                first = 0
                for data, count in self._read(shard, sizes, every=every):
                    for places in self._cut_records(data, count, shard=shard.name, first=first):
                        with self._reading(shard.name, first):
                            ids = self._strings(data, places, "id")
                        edges = ids.offsets.to_numpy() if self._packed else np.arange(len(places) + 1)
                        origin = None if split_origins is None else split_origins[offset : offset + edges[-1]]
                        yield functools.partial(
                            self._batch, data, places, ids, edges, origin, split=split, shard=shard.name, first=first
                        )
                        first, offset = first + len(places), offset + int(edges[-1])

    def _read(self, shard: shard_files.Shard, sizes: np.ndarray, *, every: int) -> Iterator[tuple[bytes, int]]:
        """Yield the bytes of about `_BATCH_RECORDS` records of a shard, in complete pages, and their number of records.

        sizes: the bytes of each page. every: the number of records in a page; the last page of a shard may have fewer.
        """
        counts = shard_files.page_records(shard, len(sizes), every=every)
        path, batch_pages = self._opened.path_of(shard.name), max(1, _BATCH_RECORDS // every)
        with self._opened.reading(path), paths.opened(path) as file:
            for begin in range(0, len(sizes), batch_pages):
                page_range = slice(begin, begin + batch_pages)
                yield file.read(int(sizes[page_range].sum(dtype=np.int64))), int(counts[page_range].sum())

    def _cut_records(self, data: bytes, count: int, *, shard: str, first: int) -> Iterator[np.ndarray]:
        """Yield the places of the `count` records in `data`, PLACE[n], so many at a time that `_MOST_IDS` bounds their ids.

        `first` is the number of the first record in the shard, for errors.
        """
        with self._reading(shard, first):
            places = tfrecord.cut_records((data,), np.array([count]))
        max_records = max(1, _MOST_IDS // int(places["size"].max(initial=1)))
        yield from (places[begin : begin + max_records] for begin in range(0, len(places), max_records))

    def _reading(self, shard: str, first: int) -> contextlib.AbstractContextManager[None]:
        """Return a context that converts exceptions of reading records to DatasetError, which names record `first`."""
        path = self._opened.path_of(shard)
        return self._opened.reading(f"A record of {path}, at or after record {first:,},")

    def _batch(
        self,
        data: bytes,
        places: np.ndarray,
        record_ids: pa.Array,
        edges: np.ndarray,
        origins: np.ndarray | None,
        *,
        split: str,
        shard: str,
        first: int,
    ) -> pa.RecordBatch:
        """Return the batch of the records at `places` in `data`; `first` is the number of the first one in the shard.

        `origins` and `edges` count examples, several for each packed record: record i has `origins[edges[i]:edges[i + 1]]`.
        """
        with self._reading(shard, first):
            rows = len(places)
            # Each id takes at least a byte of its record. So a false length in the settings cannot reserve much memory.
            longest = int(places["size"].max(initial=0))
            max_lengths = {name: min(length, longest) for name, length in self._lengths.items()}
            inputs = self._texts((data,), places, "input_ids", max_lengths["input_ids"], self._opened.tokenizer.pad_id)
            targets, target_lengths = self._targets((data,), places, max_lengths["labels"])
            if origins is not None:
                if len(origins) < edges[-1]:
                    raise ValueError(f"{shard_files.ORIGINS} has no entry for it")
                origin = self._origin(origins, edges)
            else:
                # Without a marker, an input that fills its length may have been cut or not: null.
                full = inputs.lengths == self._lengths["input_ids"]
                cut = _numbers(inputs.marked) if self._marked else pa.array(np.zeros(rows, bool), mask=full)
                origin = [cut, *(pa.nulls(rows, self.schema.field(name).type) for name in _ORIGIN)]
            columns = [
                record_ids,
                _repeated(split, rows),
                _repeated(shard, rows),
                _numbers(np.arange(first, first + rows)),
                inputs.texts,
                targets,
                _numbers(inputs.lengths),
                _numbers(target_lengths),
                *origin,
            ]
            if self._clusters is not None:
                columns += self._near_duplicates(record_ids, edges)
            if self._references:
                columns.append(self._strings(data, places, "references"))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _origin(self, origins: np.ndarray, edges: np.ndarray) -> list[pa.Array]:
        """Return the columns `cut`, `input_cut`, `target_cut`, `file` and `row`. For `edges`, see `_batch`."""
        file, row, *cut = (shard_files.origin(origins, name) for name in shard_files.ORIGIN)
        # A source may have 100,000 files, so the dictionary of a batch holds the names of its own files only.
        file_indices, of = np.unique(file, return_inverse=True)
        files = pa.DictionaryArray.from_arrays(_numbers(of.astype(np.int32)), self._files.take(_numbers(file_indices)))
        places = [files, _numbers(row)]
        if self._packed:
            cut = [np.add.reduceat(tokens, edges[:-1]) for tokens in cut]
            places = [pa.ListArray.from_arrays(edges, values) for values in (files.cast(pa.string()), places[1])]
        return [_numbers(cut[0] > 0), *(_numbers(tokens.astype(np.int32)) for tokens in cut), *places]

    def _strings(self, data: bytes, places: np.ndarray, name: str) -> pa.Array:
        """Return the feature `name` of records as a column of texts, or of lists of texts if the schema has lists.

        Raises ValueError if the column has single texts, and a record has none or several.
        """
        counts = np.empty(len(places), np.int32)
        texts, ends = read_texts((data,), places, name.encode(), counts)
        values = pa.StringArray.from_buffers(len(ends) // 4 - 1, pa.py_buffer(ends), pa.py_buffer(texts))
        values.validate(full=True)
        if pa.types.is_list(self.schema.field(name).type):
            return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), values)
        if (counts != 1).any():
            raise ValueError(f"it has no {name}, or several")
        return values

    def _near_duplicates(self, ids: pa.Array, edges: np.ndarray) -> list[pa.Array]:
        """Return the columns `near_duplicates` (rows removed as near-duplicates of each record) and `cluster`."""
        assert self._clusters is not None
        counts, clusters = self._clusters.of(ids.values if self._packed else ids)
        counts = _numbers(np.add.reduceat(counts, edges[:-1]).astype(np.int32))
        return [counts, pa.ListArray.from_arrays(edges, clusters) if self._packed else clusters]

    def _targets(self, pages: tuple[bytes, ...], places: np.ndarray, max_labels: int) -> tuple[pa.Array, np.ndarray]:
        """Return the text of each target, and its number of labels, int32[records], which is at most `max_labels`."""
        decoder_args = (pages, places, "labels", max_labels, IGNORED_LABEL)
        if not isinstance(self._target, HeadTarget):
            decoded = self._texts(*decoder_args)
            return decoded.texts, decoded.lengths
        labels = decoding.ids_of(*decoder_args)
        label_mask = labels != IGNORED_LABEL
        lengths = np.count_nonzero(label_mask, axis=1).astype(np.int32)
        if isinstance(self._target, ClassTarget):
            return pa.DictionaryArray.from_arrays(_numbers(labels[:, 0]), _texts(self._target.classes)), lengths
        texts = [self._target.text(row[row_mask].tolist()) for row, row_mask in zip(labels, label_mask, strict=True)]
        return pa.array(texts, pa.string()), lengths


def _repeated(name: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(_numbers(np.zeros(rows, np.int32)), _texts([name]))


def _numbers(values: np.ndarray) -> pa.Array:
    """Return a column of numbers or booleans without nulls.

    `pa.array` is not used: its first call imports pandas if that is installed, which takes 0.3 s and 40 MB.
    """
    content = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(content)])


def _texts(texts: Sequence[str]) -> pa.StringArray:
    """Return a column of texts, without `pa.array` for the reason that `_numbers` gives."""
    joined_texts = Names.joined([text.encode(errors="replace") for text in texts])
    return pa.StringArray.from_buffers(
        len(joined_texts), pa.py_buffer(joined_texts.starts.astype(np.int32)), pa.py_buffer(joined_texts.data)
    )


class _Clusters:
    """Count the rows removed as near-duplicates, by the id of the row that remains, which names the cluster."""

    def __init__(self, opened: Dataset) -> None:
        cluster_ids = pa.chunked_array([batch["cluster"] for batch in _rejected(opened)], pa.string())
        cluster_counts = cluster_ids.drop_null().value_counts()
        self._ids = pa.concat_arrays([cluster_counts.field("values")])
        self._counts = cluster_counts.field("counts").to_numpy()

    def of(self, ids: pa.StringArray) -> tuple[np.ndarray, pa.StringArray]:
        """Return the number of rows removed for each record, int64[ids], and the record's cluster, null if it has none."""
        indices = pc.index_in(ids, self._ids)
        is_answer = pc.and_(pc.is_null(indices), pc.match_substring(ids, "#"))
        if pc.any(is_answer).as_py():  # a row with several answers makes records `ID#1a2b3c4d`: look up `ID`
            row_ids = pc.replace_substring_regex(ids.filter(is_answer), "#[0-9a-f]{8}$", "")
            indices = pc.replace_with_mask(indices, is_answer, pc.index_in(row_ids, self._ids))
        counts = pc.fill_null(pc.take(_numbers(self._counts), indices), 0).to_numpy()
        return counts, pc.take(self._ids, indices)


# The columns that are null if a dataset has no origins.
_ORIGIN = ("input_cut", "target_cut", "file", "row")


def rejected(opened: Dataset) -> pa.RecordBatchReader:
    """Return the rejected rows and duplicates as a table: `file`, `row`, `id`, `reason`, and `cluster` with --dedup near.

    Raises DatasetError if the file of these rows is damaged.
    """
    schema = REJECTED.append(pa.field("cluster", pa.string())) if opened.manifest.near_duplicates else REJECTED
    return pa.RecordBatchReader.from_batches(schema, _rejected(opened))


def _rejected(opened: Dataset) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `rejected`. `cluster` is the id in the reason of a near-duplicate, else null."""
    for rows in opened.rejected():
        if opened.manifest.near_duplicates:
            cluster_ids = pc.struct_field(pc.extract_regex(rows["reason"], rejected_rows.NEAR), "id")
            rows = rows.append_column("cluster", cluster_ids)
        yield rows


class Answers:
    """Join the answers of a model to records by their ids: `prediction`, `right`, and `loss` and `scores` if the file has them.

    The file `path` is the output of `eval --predictions` or `predict --json`. An answer is right if it is one of the
    references, or without references, the record's target.
    """

    def __init__(self, path: str | Path) -> None:
        """Read the file `path`. Raises UsageError if it has no predictions."""
        message = f"{path} holds no predictions. Write them: t5prep eval --model RUN --predictions FILE"
        try:
            document = json.loads(paths.read(path))
            answers = [answer for part in document.get("evaluations", [document]) for answer in part["predictions"]]
            right = [
                answer["prediction"] in answer["references"] if "references" in answer else None for answer in answers
            ]
            columns = {
                "id": pa.array([answer["id"] for answer in answers], pa.string()),
                "prediction": pa.array([answer["prediction"] for answer in answers], pa.string()),
                "right": pa.array(right, pa.bool_()),
                "loss": pa.array([answer.get("loss") for answer in answers], pa.float32()),
                "scores": pa.array([answer.get("scores") for answer in answers]),
            }
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror or error}).", code="answer.unreadable") from error
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            pa.ArrowException,
        ) as error:
            raise UsageError(message, code="answer.missing") from error
        if not answers:
            raise UsageError(message, code="answer.missing")
        needed = ("id", "prediction", "right")
        self._columns = {
            name: column for name, column in columns.items() if name in needed or column.null_count < len(answers)
        }
        self.fields = [pa.field(name, column.type) for name, column in self._columns.items()][1:]
        # If an id occurs twice, its first answer counts: later entries of a dict would replace it, so the order is reversed.
        self._places = {answer["id"]: index for index, answer in reversed(list(enumerate(answers)))}

    def columns(self, records: pa.RecordBatch | pa.Table) -> list[pa.Array]:
        """Return the columns `fields` for a batch of records; null for a record without a prediction. Raises UsageError."""
        if not pa.types.is_string(records.schema.field("id").type):
            raise UsageError(
                "--predictions needs one example per record, but the records of this dataset are packed. "
                "Remove --predictions.",
                code="option.inapplicable",
            )
        places = pa.array(map(self._places.get, records["id"].to_pylist()), pa.int64())
        joined = {field.name: pc.take(self._columns[field.name], places) for field in self.fields}
        matches = pc.equal(joined["prediction"], records["target"].cast(pa.string()))
        joined["right"] = pc.coalesce(joined["right"], matches)
        return list(joined.values())


def write(reader: pa.RecordBatchReader, out: str | Path, *, compression: str = "none") -> int:
    """Write a table atomically as Parquet, CSV or JSON lines, by the suffix of `out`, and return its number of rows.

    `compression` is for Parquet. "zstd" makes files less than half as large, and takes half the time more. In CSV, a list
    is written as JSON. Raises UsageError for another suffix, OutputError, and any exception of `reader`.
    """
    end = Path(out).suffix.lower()
    if end not in _WRITERS:
        raise UsageError(
            f"{out} has no supported file extension. Use one of: {', '.join(_WRITERS)}.", code="output.unknown-format"
        )
    rows, writer_options = 0, {"compression": compression} if end == ".parquet" else {}
    with paths.open_atomic(str(out), option="", sweep=True) as file:
        for batch in _WRITERS[end](file, reader, **writer_options):
            rows += len(batch)
    return rows


def _parquet(file: BinaryIO, reader: pa.RecordBatchReader, *, compression: str) -> Iterator[pa.Table]:
    """Write `_GROUP_BATCHES` batches at a time as a row group, and yield each group."""
    # No dictionaries and no statistics of texts. Texts differ from row to row, so a dictionary finds no equal ones, but
    # takes as long as writing. Their minimum and maximum help no query.
    dictionary_columns = [field.name for field in reader.schema if pa.types.is_dictionary(field.type)]
    ordered = [name for name in reader.schema.names if name not in ("input", "target", "prediction")]
    writer_options = {"compression": compression, "use_dictionary": dictionary_columns, "write_statistics": ordered}
    with pq.ParquetWriter(file, reader.schema, **writer_options) as writer:
        while batches := list(itertools.islice(reader, _GROUP_BATCHES)):
            group = pa.Table.from_batches(batches)
            writer.write_table(group)
            yield group


def _csv(file: BinaryIO, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Write and yield batch by batch. CSV has no lists, so these become JSON texts."""
    lists = [number for number, field in enumerate(reader.schema) if pa.types.is_nested(field.type)]
    schema = reader.schema
    for number in lists:
        schema = schema.set(number, schema.field(number).with_type(pa.string()))
    with pyarrow.csv.CSVWriter(file, schema) as writer:
        for batch in reader:
            columns = list(batch.columns)
            for number in lists:
                texts = [None if value is None else _json(value) for value in columns[number].to_pylist()]
                columns[number] = pa.array(texts, pa.string())
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            yield batch


def _json_lines(file: BinaryIO, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Write each row as a line of JSON, and yield batch by batch."""
    for batch in reader:
        file.write("".join(_json(row) + "\n" for row in batch.to_pylist()).encode())
        yield batch


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_WRITERS: dict[str, Callable[..., Iterator[pa.Table | pa.RecordBatch]]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _json_lines,
}

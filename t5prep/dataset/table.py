"""Read a dataset as a table of texts that people's own tools open: one row a record, as Parquet, CSV or JSON lines."""

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

# Records that are decoded together, and batches of them in a row group of Parquet. More take memory and no less time.
_TOGETHER, _IN_A_GROUP = 4096, 4
_THREADS, _AHEAD = 2, 4  # that decode, and batches that they begin before these are asked for
# Ids that are decoded together, as the size of the largest record bounds them. By this a row group stays far below the
# 300 MB that the Hub's viewer reads.
_MOST_IDS = 1 << 22
_NAME = pa.dictionary(pa.int32(), pa.string())


def records(
    opened: Dataset, *, splits: Sequence[str] = (), predictions: str | Path | None = None
) -> pa.RecordBatchReader:
    """Read the records of a dataset as a table of texts: `t5prep.table` (report/table.py) says which, and what it raises."""
    for split in splits:
        opened.split(split)  # raises
    records = _Records(opened)
    answers = None if predictions is None else Answers(predictions)
    schema = pa.schema([*records.schema, *(answers.fields if answers else ())])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in _made_ahead(records.batches(splits or sorted(opened.manifest.splits))):
            columns = answers.columns(batch) if answers else []
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _made_ahead(makers: Iterator[Callable[[], pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that some make, in their order, while threads make the next ones: that is done in C."""
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        waiting = collections.deque(map(pool.submit, itertools.islice(makers, _AHEAD)))
        while waiting:
            batch = waiting.popleft().result()
            waiting.extend(map(pool.submit, itertools.islice(makers, 1)))
            yield batch


class _Records:
    """Read the records of a dataset as rows of text."""

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
        """Yield what makes batches of the records of splits, in the order of their shards."""
        dataset, pages, origins = self._opened.manifest, self._opened.pages, self._opened.origins
        for split in splits:
            every, split_origins, offset = self._opened.index.every[split], origins.get(split), 0
            for shard, sizes in zip(dataset.splits[split].shards, pages[split], strict=True):
                first = 0
                for data, count in self._read(shard, sizes, every=every):
                    for places in self._cut_up(data, count, shard=shard.name, first=first):
                        with self._reading(shard.name, first):
                            ids = self._strings(data, places, "id")
                        edges = ids.offsets.to_numpy() if self._packed else np.arange(len(places) + 1)
                        origin = None if split_origins is None else split_origins[offset : offset + edges[-1]]
                        yield functools.partial(
                            self._batch, data, places, ids, edges, origin, split=split, shard=shard.name, first=first
                        )
                        first, offset = first + len(places), offset + int(edges[-1])

    def _read(self, shard: shard_files.Shard, sizes: np.ndarray, *, every: int) -> Iterator[tuple[bytes, int]]:
        """Yield some pages of a shard at a time, and how many records they have."""
        counts = shard_files.page_records(shard, len(sizes), every=every)
        path, batch_pages = self._opened.at(shard.name), max(1, _TOGETHER // every)
        with self._opened.reading(path), paths.opened(path) as file:
            for begin in range(0, len(sizes), batch_pages):
                page_range = slice(begin, begin + batch_pages)
                yield file.read(int(sizes[page_range].sum(dtype=np.int64))), int(counts[page_range].sum())

    def _cut_up(self, data: bytes, count: int, *, shard: str, first: int) -> Iterator[np.ndarray]:
        """Yield where the records of some bytes of a shard lie, so many at a time that their ids fit into little memory."""
        with self._reading(shard, first):
            places = tfrecord.cut_records((data,), np.array([count]))
        max_records = max(1, _MOST_IDS // int(places["size"].max(initial=1)))
        yield from (places[begin : begin + max_records] for begin in range(0, len(places), max_records))

    def _reading(self, shard: str, first: int) -> contextlib.AbstractContextManager[None]:
        """Raise DatasetError, which names the first record of some, for what reading them raises."""
        path = self._opened.at(shard)
        return self._opened.reading(f"Of the records from {first:,} on, {path} holds one that")

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
        """Return some records of a shard; `first` is the number of the first one in it.

        Record i has the examples `edges[i]:edges[i + 1]` of those that `origins` are of.
        """
        with self._reading(shard, first):
            rows = len(places)
            # An id takes a byte or more: a length that is a lie takes no memory.
            longest = int(places["size"].max(initial=0))
            max_lengths = {name: min(length, longest) for name, length in self._lengths.items()}
            inputs = self._texts((data,), places, "input_ids", max_lengths["input_ids"], self._opened.tokenizer.pad_id)
            targets, target_lengths = self._targets((data,), places, max_lengths["labels"])
            if origins is not None:
                if len(origins) < edges[-1]:
                    raise ValueError(f"{shard_files.ORIGINS} has no entry for it")
                origin = self._origin(origins, edges)
            else:
                # Without a marker, only a short input tells whether it was cut.
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
        """Return the columns from `cut` to `row`."""
        file, row, *cut = (shard_files.origin(origins, name) for name in shard_files.ORIGIN)
        # A source may have 10⁵ files: only those of these rows are named beside them.
        file_indices, of = np.unique(file, return_inverse=True)
        files = pa.DictionaryArray.from_arrays(_numbers(of.astype(np.int32)), self._files.take(_numbers(file_indices)))
        places = [files, _numbers(row)]
        if self._packed:
            cut = [np.add.reduceat(tokens, edges[:-1]) for tokens in cut]
            places = [pa.ListArray.from_arrays(edges, values) for values in (files.cast(pa.string()), places[1])]
        return [_numbers(cut[0] > 0), *(_numbers(tokens.astype(np.int32)) for tokens in cut), *places]

    def _strings(self, data: bytes, places: np.ndarray, name: str) -> pa.Array:
        """Return a feature of texts of records: the one of each, or a list where the column has lists."""
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
        """Return how many rows were left out because they are nearly the same as each record, and the clusters of those."""
        assert self._clusters is not None
        counts, clusters = self._clusters.of(ids.values if self._packed else ids)
        counts = _numbers(np.add.reduceat(counts, edges[:-1]).astype(np.int32))
        return [counts, pa.ListArray.from_arrays(edges, clusters) if self._packed else clusters]

    def _targets(self, pages: tuple[bytes, ...], places: np.ndarray, max_labels: int) -> tuple[pa.Array, np.ndarray]:
        """Return the text of each target, and how many labels it has, int32[records]: `max_labels` at most."""
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
    """Return a column of numbers, or of truths, without nulls.

    With its first `pa.array`, pyarrow would import pandas where that is installed: a third of a second, and 40 MB.
    """
    content = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(content)])


def _texts(texts: Sequence[str]) -> pa.StringArray:
    """Return a column of some texts, without `pa.array` as `_numbers` does."""
    joined_texts = Names.joined([text.encode(errors="replace") for text in texts])
    return pa.StringArray.from_buffers(
        len(joined_texts), pa.py_buffer(joined_texts.starts.astype(np.int32)), pa.py_buffer(joined_texts.data)
    )


class _Clusters:
    """Rows that are nearly the same, by the id of the one that was kept, and how many were left out."""

    def __init__(self, opened: Dataset) -> None:
        cluster_ids = pa.chunked_array([batch["cluster"] for batch in _rejected(opened)], pa.string())
        cluster_counts = cluster_ids.drop_null().value_counts()
        self._ids = pa.concat_arrays([cluster_counts.field("values")])
        self._counts = cluster_counts.field("counts").to_numpy()

    def of(self, ids: pa.StringArray) -> tuple[np.ndarray, pa.StringArray]:
        """Return how many rows were left out for each record, int64[ids], and its cluster, null if none was."""
        indices = pc.index_in(ids, self._ids)
        answers = pc.and_(pc.is_null(indices), pc.match_substring(ids, "#"))
        if pc.any(answers).as_py():  # the end of a record's id that is one of several answers
            rows = pc.replace_substring_regex(ids.filter(answers), "#[0-9a-f]{8}$", "")
            indices = pc.replace_with_mask(indices, answers, pc.index_in(rows, self._ids))
        counts = pc.fill_null(pc.take(_numbers(self._counts), indices), 0).to_numpy()
        return counts, pc.take(self._ids, indices)


_ORIGIN = ("input_cut", "target_cut", "file", "row")


def rejected(opened: Dataset) -> pa.RecordBatchReader:
    """Read the rows that made no record: `file`, `row`, `id`, `reason`, and `cluster` if near-duplicates were looked for.

    Raises DatasetError if the file of these rows is damaged.
    """
    schema = REJECTED.append(pa.field("cluster", pa.string())) if opened.manifest.near_duplicates else REJECTED
    return pa.RecordBatchReader.from_batches(schema, _rejected(opened))


def _rejected(opened: Dataset) -> Iterator[pa.RecordBatch]:
    """Yield the rows that made no record, with their clusters if near-duplicates were looked for."""
    for rows in opened.rejected():
        if opened.manifest.near_duplicates:
            cluster_ids = pc.struct_field(pc.extract_regex(rows["reason"], rejected_rows.NEAR), "id")
            rows = rows.append_column("cluster", cluster_ids)
        yield rows


class Answers:
    """Join what a model answered to records, by their ids: `prediction`, `right`, and `loss` and `scores` if they are there.

    The file is what `eval --predictions` or `predict --json` wrote. Without references, an answer is right if it is the
    record's target.
    """

    def __init__(self, path: str | Path) -> None:
        """Read the file. Raises UsageError if it holds no predictions."""
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
            raise UsageError(f"{path} cannot be read ({error.strerror or error}).") from error
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            pa.ArrowException,
        ) as error:
            raise UsageError(message) from error
        if not answers:
            raise UsageError(message)
        needed = ("id", "prediction", "right")
        self._columns = {
            name: column for name, column in columns.items() if name in needed or column.null_count < len(answers)
        }
        self.fields = [pa.field(name, column.type) for name, column in self._columns.items()][1:]
        # The first answer is the one that counts.
        self._places = {answer["id"]: index for index, answer in reversed(list(enumerate(answers)))}

    def columns(self, records: pa.RecordBatch | pa.Table) -> list[pa.Array]:
        """Return the columns of `fields` for some records; null for those that have no prediction."""
        if not pa.types.is_string(records.schema.field("id").type):
            raise UsageError("A packed record has many examples, so no prediction is of one: leave --predictions out.")
        places = pa.array(map(self._places.get, records["id"].to_pylist()), pa.int64())
        joined = {field.name: pc.take(self._columns[field.name], places) for field in self.fields}
        matches = pc.equal(joined["prediction"], records["target"].cast(pa.string()))
        joined["right"] = pc.coalesce(joined["right"], matches)
        return list(joined.values())


def write(reader: pa.RecordBatchReader, out: str | Path, *, compression: str = "none") -> int:
    """Write a table as Parquet, CSV or JSON lines, which the end of the name says; return how many rows it has.

    `compression` is of Parquet: "zstd" takes more than half off a file, and half the time more. In CSV, a list is its JSON.
    The file appears whole. Raises UsageError for another end, OutputError, and what reading raises.
    """
    end = Path(out).suffix.lower()
    if end not in _WRITERS:
        raise UsageError(f"{out} does not say its format. End its name in {', '.join(_WRITERS)}.")
    rows, writer_options = 0, {"compression": compression} if end == ".parquet" else {}
    with paths.open_atomic(str(out), option="", sweep=True) as file:
        for batch in _WRITERS[end](file, reader, **writer_options):
            rows += len(batch)
    return rows


def _parquet(file: BinaryIO, reader: pa.RecordBatchReader, *, compression: str) -> Iterator[pa.Table]:
    """Write some batches at a time, which are a row group, and yield them."""
    # Texts differ from row to row: to look for equal ones takes as long as to write them, and the least of them says nothing.
    dictionary_columns = [field.name for field in reader.schema if pa.types.is_dictionary(field.type)]
    ordered = [name for name in reader.schema.names if name not in ("input", "target", "prediction")]
    writer_options = {"compression": compression, "use_dictionary": dictionary_columns, "write_statistics": ordered}
    with pq.ParquetWriter(file, reader.schema, **writer_options) as writer:
        while batches := list(itertools.islice(reader, _IN_A_GROUP)):
            group = pa.Table.from_batches(batches)
            writer.write_table(group)
            yield group


def _csv(file: BinaryIO, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
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

"""Serialize records in each layout; no other module writes a tf.train.Example.

A layout converts the sorted rows of a shard, range by range, into the bytes to write and their counts. One row
becomes one record (padded or not), several examples become one packed record, or documents are cut into rows with
hidden spans.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from t5prep._native import frame_records
from t5prep.dataset import tfrecord
from t5prep.dataset.settings import Settings
from t5prep.preparation import record_counts
from t5prep.preparation.spills import ENTRY, Columns, Rows
from t5prep.tasks.targets import target_of
from t5prep.tasks.task import ChosenTask, Masks, Spans, Task
from t5prep.tokens import denoisers, masking, noise_spans, ragged
from t5prep.tokens.denoisers import Hidden
from t5prep.tokens.ragged import Names, Ragged
from t5prep.tokens.tokenizer import Tokenizer

# Number of records that are serialized and written at a time: some megabytes.
RECORDS_A_PART = 1024


class SerializedRecords(NamedTuple):
    """Serialized records, concatenated in `data`, and the bytes of each, `uint32[records]`."""

    data: bytes
    sizes: np.ndarray

    def to_list(self) -> list[bytes]:
        """Return the bytes of each record."""
        ends = np.cumsum(self.sizes, dtype=np.int64).tolist()
        return [self.data[end - size : end] for end, size in zip(ends, self.sizes.tolist(), strict=True)]


@dataclasses.dataclass(frozen=True)
class RecordFormat:
    """The format of records: which features they have, and how far both sides are padded.

    * `lengths`: the padded length of inputs and targets; 0 for no padding. `pads`: the padding value of each.
    * `masks`: whether inputs and targets have an attention mask.
    * `separator`: a token id after whose first occurrence token types are 1; -1 for no token types.
    * `packed`: records have segments of several examples.
    """

    lengths: tuple[int, int] = (0, 0)
    pads: tuple[int, int] = (0, tfrecord.IGNORED_LABEL)
    masks: tuple[bool, bool] = (False, False)
    separator: int = -1
    packed: bool = False

    def __call__(self, columns: Columns, *, starts: np.ndarray | None = None) -> SerializedRecords:
        """Return a record for each row. If packed, record i has the rows `starts[i]:starts[i + 1]`."""
        data, sizes = frame_records(*self._of(columns, starts))
        return SerializedRecords(data, np.frombuffer(sizes, np.uint32))

    def sizes(self, columns: Columns) -> np.ndarray:
        """Return the bytes of each row's record, `uint32[rows]`, without building it."""
        return np.frombuffer(frame_records(*self._of(columns, None), False)[1], np.uint32)  # type: ignore[call-arg]

    def _of(self, columns: Columns, starts: np.ndarray | None) -> tuple:
        """Return the arguments of the C function. Arrays become bytes: C reads them without Python's lock, and bytes cannot change."""
        ids, inputs, labels, references = columns
        arrays = (ids.data, ids.starts, *inputs, *labels, references.data, references.starts)
        content = tuple(array if isinstance(array, bytes) else bytes(array) for array in arrays)
        starts = np.arange(len(ids) + 1) if starts is None else starts
        shape = self.lengths, self.pads, self.masks, self.separator, self.packed
        return content, starts.astype(np.int64).tobytes(), inputs.ids.dtype.itemsize, *shape


def format_of(settings: Settings, *, pad_id: int, separator: int) -> RecordFormat:
    """Return the format of a dataset's records. `separator` is the id that ends the first text of a pair."""
    if settings.layout == "ragged":
        return RecordFormat()
    lengths, pads = (settings.input_length, settings.target_length), (pad_id, tfrecord.IGNORED_LABEL)
    if settings.is_packed:
        return RecordFormat(lengths, pads, packed=True)
    mask = target_of(settings.target).mask if settings.masks else ""
    masks = (settings.masks, mask == "decoder_attention_mask")
    return RecordFormat(lengths, pads, masks, separator if mask == "token_type_ids" else -1)


def format_of_rows(settings: Settings, task: Task, *, pad_id: int, separator: int) -> RecordFormat:
    """Return the format of a single row, for comparing duplicates and for planning shards.

    Of two rows with one id, the smaller record is kept, and the sizes decide the number of shards. If a record holds
    several rows, each is measured without padding.
    """
    if settings.is_packed or task.spans is not None:
        return RecordFormat()
    return format_of(settings, pad_id=pad_id, separator=separator)


class Built(NamedTuple):
    """Finished records and their counts.

    `lengths` are input and target tokens of each record, `uint32[n, 2]`, or None for packed records. `origins` are
    the source and the cut tokens of each record, or of each example of packed ones, `uint32[n, 4]`
    (shard_files.ORIGIN).
    """

    records: SerializedRecords
    counts: record_counts.Counts
    lengths: np.ndarray | None
    origins: np.ndarray


Layout = Callable[[Iterable[Rows]], Iterator[Built]]


def layout_of(settings: Settings, task: ChosenTask, tokenizer: Tokenizer) -> Layout:
    """Return the layout that the settings and the task request."""
    record_format = format_of(settings, pad_id=tokenizer.pad_id, separator=tokenizer.eos_id)
    if isinstance(task.spans, Spans):
        length, _ = noise_spans.lengths(settings.input_length, **task.spans._asdict())
        special = functools.partial(noise_spans.corrupt, first_sentinel=tokenizer.sentinel(0), eos_id=tokenizer.eos_id)
        corrupt = functools.partial(special, **task.spans._asdict())
        hide = functools.partial(_in_chunks, length=length, seed=settings.seed, corrupt=corrupt)
        return HiddenSpans(record_format, hide, tokenizer.unk_id)
    if isinstance(task.spans, Masks):
        mask = masking.Mask(task.spans.rate, tokenizer, inputs_length=settings.input_length, seed=settings.seed)
        return HiddenSpans(record_format, mask, tokenizer.unk_id)
    if task.spans:
        denoise = denoisers.Denoise(
            task.spans.denoisers, tokenizer=tokenizer, inputs_length=settings.input_length, seed=settings.seed
        )
        return HiddenSpans(record_format, denoise, tokenizer.unk_id)
    return (
        PackedRows(record_format, settings.marked)
        if record_format.packed
        else PlainRows(record_format, settings.marked)
    )


@dataclasses.dataclass(frozen=True)
class PlainRows:
    """Write one record for each row. `marked`: a cut input has a marker, which is no token of the text."""

    record_format: RecordFormat
    marked: bool

    def __call__(self, ranges: Iterable[Rows]) -> Iterator[Built]:
        """Yield the records of each range in parts. The first part of a range has all of its counts."""
        for rows in ranges:
            counts = _counts(rows, self.marked)
            for part in _parts(rows):
                origins = _origins(part.entries, self.marked)
                yield Built(self.record_format(part.columns()), counts, _lengths(part.entries), origins)
                counts = record_counts.Counts()


@dataclasses.dataclass(frozen=True)
class PackedRows:
    """Pack several examples into a record, first-fit within each range."""

    record_format: RecordFormat
    marked: bool

    def __call__(self, ranges: Iterable[Rows]) -> Iterator[Built]:
        """Yield the packed records of each range in parts. The first part of a range has all of its counts.

        A record's `id` has the ids of its examples, in the order of its segments.
        """
        for rows in ranges:
            entries = rows.entries
            sizes = np.stack([entries["inputs"], entries["targets"]], axis=1).astype(np.int64)
            row_of = ragged.first_fit(sizes, room=self.record_format.lengths)
            filled = [np.bincount(row_of, weights=side).astype(np.int64) for side in sizes.T]
            counts = _counts(rows, self.marked)
            counts = dataclasses.replace(counts, records=len(filled[0]), joint=record_counts.joint(*filled))
            # Stable: examples of a record stay in the order of their positions.
            order = np.argsort(row_of, kind="stable")
            edges = np.searchsorted(row_of[order], np.arange(len(filled[0]) + 1))
            for first in range(0, len(filled[0]), RECORDS_A_PART):
                starts = edges[first : first + RECORDS_A_PART + 1]
                record_rows = rows.take(order[starts[0] : starts[-1]])
                records = self.record_format(record_rows.columns(), starts=starts - starts[0])
                yield Built(records, counts, None, _origins(record_rows.entries, self.marked))
                counts = record_counts.Counts()


@dataclasses.dataclass(frozen=True)
class HiddenSpans:
    """Concatenate documents, and cut them into rows that are full after `hide` has hidden spans in them.

    Only the last row of a shard is shorter. A row's id names its first token, and seeds the choice of its spans.
    """

    record_format: RecordFormat
    hide: Callable[[Iterable[tuple[Names, Ragged]]], Iterator[Hidden]]
    unk_id: int

    def __call__(self, ranges: Iterable[Rows]) -> Iterator[Built]:
        """Yield the rows of all ranges, which are one sequence of tokens."""
        documents_read = 0  # documents not counted in a yielded record yet
        end = record_start = 0  # tokens of all documents so far, and those before the next record
        # Documents in which a record may still begin: the end of their tokens, their file and their row.
        waiting = collections.deque[tuple[int, int, int]]()

        def documents() -> Iterator[tuple[Names, Ragged]]:
            nonlocal documents_read, end
            for rows in ranges:
                columns = rows.columns()
                documents_read += len(columns.ids)
                for tokens, file, row in rows.entries[["inputs", "file", "row"]].tolist():
                    end += tokens
                    waiting.append((end, file, row))
                yield columns.ids, Ragged(columns.inputs.ids.astype(np.int32), columns.inputs.starts)

        for ids, sizes, inputs, labels in self.hide(documents()):
            columns = Columns(Names.of(ids), inputs, labels, Names(b"", np.zeros(len(ids) + 1, np.int64)))
            entries = np.zeros(len(ids), ENTRY)
            entries["inputs"] = entries["tokens"] = inputs.lengths
            entries["targets"] = entries["target_tokens"] = labels.lengths
            entries["unknown"] = inputs.occurrences(self.unk_id)
            places = []
            for size in sizes:
                # These documents end before the record begins.
                while waiting[0][0] <= record_start:
                    waiting.popleft()
                places.append(waiting[0][1:])
                record_start += size
            entries["file"], entries["row"] = zip(*places, strict=True)
            counts = record_counts.count(entries, labels=None, marked=False)
            counts, documents_read = dataclasses.replace(counts, examples=documents_read), 0
            yield Built(self.record_format(columns), counts, _lengths(entries), _origins(entries, False))


def _parts(rows: Rows) -> Iterator[Rows]:
    """Yield the rows in parts of RECORDS_A_PART."""
    for first in range(0, len(rows.entries), RECORDS_A_PART):
        yield Rows(rows.entries[first : first + RECORDS_A_PART], rows.data)


def _lengths(entries: np.ndarray) -> np.ndarray:
    """Return the input and target tokens of records, `uint32[n, 2]`."""
    return np.stack([entries["inputs"], entries["targets"]], axis=1).astype(np.uint32)


def _origins(entries: np.ndarray, marked: bool) -> np.ndarray:
    """Return the source and the cut tokens of rows, `uint32[n, 4]` (shard_files.ORIGIN)."""
    lost_tokens = record_counts.tokens_lost(entries, marked=marked)
    return np.stack([entries["file"], entries["row"], *lost_tokens], axis=1).astype(np.uint32)


def _in_chunks(
    documents: Iterable[tuple[Names, Ragged]],
    *,
    length: int,
    seed: int,
    corrupt: Callable[..., tuple[np.ndarray, np.ndarray]],
) -> Iterator[Hidden]:
    """Yield rows of `length` tokens of the documents, in order, with spans hidden by `corrupt`."""
    for ids, tokens in noise_spans.chunks(documents, length=length):
        corrupted_sides = corrupt(tokens, keys=noise_spans.keys(ids, seed=seed))
        yield Hidden(ids, [tokens.shape[1]] * len(ids), *map(ragged.full, corrupted_sides))


def _counts(rows: Rows, marked: bool) -> record_counts.Counts:
    """Return the counts of rows. Labels are counted only if there are few enough distinct targets for classes."""
    digests, first = np.unique(rows.entries["target"], return_index=True)
    labels = None
    if len(digests) <= record_counts.MOST_LABELS:
        labels = {digest: rows.labels(i) for digest, i in zip(digests.tolist(), first.tolist(), strict=True)}
    return record_counts.count(rows.entries, labels=labels, marked=marked, name=rows.id)

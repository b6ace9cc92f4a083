"""Lay out the records of a shard: as they were sorted, several examples in a row, or documents with hidden spans.

An arrangement takes the ranges of a shard in order, and gives back the bytes to write and what to count of them. Records
that are to be arranged were written bare, without padding.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from t5prep.dataset import tfrecord
from t5prep.dataset.settings import Settings
from t5prep.prepare import bare_records, record_counts, record_writer
from t5prep.prepare.bare_records import Bare
from t5prep.prepare.sorted_runs import INDEX_ENTRY
from t5prep.tasks.chosen_task import ChosenTask
from t5prep.tasks.task import Spans
from t5prep.tokens import chunking, packing, span_corruption
from t5prep.tokens.names import Names
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer


class Range(NamedTuple):
    """Hold some consecutive records of a shard: an entry each (sorted_runs.INDEX_ENTRY[n]), and their bytes, one after the other."""

    entries: np.ndarray
    data: bytes


class Built(NamedTuple):
    """Hold finished records one after the other, the bytes of each (int[n]), and what is counted of them.

    `lengths` are the input and target tokens of each record, uint32[n, 2]; None of rows that are packed full.
    """

    data: bytes
    sizes: np.ndarray
    counts: record_counts.Counts
    lengths: np.ndarray | None = None


Arrangement = Callable[[Iterable[Range]], Iterator[Built]]


def choose(settings: Settings, task: ChosenTask, tokenizer: Tokenizer) -> Arrangement:
    """Return the arrangement of a preparation."""
    if task.spans:
        return HiddenSpans(
            settings, task.spans, tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.sentinel(0)
        )
    return (
        PackedRows(settings, settings.marked, tokenizer.pad_id)
        if settings.layout == "packed"
        else AsSpilled(settings.marked)
    )


@dataclasses.dataclass(frozen=True)
class AsSpilled:
    """Write records as they were sorted. `marked`: a cut input holds one marker, which is not a token of the text."""

    marked: bool

    def __call__(self, ranges: Iterable[Range]) -> Iterator[Built]:
        """Yield each range as it is."""
        for entries, data in ranges:
            parsed = _Parsed(entries, data)
            counts = record_counts.count(entries, labels=parsed.labels(), marked=self.marked, name=parsed.id)
            yield Built(data, entries["size"], counts, _lengths(entries))


@dataclasses.dataclass(frozen=True)
class PackedRows:
    """Pack several examples into a row, first-fit inside each range."""

    settings: Settings
    marked: bool
    pad_id: int

    def __call__(self, ranges: Iterable[Range]) -> Iterator[Built]:
        """Yield each range as fewer records, in parts; all that a range counts comes with the first of them."""
        room = self.settings.input_length, self.settings.target_length
        write = record_writer.PackedWriter(self.settings, pad_id=self.pad_id)
        for entries, data in ranges:
            bare = _bare(entries, data)
            sizes = np.stack([bare.inputs.lengths, bare.labels.lengths], axis=1)
            rows = packing.first_fit(sizes, room=room)
            filled = [np.bincount(rows, weights=side).astype(np.int64) for side in sizes.T]
            parsed = _Parsed(entries, data)
            counts = record_counts.count(entries, labels=parsed.labels(), marked=self.marked, name=parsed.id)
            counts = dataclasses.replace(counts, records=len(filled[0]), joint=record_counts.joint(*filled))
            for written in write.parts(bare, rows):
                yield Built(written.data, written.sizes, counts)
                counts = record_counts.Counts()


@dataclasses.dataclass(frozen=True)
class HiddenSpans:
    """Join documents, and cut them into rows that are full once spans are hidden (span_corruption.corrupt).

    Only the last row of a shard is shorter. A row is named after its first token, and its spans are drawn from that name.
    """

    settings: Settings
    spans: Spans
    pad_id: int
    eos_id: int
    unk_id: int
    first_sentinel: int

    def __call__(self, ranges: Iterable[Range]) -> Iterator[Built]:
        """Yield the rows of all ranges, taken as one sequence of tokens."""
        hide = self.spans._asdict()
        length, _ = span_corruption.lengths(self.settings.input_length, **hide)
        write = record_writer.RecordWriter(self.settings, pad_id=self.pad_id)
        documents = _Counted(ranges)
        for ids, tokens in chunking.chunks(documents, length=length):
            keys = span_corruption.keys(ids, seed=self.settings.seed)
            inputs, targets = span_corruption.corrupt(
                tokens, keys=keys, first_sentinel=self.first_sentinel, eos_id=self.eos_id, **hide
            )
            written = write(ids, _flat(inputs), _flat(targets), [[]] * len(ids), order=np.arange(len(ids)))
            entries = np.zeros(len(ids), INDEX_ENTRY)
            entries["inputs"] = entries["tokens"] = inputs.shape[1]
            entries["targets"] = entries["target_tokens"] = targets.shape[1]
            entries["unknown"] = (inputs == self.unk_id).sum(axis=1)
            counts = record_counts.count(entries, labels=None, marked=False)
            counts = dataclasses.replace(counts, examples=documents.taken())
            yield Built(written.data, written.sizes, counts, _lengths(entries))


class _Counted:
    """Yield the documents of a shard, ids and tokens, and count those taken since the last call of `taken`."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges = ranges
        self._taken = 0

    def __iter__(self) -> Iterator[tuple[Names, Ragged]]:
        for entries, data in self._ranges:
            bare = _bare(entries, data)
            self._taken += len(bare.ids)
            yield bare.ids, bare.inputs

    def taken(self) -> int:
        """Return the number of documents that were yielded since this was called last."""
        count, self._taken = self._taken, 0
        return count


def _bare(entries: np.ndarray, data: bytes) -> Bare:
    return bare_records.read(data, sizes=entries["size"], inputs=entries["inputs"], labels=entries["targets"])


def _lengths(entries: np.ndarray) -> np.ndarray:
    """Return the input and target tokens of records, uint32[n, 2]."""
    return np.stack([entries["inputs"], entries["targets"]], axis=1).astype(np.uint32)


def _flat(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return full rows as a writer takes lists: all ids, and where each row begins."""
    return rows.ravel(), np.arange(len(rows) + 1) * rows.shape[1]


class _Parsed:
    """Parse single records of a range, by their place in it."""

    def __init__(self, entries: np.ndarray, data: bytes) -> None:
        self._entries, self._data = entries, data
        self._ends = np.cumsum(entries["size"], dtype=np.int64)

    def _record(self, i: int) -> dict[str, list[int] | list[bytes]]:
        end = int(self._ends[i])
        return tfrecord.parse(tfrecord.payload(self._data, end - int(self._entries["size"][i]), end))

    def id(self, i: int) -> str:
        """Return the id of a record."""
        (id,) = self._record(i)["id"]
        return id.decode() if isinstance(id, bytes) else str(id)

    def labels(self) -> dict[int, tuple[int, ...]] | None:
        """Return the label ids of each target digest, or None where there are too many to be classes."""
        digests, first = np.unique(self._entries["target"], return_index=True)
        if len(digests) > record_counts.MOST_LABELS:
            return None
        return {
            digest: tuple(int(token) for token in self._record(i)["labels"] if token != tfrecord.IGNORED_LABEL)
            for digest, i in zip(digests.tolist(), first.tolist(), strict=True)
        }

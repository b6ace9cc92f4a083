"""Plan and write shards: merge each shard's rows from all spills, without duplicates, and count them.

Memory is bounded for any size of a shard: it is written in ranges of positions of about RANGE_BYTES, and the rows of
a range are one read of each spill.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import heapq
import itertools
import json
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t5prep.dataset import rejected_rows, shard_files
from t5prep.dataset.shard_files import Shard
from t5prep.errors import UsageError
from t5prep.io import atomic_files, paths
from t5prep.preparation import placement, record_counts, spills
from t5prep.preparation.near_duplicates import clusters
from t5prep.preparation.near_duplicates.clusters import Repeats, precedence
from t5prep.preparation.records import Layout, RecordFormat
from t5prep.preparation.spills import END, ENTRY, Crowded, Rows, Spill
from t5prep.tokens import ragged
from t5prep.tokens.ragged import Names, run_starts

RANGE_BYTES = 32 << 20
# Number of rows of one position that are compared in memory; more are sorted on disk.
RIVALS = 1 << 13
# A range with this multiple of its expected bytes is halved, until it has one position. Its rows are then sorted on
# disk.
CROWDED = 4
SHARD_BYTES = 128 << 20  # some seconds of reading, and thousands of shards for a terabyte
# Bytes of rejected lines that stay in memory, and that are yielded together.
LINES_BYTES = 256 << 10
# A split has at least this many shards, so that each of eight hosts of a pod can read its own. Smaller splits have at
# least RECORDS_A_SHARD records in a shard.
FEWEST_SHARDS = 8
RECORDS_A_SHARD = 256


@dataclasses.dataclass(frozen=True, slots=True)
class ShardSpec:
    """The plan of a shard: which of the equal ranges of positions of its split, and about how many bytes it has.

    * `preceding_splits`: splits whose ids this shard must not have. If the source's files are splits, an id may occur in two.
    * `every`: the number of records in a page of the index.
    * `measured`: whether lengths and origins of its records are written.
    """

    split: str
    number: int
    shards: int
    bytes: int
    preceding_splits: tuple[str, ...] = ()
    every: int = 64
    measured: bool = True

    @property
    def name(self) -> str:
        """The shard's file name."""
        return shard_files.name(self.split, self.number, self.shards)

    @property
    def bounds(self) -> tuple[int, int]:
        """The range of positions, as (begin, end) of their high halves."""
        return placement.shard_edge(self.number, self.shards), placement.shard_edge(self.number + 1, self.shards)


class WrittenShard(NamedTuple):
    """A written shard, its counts, and the JSON lines of its excluded duplicates."""

    shard: Shard
    totals: "ShardTotals"
    rejected: Iterable[bytes] = ()


def plan_shards(
    records: Mapping[str, int], sizes: Mapping[str, int], *, shards: int | None, drawn_by_id: bool
) -> list[ShardSpec]:
    """Return the shards of all splits, in order, given the records and the bytes (`sizes`) of each split.

    `shards` is the number of shards of the largest split, None for a power of two. `drawn_by_id`: splits are drawn from
    ids. Otherwise an id may occur in two splits, and evaluation splits keep it.

    The list is empty if there are no examples. Raises UsageError if there are more shards than examples.
    """
    records = {split: number for split, number in records.items() if number}
    if not records:
        return []
    max_records = max(records.values())
    if shards is not None and shards > max_records:
        raise UsageError(
            f"--shards {shards} is too many, because the largest split has only {max_records:,} examples. "
            f"Use at most {max_records:,} shards.",
            code="option.out-of-range",
        )
    specs = []
    for split in sorted(records):
        if shards is not None:
            count = max(1, round(shards * records[split] / max_records))
        else:  # hosts, whose number is a power of two, get equal parts
            min_shards = max(-(-sizes[split] // SHARD_BYTES), min(FEWEST_SHARDS, records[split] // RECORDS_A_SHARD), 1)
            count = 1 << (min_shards - 1).bit_length()
        preceding_splits = (
            ()
            if drawn_by_id
            else tuple(
                preceding_split for preceding_split in sorted(records) if _order(preceding_split) < _order(split)
            )
        )
        every = shard_files.records_per_page(records[split])
        measured = records[split] <= shard_files.MOST_RECORDS
        specs += [
            ShardSpec(split, number, count, sizes[split] // count, preceding_splits, every, measured)
            for number in range(count)
        ]
    return specs


def of_splits(specs: Iterable[ShardSpec]) -> dict[str, list[ShardSpec]]:
    """Return the shards of each split, in order."""
    split_specs: dict[str, list[ShardSpec]] = {}
    for spec in specs:
        split_specs.setdefault(spec.split, []).append(spec)
    return split_specs


def _order(split: str) -> tuple[int, str]:
    """Return the sort key of splits. If two have the same id, the first one keeps it."""
    return precedence(split), split


def write(
    spec: ShardSpec,
    sources: Sequence[Spill],
    *,
    files: Sequence[str],
    out: str,
    layout: Layout,
    record_format: RecordFormat,
    several: bool = False,
    duplicate_key: str = "id",
    repeats: Sequence[Repeats] = (),
    range_bytes: int = RANGE_BYTES,
) -> WrittenShard:
    """Write one shard from the spills in `sources`, and return it with its counts.

    * `files`: the names of the source's files.
    * `record_format`: the format of single rows. Of rows with one id, the one with the smallest bytes in it is kept.
    * `several`: an id may have several answers. Only rows with the same target are duplicates, and evaluation splits merge the others.
    * `duplicate_key`: what duplicates have in common, "id" or "text".
    * `repeats`: rows to exclude because they repeat another one.
    * `range_bytes`: bytes of a range that is merged in memory.
    """
    exclusions = _Exclusions(files, record_format, duplicate_key)
    total, counts, sha256 = 0, record_counts.Counts(), hashlib.sha256()
    sizes, lengths, origins = [np.zeros(0, np.uint32)], [np.zeros((0, 2), np.uint32)], list[np.ndarray]()
    ranges = _ranges(spec, sources, exclusions, several=several, repeats=repeats, range_bytes=range_bytes)
    with paths.open_atomic(paths.join(out, spec.name)) as file:
        for records, part_counts, lengths_of, origins_of in layout(ranges):
            file.write(records.data)
            sha256.update(records.data)
            total += len(records.data)
            counts += part_counts
            sizes.append(records.sizes)
            if spec.measured:
                origins.append(origins_of)
                lengths += [lengths_of] if lengths_of is not None else []
    shard = Shard(spec.name, counts.records, total, sha256.hexdigest())
    pages = shard_files.page_sizes(np.concatenate(sizes), every=spec.every).tobytes()
    measured = shard_files.compressed(np.concatenate(lengths)) if len(lengths) > 1 else b""
    origin = shard_files.compressed(np.concatenate(origins).T) if origins else b""
    summaries = {spec.number: ShardSummary(counts.records, total, sha256.digest(), pages, measured, origin)}
    split = SplitTotals(spec.split, spec.shards, spec.every, counts, summaries, exclusions.reasons, exclusions.merged)
    return WrittenShard(shard, ShardTotals({spec.split: split}, exclusions.duplicates), exclusions.lines())


def _ranges(
    spec: ShardSpec,
    sources: Sequence[Spill],
    exclusions: "_Exclusions",
    *,
    several: bool,
    repeats: Sequence[Repeats],
    range_bytes: int,
) -> Iterator[Rows]:
    """Yield the rows of a shard in order, in ranges of positions. Excluded rows are added to `exclusions`."""
    ranges = max(1, -(-spec.bytes // range_bytes))
    low, high = spec.bounds
    # Positions are hashes, so equal ranges have about the same number of rows.
    cuts = [low + (high - low) * i // ranges for i in range(ranges + 1)]
    keys = ("target", "low", "high") if several else ("low", "high")
    for start, stop in itertools.pairwise(cuts):
        parts = list(_different(spec, sources, exclusions, start, stop, keys=keys, repeats=repeats, size=range_bytes))
        if not parts:
            continue
        rows = spills.concatenate_rows(parts)
        # Steps 0 and 1 exclude near-duplicates and duplicates; rejected lines are ordered by step.
        for step, preceding_split in enumerate(spec.preceding_splits, 2):
            rows = exclusions.leaks(
                rows, spills.gather(sources, preceding_split, start, stop), split=preceding_split, step=step
            )
        if several and spec.split != "train":
            merged = _with_references_of_all(rows)
            exclusions.merged += len(rows.entries) - len(merged.entries)
            rows = merged
        yield rows


def _different(
    spec: ShardSpec,
    sources: Sequence[Spill],
    exclusions: "_Exclusions",
    start: int,
    stop: int,
    *,
    keys: Sequence[str],
    repeats: Sequence[Repeats],
    size: int,
) -> Iterator[Rows]:
    """Yield the distinct rows of a range in order. A range with far too many rows is halved.

    The rows of a single position may be too many, for one id or text. They are then sorted on disk, except if rows
    with one id are several answers, or if near-duplicates are excluded, too.
    """
    in_memory = len(keys) > 2 or bool(repeats)
    try:
        rows = spills.gather(
            sources, spec.split, start, stop, max_bytes=END if in_memory else CROWDED * max(size, RANGE_BYTES // 8)
        )
    except Crowded:
        if stop - start == 1:
            yield exclusions.select_first(
                part for spill in sources for part in spill.parts(spec.split, start, stop, size=size)
            )
            return
        for begin, end in itertools.pairwise((start, (start + stop) // 2, stop)):
            yield from _different(spec, sources, exclusions, begin, end, keys=keys, repeats=repeats, size=size)
        return
    if rows is not None:
        # Rows with equal keys are ordered by their place in the source, whatever the order of the spills.
        rows = rows.take(np.lexsort([rows.entries[key] for key in ("row", "file", *keys)]))
        if repeats:
            rows = exclusions.repeats(
                rows, clusters.concatenate(part.slice(spec.split, start, stop) for part in repeats)
            )
        yield exclusions.duplicates_of(rows, keys)


class _Exclusions:
    """The excluded rows of a shard: near-duplicates, duplicates, and rows that another split has.

    Their lines are ordered by the excluding step, then by position. So they do not depend on the ranges in which a
    shard is written, whose size follows from the memory limit. `files` has the names of the source's files, and
    `duplicate_key` is what duplicates have in common.
    """

    def __init__(self, files: Sequence[str], record_format: RecordFormat, duplicate_key: str) -> None:
        self._files, self._record_format, self._same = files, record_format, duplicate_key
        # Lines beyond LINES_BYTES are written to disk.
        new: Callable[[], tempfile.SpooledTemporaryFile[bytes]] = functools.partial(
            tempfile.SpooledTemporaryFile, LINES_BYTES
        )
        self._lines: dict[int, tempfile.SpooledTemporaryFile[bytes]] = collections.defaultdict(new)
        self.duplicates, self.reasons = collections.Counter[str](), collections.Counter[str]()
        self.merged = 0

    def lines(self) -> Iterator[bytes]:
        """Yield the JSON lines of all excluded rows, many at a time."""
        for _, lines in sorted(self._lines.items()):
            with lines:
                lines.seek(0)
                while chunk := lines.read(LINES_BYTES):
                    yield chunk + lines.readline()

    def repeats(self, rows: Rows, repeats: Repeats) -> Rows:
        """Return the rows without those that `repeats` lists."""
        if not len(repeats.dropped):
            return rows
        repeated = {(row["file"], row["row"]): row for row in repeats.dropped.to_pylist()}
        keep = np.ones(len(rows.entries), bool)
        for i in np.flatnonzero(np.isin(rows.entries["high"], repeats.dropped["high"].to_numpy())).tolist():
            if dropped_row := repeated.get(self._locate_row(rows, i)):
                keep[i] = False
                reason = rejected_rows.near_duplicate(
                    dropped_row["kept_file"], dropped_row["kept_row"], dropped_row["kept_id"], dropped_row["similarity"]
                )
                self._drop(rows, i, "near duplicate", reason, step=0)
        return rows.take(keep)

    def duplicates_of(self, rows: Rows, keys: Sequence[str]) -> Rows:
        """Return one row for equal keys: the one whose record has the smallest bytes. The order of arrival has no influence."""
        equal = np.all([rows.entries[key][1:] == rows.entries[key][:-1] for key in keys], axis=0)
        if not equal.any():
            return rows
        keep = np.ones(len(rows.entries), bool)
        starts = np.flatnonzero(np.concatenate([[True], ~equal]))
        ends = np.append(starts[1:], len(keep))
        for begin, end in np.stack([starts, ends], axis=1)[ends - starts > 1].tolist():
            # Too many to build all of their records in memory.
            if end - begin > RIVALS:
                first_row = self.select_first(
                    rows.take(np.arange(a, min(a + RIVALS, end))) for a in range(begin, end, RIVALS)
                )
                keep[begin:end] = (
                    rows.entries[["file", "row"]][begin:end] == first_row.entries[["file", "row"]]
                ).ravel()
                continue
            records = self._record_format(rows.take(np.arange(begin, end)).columns()).to_list()
            rivals = [(record, *self._locate_row(rows, i), i) for i, record in enumerate(records, begin)]
            (_, file, row, _), *duplicates = sorted(rivals)
            for *_, i in duplicates:
                keep[i] = False
                self._drop(rows, i, f"duplicate {self._same}", f"duplicate {self._same}: kept is {file}:{row}", step=1)
        return rows.take(keep)

    def select_first(self, parts: Iterable[Rows]) -> Rows:
        """Return one row for each position, as `duplicates_of` does, from `parts` in any order.

        The rows are sorted in files, so that only one part is in memory at a time.
        """
        with atomic_files.temporary_folder() as folder:
            paths_of = []
            for number, rows in enumerate(map(Rows.compact, parts)):
                ids, places = rows.columns().ids, ragged.begins(rows.entries["size"].astype(np.int64)).tolist()
                # Sorted by position and record, so that the smallest record of a position comes first. All rows have
                # the same `high`.
                rivals = [
                    (
                        low,
                        record,
                        *self._locate_row(rows, i),
                        ids[i],
                        rows.entries[i : i + 1].tobytes(),
                        rows.data[a:b].tobytes(),
                    )
                    for i, (low, record, (a, b)) in enumerate(
                        zip(
                            rows.entries["low"].tolist(),
                            self._record_format(rows.columns()).to_list(),
                            itertools.pairwise(places),
                            strict=True,
                        )
                    )
                ]
                paths_of.append(Path(folder) / str(number))
                with open(paths_of[-1], "wb") as file:
                    for rival in sorted(rivals):
                        pickle.dump(rival, file)
            kept_rows, previous_low, reason, kind = list[Rows](), -1, "", f"duplicate {self._same}"
            for low, _, name, row, id, entry, data in heapq.merge(*map(_pickled, paths_of)):
                if low != previous_low:
                    previous_low, reason = low, f"{kind}: kept is {name}:{row}"
                    first_row = Rows(np.frombuffer(entry, ENTRY).copy(), np.frombuffer(data, np.uint8))
                    first_row.entries["begin"] = 0
                    kept_rows.append(first_row)
                else:
                    self._note(name, row, id, kind, reason, step=1)
            return spills.concatenate_rows(kept_rows)

    def leaks(self, rows: Rows, preceding_rows: Rows | None, *, split: str, step: int) -> Rows:
        """Return the rows whose position is not among the `preceding_rows`, which are those of another `split`."""
        if preceding_rows is None:
            return rows
        taken_positions = set(zip(*(preceding_rows.entries[key].tolist() for key in ("high", "low")), strict=True))
        positions = zip(*(rows.entries[key].tolist() for key in ("high", "low")), strict=True)
        keep = np.fromiter((position not in taken_positions for position in positions), bool, len(rows.entries))
        kind = f"duplicate {self._same}"
        for i in np.flatnonzero(~keep).tolist():
            self._drop(rows, i, kind, f"{kind}: the split {split} has it", step=step)
        return rows.take(keep)

    def _locate_row(self, rows: Rows, i: int) -> tuple[str, int]:
        """Return the file and row number in the source of row `i`."""
        return self._files[int(rows.entries["file"][i])], int(rows.entries["row"][i])

    def _drop(self, rows: Rows, i: int, kind: str, reason: str, *, step: int) -> None:
        """Record row `i` as excluded."""
        self._note(*self._locate_row(rows, i), rows.id(i), kind, reason, step=step)

    def _note(self, file: str, row: int, id: str, kind: str, reason: str, *, step: int) -> None:
        """Write the rejected line of an excluded row, and count it."""
        line = json.dumps({"file": file, "row": row, "id": id, "reason": reason}, ensure_ascii=False)
        self._lines[step].write(line.encode("utf-8", "surrogatepass") + b"\n")
        self.duplicates[file] += 1
        self.reasons[kind] += 1


def _pickled(path: Path) -> Iterator[Any]:
    """Yield the objects in a pickle file that this process wrote."""
    with open(path, "rb") as file, contextlib.suppress(EOFError):
        while True:
            yield pickle.load(file)


def _with_references_of_all(rows: Rows) -> Rows:
    """Return rows with neighbours of one id merged: the first of them in the source, with the references of all.

    References are in the order of the rows, each once.
    """
    positions = rows.entries[["high", "low"]]
    starts = run_starts(positions)
    if len(starts) == len(positions):
        return rows
    numbers = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(positions)))
    rows = rows.take(np.lexsort([rows.entries["row"], numbers]))
    columns = rows.columns()
    answers = [
        spills.references_of(
            dict.fromkeys(
                text for i in range(begin, end) for text in spills.split_references(columns.references.encoded(i))
            )
        )
        for begin, end in itertools.pairwise([*starts.tolist(), len(positions)])
    ]
    first = rows.take(starts)
    columns = first.columns()._replace(references=Names.joined(answers))
    return spills.join(columns, first.entries, np.arange(len(starts)))


class ShardSummary(NamedTuple):
    """A written shard in compact form, because there may be 100,000.

    `pages` is its part of the index; `lengths` and `origins` are those of its records, compressed.
    """

    records: int
    size: int
    sha256: bytes
    pages: bytes
    lengths: bytes
    origins: bytes = b""


@dataclasses.dataclass
class SplitTotals:
    """The counts of a split's shards, and the `written` ones by number. The split has `count` shards in all.

    * `every`: the number of records in a page of the index.
    * `reasons`: counts of the reasons of duplicates.
    * `merged`: rows that became references of other rows' records.
    """

    split: str
    count: int
    every: int
    counts: record_counts.Counts = dataclasses.field(default_factory=record_counts.Counts)
    written: dict[int, ShardSummary] = dataclasses.field(default_factory=dict)
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    merged: int = 0

    def in_order(self) -> list[ShardSummary]:
        """Return the written shards, ordered by number."""
        return [self.written[number] for number in sorted(self.written)]

    def shards(self) -> Iterator[Shard]:
        """Yield the manifest's entry of each shard, ordered by number."""
        for number, summary in sorted(self.written.items()):
            name = shard_files.name(self.split, number, self.count)
            yield Shard(name, summary.records, summary.size, summary.sha256.hex())

    def of_records(self, field_name: str) -> list[bytes] | None:
        """Return a field of each shard, "lengths" or "origins", in order; None if some shard lacks it."""
        is_complete = all(getattr(summary, field_name) or not summary.records for summary in self.written.values())
        return [getattr(summary, field_name) for summary in self.in_order()] if is_complete else None


@dataclasses.dataclass
class ShardTotals:
    """The counts of some shards: of each split, and the excluded duplicates of each source file."""

    splits: dict[str, SplitTotals] = dataclasses.field(default_factory=dict)
    duplicates: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def merge(self, other: "ShardTotals") -> "ShardTotals":
        """Add the counts of `other` to this object, and return it."""
        for split, theirs in other.splits.items():
            mine = self.splits.setdefault(split, SplitTotals(split, theirs.count, theirs.every))
            mine.counts += theirs.counts
            mine.written.update(theirs.written)
            mine.reasons.update(theirs.reasons)
            mine.merged += theirs.merged
        self.duplicates.update(other.duplicates)
        return self


# Cutting of spills for the workers of an engine, so that each reads pieces that are neither tiny nor huge.
# A block of 2 MiB has less than one record for each of ten thousand shards. So records are merged twice. First, the
# blocks of a batch are merged and cut into at most GROUPS ranges of positions, in pieces of about PIECE_BYTES. Then
# the pieces of each range are merged and cut into its shards.

GROUPS = 256
PIECE_BYTES = 256 << 10
# Bytes that one worker merges at a time: from blocks, and from the pieces of a range.
LARGEST_BATCH = 64 << 20
LARGEST_GROUP = 256 << 20
SMALLEST_BATCH = 4 << 20
# Bytes of a spill for each byte of its text, at most: for short rows, most of them are the index.
BYTES_OUT = 3
# Bytes of links in one element of a stage: Flink sorts an element only if it fits into a buffer of some megabytes.
LARGEST_PIECE = 512 << 10


class MergePlan(NamedTuple):
    """The number of ranges (`groups`), of lanes of each range, and of batches of blocks.

    Pieces of one range and lane come together at one worker. Lanes divide a range so that a worker can hold its part.
    """

    groups: int = 1
    lanes: int = 1
    batches: int = 1


def for_source(source_bytes: int) -> MergePlan:
    """Return the plan for a source of `source_bytes` bytes.

    >>> for_source(1_000_000), for_source(10**9)
    (MergePlan(groups=1, lanes=1, batches=1), MergePlan(groups=32, lanes=1, batches=45))
    >>> for_source(10**12)
    MergePlan(groups=256, lanes=44, batches=44704)
    """
    size = BYTES_OUT * source_bytes
    groups = min(GROUPS, 1 << max(0, (size // LARGEST_BATCH).bit_length() - 1))
    return MergePlan(groups, max(1, -(-size // (groups * LARGEST_GROUP))), max(1, -(-size // LARGEST_BATCH)))


def recut_bytes(shards: int, *, groups: int) -> int:
    """Return the bytes of one range that are merged before they are cut into the shards of the range.

    >>> [recut_bytes(shards, groups=256) >> 20 for shards in (256, 8192, 131072)]
    [4, 16, 256]
    """
    return max(SMALLEST_BATCH, min(LARGEST_GROUP, -(-shards // groups) * 2 * PIECE_BYTES))


def cut_ranges(spill: Spill, ranges: int) -> Iterator[tuple[int, Spill]]:
    """Yield (number of a range, its records) for each of `ranges` equal ranges of positions in a spill."""
    for split in spill.splits:
        yield from _cut(spill, split, ranges)


def cut_shards(spill: Spill, shards: Mapping[str, Sequence[ShardSpec]]) -> Iterator[tuple[str, Spill]]:
    """Yield (shard name, its records) for each shard with records in a spill. `shards` has those of each split, in order.

    A shard must not share ids with some other splits (`ShardSpec.before`). Of their records it gets the positions
    only.
    """
    for split, split_shards in shards.items():
        for name in (split, *split_shards[0].preceding_splits):
            if name in spill.splits:
                for number, piece in _cut(spill, name, len(split_shards), bare=name != split):
                    yield split_shards[number].name, piece


def _cut(spill: Spill, split: str, ranges: int, *, bare: bool = False) -> Iterator[tuple[int, Spill]]:
    """Yield (number of a range, its records) for each range of a split; the entries only, if `bare`."""
    entries = np.frombuffer(spill.data, ENTRY, spill.records)
    records = memoryview(spill.data)[spill.records * ENTRY.itemsize :]
    first, last = spill.splits[split]
    inner = np.searchsorted(entries["high"][first:last], np.array(placement.shard_edges(ranges)[1:-1], np.uint64))
    for number, (begin, end) in enumerate(itertools.pairwise([first, *(inner + first).tolist(), last])):
        if begin < end:
            yield number, _piece(entries[begin:end].copy(), records, split, bare=bare)


def _piece(picked: np.ndarray, records: memoryview, split: str, *, bare: bool) -> Spill:
    """Return a spill of only the entries `picked`."""
    data = b""
    if bare:
        picked["begin"] = picked["size"] = 0
    else:
        origin = int(picked["begin"][0])
        data = bytes(records[origin : int(picked["begin"][-1]) + int(picked["size"][-1])])
        picked["begin"] -= np.uint64(origin)
    return Spill(len(picked), {split: (0, len(picked))}, {split: len(data)}, data=picked.tobytes() + data)

"""Sort the rows of a block by split and position into a spill, and count facts about the block."""

import collections
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset import rejected_rows
from t5prep.dataset.settings import Settings
from t5prep.preparation import placement, records, spills, text_counts
from t5prep.preparation.near_duplicates import clusters, sketches
from t5prep.preparation.near_duplicates.sketches import Sketch
from t5prep.preparation.placement import SplitDraw
from t5prep.preparation.spills import ENTRY, TOKENS, Columns, Spill
from t5prep.preparation.text_counts import TextCounts
from t5prep.reading.blocks import Block
from t5prep.tasks.targets import target_of
from t5prep.tasks.task import Task
from t5prep.tokens.ragged import Names, Ragged
from t5prep.tokens.tokenizer import Tokenizer


@dataclasses.dataclass
class BlockTotals:
    """The counts of one block, or of several.

    * `rows`: the fate of each file's rows; `read`: all rows; `blank`: rows without any value.
    * `records`, `record_bytes`: of each split, if each row makes one record.
    * `reasons`, `reason_tokens`: rejected rows, and their tokens, by kind of reason.
    * `changed`: rows that each filter changed.
    * `split`: "rows" that became several "examples".
    * `references`: whether any record has references.
    * `texts`: counts of the rows that made examples.
    * `cached_blocks`: blocks from the token cache.
    """

    rows: rejected_rows.Total = dataclasses.field(default_factory=rejected_rows.Total)
    read: int = 0
    blank: int = 0
    records: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    record_bytes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    reason_tokens: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    changed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    split: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    references: bool = False
    texts: TextCounts = dataclasses.field(default_factory=TextCounts)
    cached_blocks: int = 0

    def merge(self, other: "BlockTotals") -> "BlockTotals":
        """Add the counts of `other` to this object, and return it."""
        self.rows.merge(other.rows)
        self.read += other.read
        self.blank += other.blank
        self.cached_blocks += other.cached_blocks
        for name in ("records", "record_bytes", "reasons", "reason_tokens", "changed", "split"):
            getattr(self, name).update(getattr(other, name))
        self.references |= other.references
        self.texts.merge(other.texts)
        return self


@dataclasses.dataclass(frozen=True)
class SortedBlock:
    """The result of a block: its spill, its counts, the JSON lines of its `rejected` rows, and its sketch.

    `file` and `first_row` identify the block. `sketch` is None unless near-duplicates are searched.
    """

    file: str
    first_row: int
    spill: Spill
    totals: BlockTotals
    rejected: bytes = b""
    sketch: Sketch | None = None


class Placed(NamedTuple):
    """The places of the rows that made examples; n is their number.

    * `of_file`: the index of each row's file in the block, `int64[n]`.
    * `rows`: its number in the file, `int64[n]`.
    * `ids`, `record_ids`: the ids of rows, and those of their records.
    * `digests`: decide the positions, `uint8[n, 24]`; `drawn_by`: decide the splits of rows without a group.
    * `of`: the index in `names` of each row's split, `int64[n]`.
    """

    of_file: np.ndarray
    rows: np.ndarray
    ids: list[str]
    record_ids: list[str]
    digests: np.ndarray
    drawn_by: np.ndarray
    names: list[str]
    of: np.ndarray


class BlockSorter:
    """Sort the tables of a preparation's blocks.

    `files` has the names of the source's files. `own_splits` maps a file's name to its split, if files are splits.
    """

    def __init__(
        self,
        settings: Settings,
        task: Task,
        tokenizer: Tokenizer,
        *,
        files: Sequence[str],
        own_splits: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self.draw = SplitDraw(settings, own_splits=own_splits)
        self._numbers = {name: number for number, name in enumerate(files)}
        self._unk_id = tokenizer.unk_id
        # Two bytes for an id if all ids fit. Targets that are signed numbers need four.
        narrow = tokenizer.padded_size <= 1 << 16 and not target_of(settings.target).is_signed
        self._type = TOKENS[2 if narrow else 4]
        self._search = clusters.of_settings(settings)
        self._several = task.several_answers
        self._record_format = records.format_of_rows(
            settings, task, pad_id=tokenizer.pad_id, separator=tokenizer.eos_id
        )

    def __call__(self, table: pa.Table, block: Block) -> SortedBlock:
        """Return the sorted block of a table (block_tokenizer.SCHEMA), with its spill in memory."""
        rejected, number = _rejected(table, block), table["part"].to_numpy()
        accepted_rows = table.filter(table["reason"].is_null()) if rejected.reasons else table
        inputs, labels = _flat(accepted_rows["inputs"]), _flat(accepted_rows["labels"])
        targets = _target_digests(labels)
        placed = self.places(accepted_rows, block, targets=targets)
        of_file, rows, names, of, ids = placed.of_file, placed.rows, placed.names, placed.of, placed.ids
        positions, part = placement.positions(placed.digests), accepted_rows["part"].to_numpy()
        sketched = None
        if self._search is not None:
            high, low = positions["high"].astype(np.uint64), positions["low"].astype(np.uint64)
            splits = [names[split] for split in of.tolist()]
            sketch_rows = pa.table([rows, ids, splits, high, low, accepted_rows["shingles"]], schema=sketches.ROWS)
            sketched = sketches.sketch(
                sketch_rows, file=block.file.name, first_row=block.first_row, bands=self._search.bands
            )
        columns = Columns(
            Names.of(placed.record_ids),
            Ragged(inputs.ids.astype(self._type), inputs.starts),
            Ragged(labels.ids.astype(self._type), labels.starts),
            self._references(accepted_rows, names, of),
        )
        entries = np.zeros(len(rows), ENTRY)
        entries["high"], entries["low"] = positions["high"], positions["low"]
        entries["file"] = np.array([self._numbers[name] for name, _ in block.files])[of_file]
        entries["row"] = rows
        entries["unknown"], entries["target"] = inputs.occurrences(self._unk_id), targets
        for name in ("tokens", "target_tokens", "markup"):
            entries[name] = accepted_rows[name].to_numpy()
        # Split first, so that the rows of a split, and of each of its shards, are one contiguous run.
        order = np.lexsort((positions["low"], positions["high"], of))
        packed = spills.join(columns, entries, order)
        bounds = np.searchsorted(of[order], np.arange(len(names) + 1)).tolist()
        spans = {name: span for name, span in zip(names, itertools.pairwise(bounds), strict=True) if span[0] < span[1]}
        # The sizes of records, not of rows in the spill, decide the number of shards.
        sizes, record_sizes = packed.entries["size"], self._record_format.sizes(columns)[order]
        spill = Spill(
            len(rows),
            spans,
            {name: int(sizes[a:b].sum()) for name, (a, b) in spans.items()},
            data=b"".join((packed.entries.data, packed.data.data)),
        )
        # A row that was split has parts from 1 on. `<= 1` counts each row of the source once.
        totals = BlockTotals(
            rows=_file_rows(table, block),
            read=block.rows,
            blank=block.rows - int((number <= 1).sum()),
            records=collections.Counter({name: b - a for name, (a, b) in spans.items()}),
            record_bytes=collections.Counter({name: int(record_sizes[a:b].sum()) for name, (a, b) in spans.items()}),
            reasons=rejected.reasons,
            reason_tokens=rejected.tokens,
            changed=collections.Counter(
                pc.list_flatten(accepted_rows["changed"].filter(pa.array(part <= 1))).to_pylist()
            ),
            split=collections.Counter(rows=int((number == 1).sum()), examples=int((number > 0).sum())),
            references=bool(columns.references.data),
            texts=self._text_counts(table, entries, inputs, labels, split_of=(names, of)),
        )
        return SortedBlock(block.file.name, block.first_row, spill, totals, rejected.lines, sketch=sketched)

    def _text_counts(
        self,
        table: pa.Table,
        entries: np.ndarray,
        inputs: Ragged,
        labels: Ragged,
        *,
        split_of: tuple[list[str], np.ndarray],
    ) -> TextCounts:
        """Return the counts of texts in a block's table.

        `entries`, `inputs` and `labels` are those of the rows that made examples. `split_of` has the names of splits,
        and the index of each row's split.
        """
        counts = TextCounts(rows=len(entries), markup=int(np.count_nonzero(entries["markup"])))
        counts.inputs_unknown = int(np.count_nonzero(entries["unknown"]))
        if target_of(self._settings.target).is_text:
            counts.targets_unknown = int(np.count_nonzero(labels.occurrences(self._unk_id)))
        counts.add_unknown(table["unknown"].drop_null().to_pylist())
        is_counted = pc.and_(table["reason"].is_null(), pc.less_equal(table["part"], 1))
        several = pc.and_(is_counted, pc.greater(pc.list_value_length(table["references"]), 1))
        counts.several_answers = sum(len(set(texts)) > 1 for texts in table["references"].filter(several).to_pylist())
        if self._settings.dedup == "none":
            names, of = split_of
            digests = text_counts.digests(inputs, labels)
            for number, name in enumerate(names):
                counts.repeats.add(name, digests[of == number])
        return counts

    def places(self, accepted_rows: pa.Table, block: Block, *, targets: np.ndarray | None = None) -> Placed:
        """Return the places of a block's rows that made examples.

        `targets` are the digests of their labels, `uint32[n]`; None computes them if needed.
        """
        names_of = [name for name, _ in block.files]
        of_file, rows = block.places(accepted_rows["row"].to_numpy() + block.first_row)
        ids = accepted_rows["id"].to_pylist()
        for index in np.flatnonzero(accepted_rows["id"].is_null()).tolist():
            ids[index] = f"{names_of[of_file[index]]}:{rows[index]}"
        part, rows_of = accepted_rows["part"].to_numpy(), ids
        if part.any():
            ids = [f"{id}/{number}" if number else id for id, number in zip(ids, part.tolist(), strict=True)]
        exact, seed = self._settings.dedup == "exact", self._settings.seed
        # With --dedup exact, the digest of the text is the position, so that equal texts meet. Ids draw the splits as
        # without it.
        digests = drawn_by = placement.digests(accepted_rows["same"].to_pylist() if exact else ids, seed=seed)
        if exact or part.any():  # the parts of a row have the split of the row
            drawn_by = placement.digests(rows_of, seed=seed)
        names, of = self.draw(accepted_rows, drawn_by, file=block.file.name)
        record_ids = ids
        if self._several:
            targets = _target_digests(_flat(accepted_rows["labels"])) if targets is None else targets
            record_ids = [
                f"{id}#{target:08x}" if names[split] == "train" else id
                for id, target, split in zip(ids, targets.tolist(), of.tolist(), strict=True)
            ]
        return Placed(of_file, rows, ids, record_ids, digests, drawn_by, names, of)

    @staticmethod
    def _references(accepted_rows: pa.Table, names: list[str], of: np.ndarray) -> Names:
        """Return the correct answers of each row (spills.references_of); training rows have none."""
        if accepted_rows["references"].null_count == len(accepted_rows):
            return Names(b"", np.zeros(len(accepted_rows) + 1, np.int64))
        training = names.index("train") if "train" in names else -1
        answers = zip(accepted_rows["references"].to_pylist(), of.tolist(), strict=True)
        return Names.joined(
            [
                b"" if split == training or not texts else spills.references_of(map(str.encode, texts))
                for texts, split in answers
            ]
        )


def _file_rows(table: pa.Table, block: Block) -> rejected_rows.Total:
    """Return what became of the rows of each file in a block: counts of the rows of its `table` (block_tokenizer.SCHEMA).

    The table has a row for each example or rejected row, and `part` numbers the examples of a split row from 1.
    """
    file_indices, _ = block.places(table["row"].to_numpy() + block.first_row)
    rejected, part = table["reason"].is_valid().to_numpy(), table["part"].to_numpy()
    masks = (~rejected, rejected, part <= 1, part > 1)
    counts = (np.bincount(file_indices[mask], minlength=len(block.files)).tolist() for mask in masks)
    total = rejected_rows.Total()
    for (name, rows), examples, rejected_count, read_count, extra_parts in zip(block.files, *counts, strict=True):
        total.add(
            name, read=rows, examples=examples, rejected=rejected_count, blank=rows - read_count, parts=extra_parts
        )
    return total


class _Rejected(NamedTuple):
    """JSON lines of rejected rows, and the number of rejected rows and tokens for each kind of reason."""

    lines: bytes
    reasons: collections.Counter[str]
    tokens: collections.Counter[str]


def _rejected(table: pa.Table, block: Block) -> _Rejected:
    """Return the rejected rows of a table, as lines and counts."""
    rejected = table.filter(table["reason"].is_valid())
    if not len(rejected):
        return _Rejected(b"", collections.Counter(), collections.Counter())
    file_indices, numbers = block.places(rejected["row"].to_numpy() + block.first_row)
    reasons = rejected["reason"].combine_chunks().dictionary_encode()
    reason_indices, distinct_reasons = reasons.indices.to_numpy(), reasons.dictionary.to_pylist()
    names, ids = [name for name, _ in block.files], rejected["id"].combine_chunks()
    # Arrow joins the columns of all lines at once. Names of files and reasons are converted to JSON once each.
    parts = {
        '{"file": ': _json_of(names).take(pa.array(file_indices)),
        ', "row": ': pa.array(numbers).cast(pa.large_string()),
        ', "id": ': _text("null") if ids.null_count == len(ids) else _json_of(ids.to_pylist()),
        ', "reason": ': _json_of(distinct_reasons).take(pa.array(reason_indices)),
    }
    pieces = itertools.chain.from_iterable((_text(head), part) for head, part in parts.items())
    lines = pc.binary_join_element_wise(*pieces, _text("}\n"), _text(""))
    rows, tokens = collections.Counter[str](), collections.Counter[str]()
    counts = (
        np.bincount(reason_indices).tolist(),
        np.bincount(reason_indices, rejected["tokens"].to_numpy()).astype(np.int64).tolist(),
    )
    for reason, number, lost_tokens in zip(distinct_reasons, *counts, strict=True):
        kind = reason.partition(":")[0]
        rows[kind] += number
        tokens[kind] += lost_tokens
    size = pc.sum(pc.binary_length(lines)).as_py()
    return _Rejected(lines.buffers()[2][:size].to_pybytes(), rows, +tokens)


def _text(value: str) -> pa.Scalar:
    """Return a string as an Arrow scalar."""
    return pa.scalar(value, pa.large_string())


def _json_of(values: Sequence[str | None]) -> pa.LargeStringArray:
    """Return each value as JSON."""
    return pa.array([json.dumps(value, ensure_ascii=False) for value in values], pa.large_string())


def _flat(column: pa.ChunkedArray) -> Ragged:
    """Return the ids in a column of lists. A single chunk is not copied."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], column.type)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return Ragged(lists.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])


def _target_digests(labels: Ragged) -> np.ndarray:
    """Return a digest of each list of labels, `uint32[n]`, which is equal for equal lists.

    It is a polynomial in the constant of SplitMix64, modulo 2^64, so that a cumulative sum gives all of them at once.
    """
    ids, begins = labels
    offsets = np.arange(len(ids)) - np.repeat(begins[:-1], np.diff(begins))
    weighted = (ids.astype(np.uint64) + 1) * (np.uint64(0x9E3779B97F4A7C15) ** (offsets.astype(np.uint64) + 1))
    total = np.zeros(len(ids) + 1, np.uint64)
    np.cumsum(weighted, out=total[1:])
    return ((total[begins[1:]] - total[begins[:-1]]) >> np.uint64(32)).astype(np.uint32)

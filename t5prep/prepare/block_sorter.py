"""Sort a table of features into a spill: the finished records of one block, sorted by split and position, as a run."""

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset.settings import Settings
from t5prep.prepare import placement
from t5prep.prepare.near_duplicates import search, sketch
from t5prep.prepare.near_duplicates.sketch import Sketch
from t5prep.prepare.record_writer import RecordWriter, built_when_written
from t5prep.prepare.sorted_runs import INDEX_ENTRY, Run
from t5prep.prepare.split_draw import SplitDraw
from t5prep.reading.blocks import Block
from t5prep.tasks.task import Task


@dataclasses.dataclass(frozen=True)
class SortedSpill:
    """Hold the sorted records of one block. `splits` gives the entries of each split; `rejected` are finished JSON lines.

    The bytes are in `data`, or in the file at `path`. `found` is true where an earlier run tokenized the block.
    `sketch` is None unless near-duplicates are looked for. `reason_tokens` are the tokens of what filters rejected; `changed` the rows
    that each filter changed.
    """

    file: str
    first_row: int
    rows: int
    records: int
    splits: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int]
    rejected: bytes
    reasons: Mapping[str, int]
    reason_tokens: Mapping[str, int] = dataclasses.field(default_factory=dict)
    changed: Mapping[str, int] = dataclasses.field(default_factory=dict)
    blank: int = 0
    references: bool = False
    path: str = ""
    data: bytes = b""
    found: bool = False
    sketch: Sketch | None = None

    def run(self) -> Run:
        """Return the records alone."""
        return Run(self.records, self.splits, self.sizes, self.path, self.data)


class BlockSorter:
    """Sort the tables of one preparation's blocks.

    `files` are the names of the source's files, `own_splits` maps a file's name to its split where files are splits.
    """

    def __init__(
        self,
        settings: Settings,
        task: Task,
        *,
        files: Sequence[str],
        own_splits: Mapping[str, str],
        pad_id: int,
        unk_id: int,
        separator: int = 1,
    ) -> None:
        self._settings = settings
        self._draw = SplitDraw(settings, own_splits=own_splits)
        self._numbers = {name: number for number, name in enumerate(files)}
        self._unk_id = unk_id
        self._search = search.of_settings(settings)
        self._several, self._whole = task.several_answers, task.never_cut
        bare = built_when_written(settings, task)
        self._write = RecordWriter(settings, pad_id=pad_id, separator=separator, bare=bare)

    def __call__(self, table: pa.Table, block: Block) -> SortedSpill:
        """Return the spill of a block's table (feature_table.SCHEMA), its bytes inside."""
        if self._whole:
            table = only_whole(table)
        rejected = _rejected(table, block)
        kept = table.filter(table["reason"].is_null()) if rejected.reasons else table
        rows = kept["row"].to_numpy() + block.first_row
        ids = [
            f"{block.file.name}:{row}" if id is None else id
            for id, row in zip(kept["id"].to_pylist(), rows.tolist(), strict=True)
        ]
        keys = kept["same"].to_pylist() if self._settings.dedup == "exact" else ids
        digests = placement.digests(keys, seed=self._settings.seed)
        names, of = self._draw(kept, digests, file=block.file.name)
        positions = placement.positions(digests)
        order = np.lexsort((positions["low"], positions["high"], of))
        inputs, labels = _flat(kept["inputs"]), _flat(kept["labels"])
        references, targets = self._references(kept, names, of), _target_digests(labels)
        own_sketch = self._sketch(kept, block, rows, ids, [names[split] for split in of.tolist()], positions)
        if self._several:
            ids = [
                f"{id}#{target:08x}" if names[split] == "train" else id
                for id, target, split in zip(ids, targets.tolist(), of.tolist(), strict=True)
            ]
        data, sizes = self._write(ids, inputs, labels, references, order=order)
        columns = {
            "high": positions["high"],
            "low": positions["low"],
            "file": np.full(len(rows), self._numbers[block.file.name]),
            "row": rows,
            "inputs": np.diff(inputs[1]),
            "targets": np.diff(labels[1]),
            "unknown": _count(inputs, self._unk_id),
            "target": targets,
            **{name: kept[name].to_numpy() for name in ("tokens", "target_tokens", "markup")},
        }
        bounds = np.searchsorted(of[order], np.arange(len(names) + 1))
        splits = {
            name: (int(bounds[i]), int(bounds[i + 1])) for i, name in enumerate(names) if bounds[i] < bounds[i + 1]
        }
        return SortedSpill(
            file=block.file.name,
            first_row=block.first_row,
            rows=block.rows,
            blank=block.rows - len(table),
            records=len(ids),
            splits=splits,
            sizes={name: int(sizes[a:b].sum()) for name, (a, b) in splits.items()},
            rejected=rejected.lines,
            reasons=rejected.reasons,
            reason_tokens=rejected.tokens,
            changed=collections.Counter(pc.list_flatten(kept["changed"]).to_pylist()),
            references=any(references),
            data=b"".join((_entries(columns, order=order, sizes=sizes).tobytes(), data)),
            sketch=own_sketch,
        )

    def _sketch(
        self, kept: pa.Table, block: Block, rows: np.ndarray, ids: list[str], splits: list[str], positions: np.ndarray
    ) -> Sketch | None:
        """Return the sketch of a block's examples, or None where no near-duplicates are looked for."""
        if self._search is None:
            return None
        high, low = positions["high"].astype(np.uint64), positions["low"].astype(np.uint64)
        table = pa.table([rows, ids, splits, high, low, kept["shingles"]], schema=sketch.ROWS)
        return sketch.sketch(table, file=block.file.name, first_row=block.first_row, bands=self._search.bands)

    @staticmethod
    def _references(kept: pa.Table, names: list[str], of: np.ndarray) -> list[list[str]]:
        """Return the right answers of each record; a record for training gets none."""
        training = names.index("train") if "train" in names else -1
        references = kept["references"].to_pylist()
        return [[] if split == training else answers for answers, split in zip(references, of.tolist(), strict=True)]


class _Rejected(NamedTuple):
    """Hold finished JSON lines of rejected rows, and how many rows and tokens were rejected for each reason."""

    lines: bytes
    reasons: dict[str, int]
    tokens: dict[str, int]


def _rejected(table: pa.Table, block: Block) -> _Rejected:
    """Return the rows of a table that made no example."""
    rejected = table.filter(table["reason"].is_valid()).select(["row", "id", "reason", "tokens"]).to_pylist()
    rows, tokens = collections.Counter[str](), collections.Counter[str]()
    lines = []
    for row in rejected:
        place = {"file": block.file.name, "row": row["row"] + block.first_row}
        lines.append(json.dumps({**place, "id": row["id"], "reason": row["reason"]}, ensure_ascii=False) + "\n")
        kind = row["reason"].partition(":")[0]
        rows[kind] += 1
        tokens[kind] += row["tokens"]
    return _Rejected("".join(lines).encode("utf-8", "surrogatepass"), dict(rows), dict(+tokens))


def _entries(columns: Mapping[str, np.ndarray], *, order: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the index of a spill, INDEX_ENTRY[n], from its columns in the order of rows and the sizes of its sorted records."""
    entries = np.empty(len(order), INDEX_ENTRY)
    for name, column in columns.items():
        entries[name] = column[order]
    entries["size"], entries["begin"] = sizes, np.cumsum(sizes, dtype=np.uint64) - sizes
    return entries


def only_whole(table: pa.Table) -> pa.Table:
    """Return the table with each row that was cut, on either side, rejected as `too long`."""
    sides = (("tokens", "inputs"), ("target_tokens", "labels"))
    cut = [pc.greater(table[before], pc.list_value_length(table[kept])) for before, kept in sides]
    longest = pc.cast(pc.max_element_wise(table["tokens"], table["target_tokens"]), pa.string())
    too_long = pc.binary_join_element_wise("too long:", longest, "tokens, and examples of this task are not cut", " ")
    reasons = pc.if_else(pc.fill_null(pc.or_(*cut), False), too_long, table["reason"])
    return table.set_column(table.column_names.index("reason"), "reason", reasons)


def _flat(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return a column of lists as all its ids, `int32[total]`, and where each list begins, `int64[n + 1]`."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], column.type)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return lists.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0]


def _count(lists: tuple[np.ndarray, np.ndarray], token: int) -> np.ndarray:
    """Return how often a token stands in each list, `int64[n]`."""
    ids, begins = lists
    return np.diff(np.searchsorted(np.flatnonzero(ids == token), begins))


def _target_digests(labels: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return a polynomial digest of each list of labels, `uint32[n]`: equal lists, equal digests."""
    ids, begins = labels
    place = np.arange(len(ids)) - np.repeat(begins[:-1], np.diff(begins))
    weighted = (ids.astype(np.uint64) + 1) * (np.uint64(0x9E3779B97F4A7C15) ** (place.astype(np.uint64) + 1))
    total = np.zeros(len(ids) + 1, np.uint64)
    np.cumsum(weighted, out=total[1:])
    return ((total[begins[1:]] - total[begins[:-1]]) >> np.uint64(32)).astype(np.uint32)

"""Trace a row through the data flow: its place in the source, and the result of each step.

A dataset stores no traces. Its manifest names the source and all settings, so the source is read again up to the row,
and the steps of `prepare` process the row again. The dataset itself provides split, shard, number, tokens and
rejected rows. If the source is unreadable or has changed, the trace has only these facts, and a note.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterator
from typing import NamedTuple, NotRequired, TypedDict, final

import numpy as np
import pyarrow as pa

from t5prep import sources
from t5prep.dataset import rejected_rows, shard_files, tfrecord
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError, T5prepError, shortened
from t5prep.json_values import JSON, JSONObject
from t5prep.preparation import placement, record_counts
from t5prep.preparation.block_tokenizer import BlockTokenizer
from t5prep.preparation.sort_blocks import BlockSorter
from t5prep.preparation.source_rows import SourceRow, SourceRows
from t5prep.reading import blocks, source_files, text_rows
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Row
from t5prep.tasks import example_table
from t5prep.tasks.example import Example, Protected, Trace, text_of
from t5prep.tokens import newlines

# Suffixes that a record's id may add to the row's id: the number of a part, the digest of one of several answers, the
# first token of a row of documents.
_SUFFIX = r"(/\d+)?(#[0-9a-f]{8})?(@\d+)?"
_SUFFIXES = (r"@\d+", r"#[0-9a-f]{8}", r"/\d+", r"/\d+#[0-9a-f]{8}")
_LOCATION = re.compile(r"(.+):(\d+)", re.DOTALL)
# Kinds of rejections that compare a row with other texts or ids, and the step that does it.
_LEFT_BY = {
    "leak": "evaluation sets",
    "repeated": "earlier datasets",
    "near duplicate": "near-duplicates",
    "duplicate id": "duplicates",
    "duplicate text": "duplicates",
}
_AFTER_SPLIT = ("near-duplicates", "duplicates")
Location = tuple[str, int]  # a file of the source, and a row of it from 1


class SourceFacts(TypedDict):
    """Hold the place of a row in its source, and its values, or the text of a row that has none. Unknown positions are None."""

    file: str
    row: int
    byte: int | None
    bytes: int | None
    values: NotRequired[JSONObject]
    text: NotRequired[str]


class InputFacts(TypedDict, total=False):
    """A part of an example's input: a text, which may be protected from cutting, or an EOS."""

    eos: bool
    text: str
    protected: bool


class ExampleFacts(TypedDict, total=False):
    """The example that the task made of a row: `blank` if it makes none, `reason` if the row is rejected."""

    blank: bool
    reason: str
    inputs: list[InputFacts]
    id: str | None
    target: str
    references: list[str]
    split: str | None
    group: str | None


class FilterFacts(TypedDict):
    """Hold what a filter did to an example: the texts before and after a change, or the reason of a rejection."""

    filter: str
    changed: bool
    before: NotRequired[str]
    after: NotRequired[str]
    target_before: NotRequired[str]
    target_after: NotRequired[str]
    reason: NotRequired[str]


class TokenFacts(TypedDict):
    """Numbers of tokens before cutting, of cut tokens, the cut texts, and the ids."""

    inputs: int
    targets: int
    part: NotRequired[int]
    parts: NotRequired[int]
    input_cut: NotRequired[int]
    target_cut: NotRequired[int]
    cut_input: NotRequired[list[str]]
    cut_target: NotRequired[list[str]]
    input_ids: NotRequired[list[int]]
    labels: NotRequired[list[int]]


class SplitFacts(TypedDict):
    """A split, and how it was decided: by task, file, all, id or group. A drawn `number` lies in one of the `ranges`."""

    name: str
    by: NotRequired[str]
    number: NotRequired[float]
    ranges: NotRequired[dict[str, list[float]]]
    group: NotRequired[str]


class RecordFacts(TypedDict):
    """Hold the place of a record, and its texts."""

    id: str
    split: str
    shard: str
    number: int
    byte: int
    bytes: int
    input: str
    target: str
    references: list[str]
    segment: NotRequired[int]


@final
class RejectedRow(TypedDict):
    """A line of the rejected rows."""

    file: str
    row: int
    id: str | None
    reason: str


class Rejection(TypedDict):
    """The reason of a rejection, and the step that rejected the row, None where it is unknown."""

    reason: str
    step: str | None


@final
class RelatedRecord(TypedDict):
    """Another record with the id of the row."""

    id: str
    shard: str
    number: int


class Origin(TypedDict):
    """The source row of a record, and its numbers of cut tokens."""

    file: str
    row: int
    input_cut: int
    target_cut: int


@dataclasses.dataclass
class RowTrace:
    """The facts about a row, in the order of the data flow: the fields of the result of `t5prep.why`."""

    id: str
    data: str
    source: SourceFacts | None = None
    example: ExampleFacts | None = None
    filters: list[FilterFacts] | None = None
    tokens: TokenFacts | None = None
    split: SplitFacts | None = None
    record: RecordFacts | None = None
    duplicates: list[RejectedRow] | None = None
    rejected: Rejection | None = None
    also: list[RelatedRecord | RejectedRow] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


class FoundRecord(NamedTuple):
    """A record of a dataset: its number in the shard (from 0), its first byte, its id, and its bytes.

    `segment` is the number of the example in a packed record, from 1, and 0 in other records.
    """

    split: str
    shard: str
    number: int
    byte: int
    id: str
    record: bytes
    segment: int = 0


class RemadeRow(NamedTuple):
    """The result of processing a row again: its trace, its place, its id, and the id of its record.

    `record_id` is None if the row has no record with the requested id. `rejected_by` is the step that rejected it, "" for
    none.
    """

    trace: RowTrace
    location: Location
    id: str = ""
    record_id: str | None = None
    rejected_by: str = ""


class RowTracer:
    """Trace rows of one dataset. Data that all traces need is read once."""

    def __init__(self, dataset: Dataset, *, source: str = "", trust_code: bool = False) -> None:
        """Take an opened dataset. `source` and `trust_code` are those of SourceRows."""
        self.dataset = dataset
        self.rows = SourceRows(dataset, source=source, trust_code=trust_code)
        self._manifest, self._settings = dataset.manifest, dataset.manifest.settings
        self._is_packed, self._hides_spans = self._settings.is_packed, self._manifest.task.hides_spans

    def trace(self, id: str) -> RowTrace:
        """Return the trace of a row. `id` is the id of its record, of a rejected row, or its place as `file:row`.

        Raises DatasetError for an id that does not occur.
        """
        trace = RowTrace(id, self.dataset.folder)
        found_records, rejected, location = list(self.records(id)), list(self._rejected(id)), self._parse_location(id)
        if found_records:
            location = location if location and not _has_own_id(found_records[0].id, location) else None
        elif rejected and location is None:
            location = rejected[0]["file"], rejected[0]["row"]
        remade_row = None
        try:
            if remade_row := self._remake_row(id, location, found_records[0] if found_records else None):
                trace = remade_row.trace
        except T5prepError as error:
            trace.notes.append(
                f"Showing only what the dataset records, because the source could not be read again: {shortened(str(error))}"
            )
        if remade_row and not found_records and remade_row.record_id is not None:
            found_records = list(self.records(remade_row.record_id)) or self._begun_in(remade_row)
            rejected = list(self._rejected(f"{remade_row.location[0]}:{remade_row.location[1]}"))
        if not found_records and not rejected and remade_row is None:
            raise DatasetError(
                f'No record, rejected row or source row of {trace.data} has the id "{id}". List all ids: '
                f"t5prep table {trace.data} ids.csv",
                code="row.unknown-id",
            )
        # The rejected line of this row, if it made no record. Another row may have the same id.
        if remade_row:
            line = next((entry for entry in rejected if (entry["file"], entry["row"]) == remade_row.location), None)
        else:
            line = rejected[0] if rejected and not found_records else None
        if found_records and line is None:
            with self._decoding(found_records[0].shard, found_records[0].number):
                differs = remade_row is not None and not self._agree(remade_row, found_records[0])
                self._add_record(trace, found_records[0])
            if differs:
                trace.notes.append("The current steps make another record of this row than the dataset holds.")
        other_records = found_records[1 if line is None else 0 :]
        trace.also = [{"id": entry.id, "shard": entry.shard, "number": entry.number} for entry in other_records]
        if line is not None:
            step = _LEFT_BY.get(line["reason"].partition(":")[0]) or (remade_row.rejected_by if remade_row else None)
            trace.rejected = {"reason": line["reason"], "step": step}
            trace.split = trace.split if step in _AFTER_SPLIT else None
        trace.duplicates = self._duplicates(line, remade_row if found_records else None)
        trace.also += [entry for entry in rejected if entry not in (line, *(trace.duplicates or ()))]
        return trace

    # Facts that the dataset itself has.

    def records(self, id: str) -> Iterator[FoundRecord]:
        """Yield the records of an id, including its parts, its answers and its rows of tokens. Raises DatasetError."""
        shape, needle = re.compile(re.escape(id) + _SUFFIX, re.DOTALL), id.encode("utf-8", "surrogatepass")
        shards = {name: [shard.name for shard in split.shards] for name, split in self._manifest.splits.items()}
        # A record's position is a hash of its id, so only one shard of each split can have it. This fails for exact
        # duplicates (placed by their text), packed records and hidden spans, which have other ids.
        if self._settings.dedup != "exact" and not self._is_packed and not self._hides_spans:
            high = self._positions({id, re.sub(r"#[0-9a-f]{8}$", "", id)})["high"].tolist()
            likely = {
                name: [of_split[number] for number in sorted({position * len(of_split) >> 64 for position in high})]
                for name, of_split in shards.items()
                if of_split
            }
            if records := list(self._scan(likely, shape, needle)):
                yield from records
                return
        yield from self._scan(shards, shape, needle)

    def _positions(self, ids: set[str]) -> np.ndarray:
        """Return the positions of ids, `placement.POSITION[n]`."""
        return placement.positions(placement.digests(ids, seed=self._settings.seed))

    def _scan(self, shards: dict[str, list[str]], shape: re.Pattern[str], needle: bytes) -> Iterator[FoundRecord]:
        """Yield the records in some shards whose id matches `shape`. Records without the bytes `needle` are not decoded."""
        for split, names in sorted(shards.items()):
            for shard in names:
                byte = 0
                for number, record in enumerate(self.dataset.records(shard)):
                    if needle in record:
                        with self._decoding(shard, number):
                            ids = [
                                record_id.decode() for record_id in tfrecord.raw_features(record, names=("id",))["id"]
                            ]
                        for segment, record_id in enumerate(ids, 1):
                            if shape.fullmatch(record_id):
                                yield FoundRecord(
                                    split, shard, number, byte, record_id, record, segment * self._is_packed
                                )
                    byte += tfrecord.FRAME_BYTES + len(record)

    def _decoding(self, shard: str, number: int) -> contextlib.AbstractContextManager[None]:
        """Return the context that converts an error of decoding a record into a DatasetError that names it."""
        return self.dataset.decoding(f"Record {number} of {self.dataset.path_of(shard)}")

    def _lines(self, *needles: bytes) -> Iterator[RejectedRow]:
        """Yield the rejected rows whose JSON line contains one of the `needles`. Raises DatasetError."""
        for rows in self.dataset.rejected(*needles):
            yield from rows.to_pylist()

    def _rejected(self, id: str) -> Iterator[RejectedRow]:
        """Yield the rejected rows with an id or a place (`file:row`)."""
        location, shape = self._parse_location(id), re.compile(re.escape(id) + _SUFFIX, re.DOTALL)
        at_place = [f"{_json(location[0])}, {_json('row')}: {location[1]},".encode()] if location else []
        for line in self._lines(_inside(id), *at_place):
            if (line["id"] is not None and shape.fullmatch(line["id"])) or (line["file"], line["row"]) == location:
                yield line

    def _begun_in(self, remade_row: RemadeRow) -> list[FoundRecord]:
        """Return the record that contains the first token of a document that begins in the middle of a record."""
        split = remade_row.trace.split["name"] if remade_row.trace.split else ""
        if not self._hides_spans or split not in self._manifest.splits:
            return []
        shards = self._manifest.splits[split].shards

        def position(id: str) -> tuple[int, int]:
            (high_and_low,) = self._positions({id}).tolist()
            return high_and_low

        start = position(remade_row.record_id or "")
        # Shards are equal ranges of 2^64 positions.
        shard = shards[start[0] * len(shards) >> 64].name
        scanned_records = self._scan({split: [shard]}, re.compile(r".*@\d+", re.DOTALL), b"")
        # Records are sorted by position: the last one before the document's position has its first token.
        return [entry for entry in scanned_records if position(entry.id.rpartition("@")[0]) < start][-1:]

    def _parse_location(self, id: str) -> Location | None:
        """Return the file and row of an id in the form `file:row`, or None if the source has no such row."""
        match = _LOCATION.fullmatch(id)
        rows = self._manifest.rows.get(match[1]) if match else None
        return (match[1], int(match[2])) if match and rows and 1 <= int(match[2]) <= rows.read else None

    def _add_record(self, trace: RowTrace, found_record: FoundRecord) -> None:
        """Add the record's place to a trace, and the tokens if the steps did not provide them."""
        record = self.dataset.decoded(found_record.record)
        inputs, labels = (
            [token for token in record.input_ids if token != self.dataset.tokenizer.pad_id],
            record.targeted,
        )
        trace.record = {
            "id": found_record.id,
            "split": found_record.split,
            "shard": found_record.shard,
            "number": found_record.number,
            "byte": found_record.byte,
            "bytes": tfrecord.FRAME_BYTES + len(found_record.record),
            "input": record.inputs,
            "target": record.targets,
            "references": record.references,
        }
        if found_record.segment:
            trace.record["segment"] = found_record.segment
        origin = self._origin(found_record)
        if origin is not None:
            trace.source = trace.source or {"file": origin["file"], "row": origin["row"], "byte": None, "bytes": None}
        if trace.tokens is None:
            trace.tokens = {"inputs": len(inputs), "targets": len(labels)}
            if origin is not None and not found_record.segment:  # a packed record has the tokens of several examples
                input_cut, target_cut = origin["input_cut"], origin["target_cut"]
                trace.tokens["inputs"] += input_cut - (self._settings.marked and input_cut > 0)
                trace.tokens["targets"] += target_cut
                trace.tokens["input_cut"], trace.tokens["target_cut"] = input_cut, target_cut
            if not self._is_packed:
                trace.tokens["input_ids"], trace.tokens["labels"] = inputs, labels
        trace.split = trace.split or {"name": found_record.split}

    def _origin(self, found_record: FoundRecord) -> Origin | None:
        """Return the dataset's entry about the source of a record (shard_files.ORIGIN), or None if it has none."""
        origins = self.dataset.origins.get(found_record.split)
        if origins is None:
            return None
        shards = self._manifest.splits[found_record.split].shards
        earlier_shards = list(itertools.takewhile(lambda split_shard: split_shard.name != found_record.shard, shards))
        index = sum(shard.records for shard in earlier_shards) + found_record.number
        if found_record.segment:  # packed: count the examples of earlier records
            names = [*(shard.name for shard in earlier_shards), found_record.shard]
            earlier = itertools.islice(self.dataset.records(*names), index)
            examples = sum(len(tfrecord.raw_features(record, names=("id",))["id"]) for record in earlier)
            index = examples + found_record.segment - 1
        entry = {
            name: int(number)
            for name in shard_files.ORIGIN
            for number in shard_files.origin(origins[index : index + 1], name)
        }
        files = self._manifest.source.files
        if not entry or entry["file"] >= len(files):
            raise DatasetError(
                f"{self.dataset.path_of(shard_files.ORIGINS)} does not match the shards of this dataset. "
                f"{shard_files.REPAIR_ADVICE}",
                code="dataset.altered",
            )
        name = files[entry["file"]].name
        return {"file": name, "row": entry["row"], "input_cut": entry["input_cut"], "target_cut": entry["target_cut"]}

    def _agree(self, remade_row: RemadeRow, found_record: FoundRecord) -> bool:
        """Check whether a record equals the result of the steps. For rows with hidden spans, check only the split."""
        trace = remade_row.trace
        if trace.split is None or trace.tokens is None:
            return True  # the steps made no record
        split = trace.split["name"]
        if remade_row.record_id != found_record.id or split != found_record.split:
            return self._hides_spans and split == found_record.split  # the row may begin in the middle of it
        if self.rows.task.task.several_answers and found_record.split != "train":
            return True  # the record is of the first row with this id
        if self._is_packed or self._hides_spans:
            return True
        record = self.dataset.decoded(found_record.record)
        inputs = [token for token in record.input_ids if token != self.dataset.tokenizer.pad_id]
        # In aligned rows most positions have no label, so positions matter.
        labels = record.labels[: len(inputs)] if self._manifest.target.is_aligned else record.targeted
        return (inputs, labels) == (trace.tokens["input_ids"], trace.tokens["labels"])

    def _duplicates(self, line: RejectedRow | None, remade_row: RemadeRow | None) -> list[RejectedRow] | None:
        """Return the duplicates and near-duplicates of a rejected row's `line`, or of a row with a record."""
        reason = line["reason"] if line else ""
        if reason.startswith("near duplicate: "):
            heads = [rejected_rows.without_similarity(reason)]
        elif re.match("duplicate (id|text): kept is ", reason):
            heads = [reason]
        elif line is None and remade_row is not None:
            near = rejected_rows.near_duplicate(*remade_row.location, remade_row.id, 1.0)
            heads = [rejected_rows.without_similarity(near)]
            heads += [
                f"{kind}: kept is {remade_row.location[0]}:{remade_row.location[1]}"
                for kind in ("duplicate id", "duplicate text")
            ]
        else:
            return None if line is None else []
        lines = self._lines(*map(_inside, heads))
        matching_lines = (
            other_line for other_line in lines if rejected_rows.without_similarity(other_line["reason"]) in heads
        )
        return [other_line for other_line in matching_lines if other_line != line]

    # Processing the row again.

    def _remake_row(self, id: str, location: Location | None, found_record: FoundRecord | None) -> RemadeRow | None:
        """Return the result of processing a row again: at `location`, or the first row that makes the record. None: no such row."""
        if location is None and found_record is None and not self._hides_spans:
            return None  # every row with this id is a record or a rejected row
        record_id = id if found_record is None else found_record.id
        ids = {record_id, *(re.sub(f"({pattern})$", "", record_id) for pattern in _SUFFIXES)}
        if location is None and found_record is not None:
            origin = self._origin(found_record)
            places = (
                candidate
                for candidate in map(self._parse_location, ids)
                if candidate and not _has_own_id(found_record.id, candidate)
            )
            location = (origin["file"], origin["row"]) if origin else next(places, None)
        dropped = set()
        if location is None:
            dropped = {(line["file"], line["row"]) for line in self._lines(*map(_inside, ids))}
        steps = self._steps
        for row in self.rows.find(location, ids):
            if (row.block.file.name, row.number) not in dropped:
                remade_row = steps.make(
                    RowTrace(id, self.dataset.folder), row, record_id=found_record.id if found_record else None
                )
                if location is not None or remade_row.record_id is not None:
                    return remade_row
        return None

    @functools.cached_property
    def _steps(self) -> "_Steps":
        """The steps of the preparation. They are loaded on first use, which needs trust in the task's code."""
        return _Steps(self.rows)


class _Steps:
    """The steps of one preparation, for single rows. Evaluation sets and earlier datasets are not read again."""

    def __init__(self, rows: SourceRows) -> None:
        task, _ = rows.task, rows.filters  # both refuse untrusted code before the tokenizer is loaded
        self._rows, self._settings, self._tokenizer = rows, rows.dataset.manifest.settings, rows.dataset.tokenizer
        self._own_splits = {} if self._settings.splits else source_files.splits_of(rows.files)
        names = [file.name for file in rows.files]
        self._sort = BlockSorter(self._settings, task.task, self._tokenizer, files=names, own_splits=self._own_splits)

    def make(self, trace: RowTrace, source_row: SourceRow, *, record_id: str | None) -> RemadeRow:
        """Add the results of the steps to a trace. If the row makes several examples, `record_id` selects one."""
        block, number, examples = source_row
        row = next(row for row in blocks.read(block, columns=self._rows.examples_of.columns) if row.number == number)
        trace.source, remade_row = _source(block, row), RemadeRow(trace, (block.file.name, number))
        if not len(examples):
            trace.example = {"blank": True}
            return remade_row
        (example,) = example_table.examples_of(examples)
        if isinstance(example, str):
            trace.example = {"reason": example}
            return remade_row._replace(rejected_by="reading" if row.record is None else "task")
        trace.example = _example(example, group=examples["group"][0].as_py())
        steps = Trace()
        table = BlockTokenizer(self._settings, self._rows.task, self._tokenizer, trace=steps).features(examples)
        trace.filters = [_filtered(*filter_step) for filter_step in steps.filters]
        if trace.filters and "reason" in trace.filters[-1]:
            return remade_row._replace(rejected_by="filters")
        accepted_rows = table.filter(table["reason"].is_null()).combine_chunks()
        if not len(accepted_rows):
            trace.tokens = _count_tokens(table, 0)
            return remade_row._replace(rejected_by="tokens")
        placed = self._sort.places(accepted_rows, block)
        # A row may make several examples: trace the one with the requested record.
        index = placed.record_ids.index(record_id) if record_id in placed.record_ids else 0
        inputs, labels = (accepted_rows[name][index].as_py() for name in ("inputs", "labels"))
        sizes = {"inputs": np.array([len(inputs)]), "targets": np.array([len(labels)])}
        sizes |= {name: accepted_rows[name].to_numpy()[index : index + 1] for name in ("tokens", "target_tokens")}
        lost_tokens = record_counts.tokens_lost(sizes, marked=self._settings.marked)
        input_cut, target_cut = (int(tokens) for (tokens,) in lost_tokens)
        trace.tokens = _count_tokens(accepted_rows, index)
        trace.tokens["input_ids"], trace.tokens["labels"] = inputs, labels
        trace.tokens["input_cut"], trace.tokens["target_cut"] = input_cut, target_cut
        trace.tokens["cut_input"], trace.tokens["cut_target"] = self._texts(steps.inputs), self._texts(steps.targets)
        split = placed.names[placed.of[index]]
        trace.split = self._explain_split(accepted_rows, placed.drawn_by, index, split=split, file=block.file.name)
        id = placed.record_ids[index]
        is_wanted = record_id is None or record_id == id or record_id.startswith(f"{id}@")
        return remade_row._replace(id=placed.ids[index], record_id=(record_id or id) if is_wanted else None)

    def _texts(self, runs: list[list[int]]) -> list[str]:
        """Return the texts of runs of ids, without special tokens between texts and lines."""
        between = {id for part in self._tokenizer.frame for id in part}
        if self._settings.keep_newlines:
            between.add(self._tokenizer.sentinel(newlines.SENTINEL_NUMBER))
        parts = (
            list(part)
            for run in runs
            for of_text, part in itertools.groupby(run, lambda id: id not in between)
            if of_text
        )
        return [self._tokenizer.decode(part) for part in parts]

    def _explain_split(
        self, accepted_rows: pa.Table, digests: np.ndarray, index: int, *, split: str, file: str
    ) -> SplitFacts:
        """Return how the split of a row was decided: by task, file, group or id."""
        if accepted_rows["split"][index].as_py():
            return {"name": split, "by": "task"}
        shares = self._sort.draw.shares(file)
        if len(shares) == 1:
            return {"name": split, "by": "file" if self._own_splits.get(file) else "all"}
        number = float(placement.uniform(self._sort.draw.keys(accepted_rows, digests, file=file))[index])
        group = accepted_rows["group"][index].as_py() if self._settings.group_column else None
        edges = np.concatenate([[0.0], np.cumsum(list(shares.values()))]).tolist()
        ranges = {name: list(pair) for name, pair in zip(shares, itertools.pairwise(edges), strict=True)}
        facts: SplitFacts = {"name": split, "by": "group" if group else "id", "number": number, "ranges": ranges}
        if group:
            facts["group"] = group
        return facts


def _has_own_id(id: str, location: Location) -> bool:
    """Check whether a record's id comes from the source instead of its place."""
    return not re.fullmatch(re.escape(f"{location[0]}:{location[1]}") + _SUFFIX, id, re.DOTALL)


def _json(value: str) -> str:
    """Return a string as JSON."""
    return json.dumps(value, ensure_ascii=False)


def _inside(text: str) -> bytes:
    """Return a text as the bytes inside of a JSON string."""
    return _json(text)[1:-1].encode("utf-8", "surrogatepass")


def _count_tokens(table: pa.Table, index: int) -> TokenFacts:
    """Return the tokens of a row before cutting, and its part if it is one of several."""
    counts: TokenFacts = {"inputs": table["tokens"][index].as_py(), "targets": table["target_tokens"][index].as_py()}
    if part := table["part"][index].as_py():
        counts["part"], counts["parts"] = part, len(table)
    return counts


def _example(example: Example, *, group: str | None) -> ExampleFacts:
    """Return the facts about the example that the task made."""
    parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    inputs: list[InputFacts] = [
        {"text": part.text, "protected": True}
        if isinstance(part, Protected)
        else {"text": part}
        if isinstance(part, str)
        else {"eos": True}
        for part in parts
    ]
    return {
        "inputs": inputs,
        "id": example.id,
        "target": example.targets,
        "references": list(example.references),
        "split": example.split,
        "group": group,
    }


def _filtered(filter: str, example_before: Example, example_after: Example, reason: str) -> FilterFacts:
    """Return the facts about the effect of a filter on an example."""
    facts: FilterFacts = {"filter": filter, "changed": example_after != example_before}
    if example_after != example_before:
        facts["before"], facts["after"] = text_of(example_before.inputs), text_of(example_after.inputs)
    if example_after.targets != example_before.targets:
        facts["target_before"], facts["target_after"] = example_before.targets, example_after.targets
    if reason:
        facts["reason"] = reason
    return facts


def _source(block: Block, row: Row) -> SourceFacts:
    """Return the place of a row and its values, or its bytes if it could not be read."""
    span = _span(block, row)
    byte, size = (None, None) if span is None else (span.byte, len(span.data))
    facts: SourceFacts = {"file": block.file.name, "row": row.number, "byte": byte, "bytes": size}
    if row.record is not None:
        facts["values"] = {name: _plain(value) for name, value in row.record.items()}
    elif span is not None:
        facts["text"] = span.data.decode("utf-8", "backslashreplace")
    return facts


def _plain(value: object) -> JSON:
    """Return a value in a form that JSON can represent."""
    try:
        return json.loads(json.dumps(value, default=str))
    except (TypeError, ValueError):
        return str(value)


class _Span(NamedTuple):
    """The first byte of a row in its unpacked file, and the row's bytes."""

    byte: int
    data: bytes


def _span(block: Block, row: Row) -> _Span | None:
    """Return the place of a row's bytes in its (unpacked) file, or None if they are not one contiguous run there.

    They are not for Parquet, for a single JSON document, for a pair of files, and if the encoding is converted while
    reading.
    """
    if block.format.kind == "parquet":
        return None
    data, rows_before, quoted = blocks.content(block), row.number - block.first_row, block.format.quoted
    dialect = {"delimiter": block.format.delimiter or ",", "escape": block.format.escape}
    begin = 0
    if rows_before and quoted:
        begin = text_rows.ends(data, final=True, max_rows=rows_before, **dialect)[0]
    elif rows_before:
        begin = next(itertools.islice(text_rows.row_ends(data), rows_before - 1, None), 0)
    row_bytes = data[begin : begin + text_rows.of_first(data[begin:], quoted=quoted, final=True, **dialect)]
    names = tuple(row.record or ())
    # These are the row's bytes only if they give the same row again.
    reread = next(
        text_rows.read(row_bytes, block.format, columns=block.columns, first=row.number, typed_columns=names), None
    )
    if reread is None or (row.record is not None and reread.record is None) or reread.reason != row.reason:
        return None
    if block.data is not None and not _stands_at(block, begin, row_bytes):
        return None
    return _Span(block.begin + begin, row_bytes)


def _stands_at(block: Block, begin: int, row_bytes: bytes) -> bool:
    """Check whether the file really has these bytes of a block at its position. The block carries its content with it."""
    with sources.open_stream(block.file) as stream:
        remaining_bytes = block.begin + begin
        while remaining_bytes and (skipped := stream.read(min(remaining_bytes, 1 << 20))):
            remaining_bytes -= len(skipped)
        return not remaining_bytes and stream.read(len(row_bytes)) == row_bytes

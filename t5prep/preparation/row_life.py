"""Tell the life of one row, in the order of the data flow: where it stands in its source, and what each step made of it.

A dataset keeps none of this. Its manifest names the source and all settings, so the source is read again up to the row,
and the steps of `prepare` make the row once more. What the dataset itself knows (split, shard, place, tokens, rejected
rows) is read there. Where the source cannot be read again, or is another one by now, only that is told, and why.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import re
import shlex
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep import sources
from t5prep.dataset import manifest, rejected_rows, shard_files, tfrecord
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError, SourceError, T5prepError
from t5prep.io import addresses, paths, trusted_code
from t5prep.preparation import placement, record_counts, row_limit
from t5prep.preparation.block_tokenizer import BlockExamples, BlockTokenizer
from t5prep.preparation.sort_blocks import BlockSorter
from t5prep.reading import blocks, source_files, text_rows
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Row
from t5prep.sources import RawFile, raw
from t5prep.tasks import example_table, registry
from t5prep.tasks.example import EOS, Example, Protected, Trace, text_of
from t5prep.tasks.filters import rules
from t5prep.tasks.filters.chain import Chain, code_files
from t5prep.tasks.registry import Definition
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.tokenizer import Tokenizer

# What a record's id may have behind the id of its row: the number of a part, the digest of one of several answers, the
# first token of a row of documents.
_BEHIND = r"(/\d+)?(#[0-9a-f]{8})?(@\d+)?"
_ENDINGS = (r"@\d+", r"#[0-9a-f]{8}", r"/\d+", r"/\d+#[0-9a-f]{8}")
_PLACE = re.compile(r"(.+):(\d+)", re.DOTALL)
# How the reason of a row begins that another row's text or id made superfluous, and the step that left it out.
_LEFT_BY = {
    "leak": "evaluation sets",
    "repeated": "earlier datasets",
    "near duplicate": "near-duplicates",
    "duplicate id": "duplicates",
    "duplicate text": "duplicates",
}
_CUT = ("input_cut", "target_cut")
_BEHIND_SPLITS = ("near-duplicates", "duplicates")
Life = dict[str, Any]


class Found(NamedTuple):
    """A record of a dataset: where it lies (its number in the shard from 0, its first byte), its id, and its bytes.

    `segment` is the number of the example in a packed record, from 1, and 0 in any other.
    """

    split: str
    shard: str
    number: int
    byte: int
    id: str
    record: bytes
    segment: int = 0


class _Reached(NamedTuple):
    """A row of the source: its block, its number in the file, and the table of its example, empty for a blank row."""

    block: Block
    number: int
    examples: pa.Table


class Lives:
    """Tell the lives of rows of one dataset. What all of them need is read once."""

    def __init__(
        self, data: str | Path, *, source: str = "", tokenizer: str | None = None, trust_code: bool = False
    ) -> None:
        """Open a dataset; `source` is where its source lies now, if the manifest's address does not lead there.

        Raises DatasetError and TokenizerError.
        """
        self.opened = Dataset(data, tokenizer=tokenizer)
        self.dataset, self.data = self.opened.manifest, self.opened.folder
        self._source, self._trust_code = source, trust_code
        self._unchanged: set[str] = set()

    def life(self, id: str) -> Life:
        """Return the life of a row, given the id of its record, of a rejected row, or its place as `file:row`.

        Raises DatasetError for an id that is nowhere.
        """
        found, rejected = list(self.records(id)), list(self._rejected(id))
        place = self._place(id)
        life: Life = {"id": id, "data": self.data}
        life |= dict.fromkeys(("source", "example", "filters", "tokens", "split", "record", "duplicates", "rejected"))
        life["also"], life["notes"] = [], []
        if found:
            place = place if place and not self._has_own_id(found[0].id, place) else None
        elif rejected and place is None:
            place = rejected[0]["file"], rejected[0]["row"]
        try:
            recomputed = self._recomputed(id, place, found[0] if found else None)
        except T5prepError as error:
            life["notes"].append(
                f"Of this row only what the dataset itself knows is told, because its source is not read again: {error}"
            )
            recomputed = None
        if recomputed is not None:
            life |= recomputed.life
            if not found and recomputed.record_id is not None:
                found = list(self.records(recomputed.record_id)) or self._begun_in(recomputed)
                rejected = list(self._rejected(f"{recomputed.file}:{recomputed.row}"))
        if not found and not rejected and recomputed is None:
            raise DatasetError(
                f'No row of {self.data} has the id "{id}": neither a record, nor a rejected row, nor a row of its source. '
                f"Ids are listed by: t5prep table {self.data} ids.csv"
            )
        own = rejected[0] if rejected and not found else None  # the line of this very row, if it made no record
        if recomputed is not None:
            here = (recomputed.file, recomputed.row)
            own = next((one for one in rejected if (one["file"], one["row"]) == here), None)
        if found and own is None:
            with self._decoding(found[0].shard, found[0].number):
                self._tell_record(life, found[0])
            if recomputed is not None and recomputed.ids is not None and not self._agree(recomputed, found[0]):
                life["notes"].append("What the steps make of the row today is not what its record holds.")
        life["also"] = [
            {"id": one.id, "shard": one.shard, "number": one.number} for one in found[1 if own is None else 0 :]
        ]
        if own is not None:
            step = _LEFT_BY.get(own["reason"].partition(":")[0]) or (
                recomputed.left if recomputed is not None else None
            )
            life["rejected"] = {"reason": own["reason"], "step": step}
            life["split"] = life["split"] if step in _BEHIND_SPLITS else None
        life["duplicates"] = self._duplicates(own, recomputed, found)
        life["also"] += [one for one in rejected if one not in (own, *(life["duplicates"] or ()))]
        return life

    # What the dataset itself knows.

    def records(self, id: str) -> Iterator[Found]:
        """Yield the records of an id: its own, or its parts, answers and rows of tokens. Raises DatasetError."""
        shape, needle = re.compile(re.escape(id) + _BEHIND, re.DOTALL), id.encode("utf-8", "surrogatepass")
        splits = {name: [shard.name for shard in split.shards] for name, split in self.dataset.splits.items()}
        settings = self.dataset.settings
        if settings.dedup != "exact" and settings.layout != "packed" and not self.dataset.task.hides_spans:
            keys = {id, re.sub(r"#[0-9a-f]{8}$", "", id)}
            high = placement.positions(placement.digests(keys, seed=settings.seed))["high"].tolist()
            likely = {name: sorted({one * len(own) >> 64 for one in high}) for name, own in splits.items()}
            some = {
                name: [splits[name][number] for number in numbers] for name, numbers in likely.items() if splits[name]
            }
            if there := list(self._scan(some, shape, needle)):
                yield from there
                return
        yield from self._scan(splits, shape, needle)

    def _scan(self, shards: dict[str, list[str]], shape: re.Pattern[str], needle: bytes) -> Iterator[Found]:
        packed = self.dataset.settings.layout == "packed"
        for split, names in sorted(shards.items()):
            for shard in names:
                at = 0
                for number, record in enumerate(self.opened.records(shard)):
                    if needle in record:
                        with self._decoding(shard, number):
                            ids = [one.decode() for one in tfrecord.raw_features(record, wanted=("id",))["id"]]
                        for segment, one in enumerate(ids, 1):
                            if shape.fullmatch(one):
                                yield Found(split, shard, number, at, one, record, segment if packed else 0)
                    at += tfrecord.FRAME_BYTES + len(record)

    def _decoding(self, shard: str, number: int) -> contextlib.AbstractContextManager[None]:
        return self.opened.decoding(f"Record {number} of {self.opened.at(shard)}")

    def _lines(self, *needles: bytes) -> Iterator[dict[str, Any]]:
        """Yield the rejected rows whose line has one of some pieces of JSON in it. Raises DatasetError."""
        for rows in self.opened.rejected(*needles):
            yield from rows.to_pylist()

    def _rejected(self, id: str) -> Iterator[dict[str, Any]]:
        """Yield the rejected rows of an id, or of a place."""
        place, shape = self._place(id), re.compile(re.escape(id) + _BEHIND, re.DOTALL)
        at_place = [f"{_json(place[0])}, {_json('row')}: {place[1]},".encode()] if place else []
        for line in self._lines(_inside(id), *at_place):
            if (line["id"] is not None and shape.fullmatch(line["id"])) or (line["file"], line["row"]) == place:
                yield line

    def _begun_in(self, recomputed: "_Recomputed") -> list[Found]:
        """Return the record in which a document begins whose first token is not the first of a record."""
        if not self.dataset.task.hides_spans or recomputed.split not in self.dataset.splits:
            return []
        seed, shards = self.dataset.settings.seed, self.dataset.splits[recomputed.split].shards

        def position(id: str) -> tuple[int, int]:
            (one,) = placement.positions(placement.digests([id], seed=seed)).tolist()
            return one

        own = position(recomputed.record_id or "")
        shard = shards[own[0] * len(shards) >> 64].name
        before = [
            one
            for one in self._scan({recomputed.split: [shard]}, re.compile(r".*@\d+", re.DOTALL), b"")
            if position(one.id.rpartition("@")[0]) < own
        ]
        return before[-1:]

    def _place(self, id: str) -> tuple[str, int] | None:
        """Return the file and row that an id names as `file:row`, if the source has such a row."""
        match = _PLACE.fullmatch(id)
        rows = self.dataset.rows.get(match[1]) if match else None
        return (match[1], int(match[2])) if match and rows and 1 <= int(match[2]) <= rows.read else None

    def _has_own_id(self, id: str, place: tuple[str, int]) -> bool:
        return not re.fullmatch(re.escape(f"{place[0]}:{place[1]}") + _BEHIND, id, re.DOTALL)

    def _tell_record(self, life: Life, found: Found) -> None:
        """Tell where a record lies, and its tokens."""
        record, settings = self.opened.decoded(found.record), self.dataset.settings
        inputs, labels = [one for one in record.input_ids if one != self.opened.tokenizer.pad_id], record.targeted
        life["record"] = {
            "id": found.id,
            "split": found.split,
            "shard": found.shard,
            "number": found.number,
            "byte": found.byte,
            "bytes": tfrecord.FRAME_BYTES + len(found.record),
            "input": record.inputs,
            "target": record.targets,
            "references": record.references,
        }
        if found.segment:
            life["record"]["segment"] = found.segment
        origin = self._origin(found)
        if life["source"] is None and origin is not None:
            life["source"] = {"file": origin["file"], "row": origin["row"], "byte": None, "bytes": None}
        if life["tokens"] is None:
            counts: Life = {"inputs": len(inputs), "targets": len(labels)}
            if origin is not None and not found.segment:  # a packed record has the tokens of several examples
                lost = {name: origin[name] for name in _CUT}
                before = len(inputs) + lost["input_cut"] - (settings.marked and lost["input_cut"] > 0)
                counts = {"inputs": before, "targets": len(labels) + lost["target_cut"], **lost}
            own = {} if settings.layout == "packed" else {"input_ids": inputs, "labels": labels}
            life["tokens"] = counts | own
        if life["split"] is None:
            life["split"] = {"name": found.split}

    def _origin(self, found: Found) -> dict[str, Any] | None:
        """Return what the dataset keeps of where a record comes from (shard_files.ORIGIN); None where it does not know."""
        own = self.opened.origins.get(found.split)
        if own is None:
            return None
        before = list(itertools.takewhile(lambda one: one.name != found.shard, self.dataset.splits[found.split].shards))
        at = sum(shard.records for shard in before) + found.number
        if found.segment:  # each example has an entry: those of the records before are counted
            names = [*(shard.name for shard in before), found.shard]
            earlier = itertools.islice(self.opened.records(*names), at)
            at = sum(len(tfrecord.raw_features(record, wanted=("id",))["id"]) for record in earlier) + found.segment - 1
        entry = {
            name: int(number) for name in shard_files.ORIGIN for number in shard_files.origin(own[at : at + 1], name)
        }
        files = self.dataset.source.files
        if not entry or entry["file"] >= len(files):
            raise DatasetError(f"{self.opened.at(shard_files.ORIGINS)} is not of these shards. {shard_files.AGAIN}")
        return entry | {"file": files[entry["file"]].name}

    def _agree(self, recomputed: "_Recomputed", found: Found) -> bool:
        """Check whether a recomputed row is what its record holds; of rows that several make together, whether it is in there."""
        if recomputed.record_id != found.id or recomputed.split != found.split:
            return self.dataset.task.hides_spans and recomputed.split == found.split  # it may begin inside of a record
        if self._task.task.several_answers and found.split != "train":
            return True  # the record is that of the first row with this id
        if self.dataset.settings.layout == "packed" or self.dataset.task.hides_spans or recomputed.ids is None:
            return True
        record = self.opened.decoded(found.record)
        inputs = [one for one in record.input_ids if one != self.opened.tokenizer.pad_id]
        is_aligned = self.dataset.target.is_aligned  # most places of a row have none
        return (inputs, record.labels[: len(inputs)] if is_aligned else record.targeted) == recomputed.ids

    def _duplicates(
        self, own: dict[str, Any] | None, recomputed: "_Recomputed | None", found: Sequence[Found]
    ) -> list[dict[str, Any]] | None:
        """Return the rows that are duplicates or near-duplicates of this one, or of the row that was kept instead of it."""
        if own is not None and own["reason"].startswith("near duplicate: "):
            heads = [rejected_rows.without_similarity(own["reason"])]
        elif own is not None and re.match("duplicate (id|text): kept is ", own["reason"]):
            heads = [own["reason"]]
        elif own is None and found and recomputed is not None:
            here = f"{recomputed.file}:{recomputed.row}"
            near = rejected_rows.near_duplicate(recomputed.file, recomputed.row, recomputed.plain_id, 1.0)
            heads = [rejected_rows.without_similarity(near)]
            heads += [f"{kind}: kept is {here}" for kind in ("duplicate id", "duplicate text")]
        else:
            return None if own is None else []
        lines = self._lines(*map(_inside, heads))
        same = (line for line in lines if rejected_rows.without_similarity(line["reason"]) in heads)
        return [line for line in same if line != own]

    # What the source says, once more.

    @functools.cached_property
    def _definition(self) -> Definition:
        """The task that made the dataset. Raises UsageError for code that is neither known nor trusted, DatasetError, TaskError."""
        facts = self.dataset.task
        if not facts.file:
            return registry.named(self.dataset.settings.task)
        path = paths.at(self.data, manifest.TASK_FILE)
        try:
            code = paths.read(path)
        except OSError as error:
            raise DatasetError(f"{path} cannot be read ({error.strerror or 'not found'}).") from error
        facts.check_code(code, path=path)
        self._trust(code, path=path, use=f"make examples of rows, for the task {self.dataset.settings.task}")
        return registry.from_code(code, file=facts.file)

    def _trust(self, code: bytes, *, path: str, use: str) -> None:
        otherwise = "without it, what the dataset itself knows is told."
        trusted_code.check(
            code, path=path, use=use, otherwise=otherwise, trusted=self._trust_code, came_with="the dataset"
        )

    @functools.cached_property
    def _files(self) -> list[RawFile]:
        """The files that the dataset was made of. Raises SourceError if one is not there."""
        said = self.dataset.source
        uri = self._source or pinned(said)
        uris = sources.uris_of(uri)
        if not self._source and uri != "sample:" and any(raw.parse(each).scheme for each in uris):
            shown = addresses.public(uri)
            # Whoever made the dataset chose this address.
            if not all(map(addresses.is_known, sources.uris_of(said.uri))):
                raise SourceError(
                    f"the manifest names {shown}, from which you have read nothing before. If you trust who made the dataset: "
                    f"--source {shlex.quote(shown)}"
                )
            print(f"Reading the source again: {shown}, as the manifest says", file=sys.stderr, flush=True)
        settings = self.dataset.settings
        there = sources.resolve_all(
            uris, include=self._task.files, progress=False, ignore_card=bool(settings.split_files)
        )
        selected = row_limit.select_files(there, self._task, settings).source
        by_name = {file.name: file for file in (*there.files, *selected.files)}
        for file in said.files:
            if file.name not in by_name:
                raise SourceError(
                    f"{addresses.public(self._source or said.uri)} has no {file.name} any more. Say where it is: --source"
                )
        return [by_name[file.name] for file in said.files]

    def _check(self, files: Sequence[RawFile]) -> None:
        """Raise SourceError for a file that is not the one that the manifest names."""
        said = {file.name: file for file in self.dataset.source.files}
        for file in files:
            if file.name not in self._unchanged and sources.checksum(file) != said[file.name].sha256:
                raise SourceError(f"{file.name} is not the file that made the dataset: it has another checksum.")
            self._unchanged.add(file.name)

    @functools.cached_property
    def _task(self) -> Any:
        return self._definition.choose(self.dataset.settings.options)

    @functools.cached_property
    def _steps(self) -> "_Steps":
        settings, task = self.dataset.settings, self._task
        for path in code_files(settings.filter):
            try:
                code = rules.read(path)
            except OSError as error:
                raise SourceError(f"the filter {path} cannot be read ({error.strerror}).") from error
            self._trust(code, path=path, use="filter texts")
        if Chain(settings.filter).files() != self.dataset.filter_files:
            raise SourceError("a file that its filters read is not the one that made the dataset.")
        return _Steps(self.dataset, task, self.opened.tokenizer, self._files)

    def _recomputed(self, id: str, place: tuple[str, int] | None, found: Found | None) -> "_Recomputed | None":
        """Return what the steps make of the row of a place, or of the first row that makes this record; None if there is none."""
        if place is None and found is None and not self.dataset.task.hides_spans:
            return None  # every row with this id would be a record or a rejected row
        wanted = id if found is None else found.id
        ids = {wanted, *(re.sub(f"({pattern})$", "", wanted) for pattern in _ENDINGS)}
        if place is None and found is not None:
            origin = self._origin(found)
            own = (one for one in map(self._place, ids) if one and not self._has_own_id(found.id, one))
            place = (origin["file"], origin["row"]) if origin else next(own, None)
        dropped = set()
        if place is None:
            dropped = {(line["file"], line["row"]) for line in self._lines(*map(_inside, ids))}
        for reached in self._rows(place, ids):
            if (reached.block.file.name, reached.number) in dropped:
                continue
            made = self._steps.made(reached, wanted=found.id if found else None)
            if place is not None or made.record_id is not None:
                return made
        return None

    def _rows(self, place: tuple[str, int] | None, ids: set[str]) -> Iterator[_Reached]:
        """Yield the row of a place, or every row whose example has one of some ids."""
        examples_of = self._steps.examples
        for block in self._blocks(None if place is None else {place[0]}):
            if place is None:
                examples = examples_of(block)
                rows = examples.filter(pc.is_in(examples["id"], pa.array(sorted(ids))))["row"].to_pylist()
                numbers = [row + block.first_row for row in rows]
            elif block.first_row <= place[1] < block.first_row + block.rows:
                examples, numbers = examples_of(block), [place[1]]
            else:
                continue
            for number in numbers:
                which = pc.equal(examples["row"], number - block.first_row)
                yield _Reached(block, number, examples.filter(which).combine_chunks())

    def _blocks(self, names: Container[str] | None) -> Iterator[Block]:
        """Yield the blocks of the source's files of some names (None: of all), each checked before it is read."""
        settings, task = self.dataset.settings, self._task
        for file in row_limit.limited_files(self._files, settings, task):
            own = blocks.files(file.element)
            if names is None or own[0].name in names:
                self._check(own)
                yield from row_limit.scan(file, settings, task.task.corpus)

    def texts(self, rows: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, pa.Array, pa.Array]]:
        """Yield the texts that rows of the source had before filters and cuts: a file, rows of it, their inputs and targets.

        `rows`, int64[n] in order, are those of each file. Where the task made nothing of a row, its input is the JSON of the
        columns that are read, null if not even they could be read, and its target is null. Raises T5prepError if the source
        is not there, or another one by now.
        """
        examples_of = BlockExamples(self.dataset.settings, self._task)
        for block in self._blocks(rows):
            own = rows[block.file.name]
            if not (own[(begin := np.searchsorted(own, block.first_row)) :][:1] < block.first_row + block.rows).any():
                continue
            wanted = own[begin:] - block.first_row
            examples = examples_of(block)
            examples = examples.filter(pa.array(np.isin(examples["row"].to_numpy(), wanted))).sort_by("row")
            numbers, made = examples["row"].to_numpy() + block.first_row, examples["reason"].is_null()
            others = set(numbers[~made.to_numpy()].tolist())
            there = blocks.read(block, columns=examples_of.columns) if others else ()
            columns = {row.number: _columns(row) for row in there if row.number in others}
            instead = pa.array(map(columns.get, numbers.tolist()), pa.large_string())
            inputs = pc.if_else(made, example_table.inputs_of(examples).lines(), instead)
            yield block.file.name, numbers, inputs, pc.if_else(made, examples["target"], None)


def _columns(row: Row) -> str | None:
    """Return the columns of a row as JSON, None if it could not be read."""
    if row.record is None:
        return None
    text = json.dumps(row.record, ensure_ascii=False, default=str)
    return text.encode(errors="backslashreplace").decode()


def _json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _inside(text: str) -> bytes:
    """Return a text as it stands inside of a string of JSON."""
    return _json(text)[1:-1].encode("utf-8", "surrogatepass")


def pinned(source: manifest.Source) -> str:
    """Return the address of a source at the revision that was read, as far as an address can say it.

    >>> pinned(manifest.Source("hf:a/b#c", "0123abc", [], "", "")), pinned(manifest.Source("kaggle:a/b", "version 3", [], "", ""))
    ('hf:a/b@0123abc#c', 'kaggle:a/b@3')
    """
    uris = sources.uris_of(source.uri)
    revisions = source.revision.split(" + ") if len(uris) > 1 and source.revision else [source.revision] * len(uris)
    return " + ".join(map(_pinned, uris, revisions))


def _pinned(uri: str, revision: str) -> str:
    revision = revision.removeprefix("version ")
    if uri.partition(":")[0] not in ("hf", "kaggle") or "@" in uri or not revision:
        return uri
    name, hash, part = uri.partition("#")
    return f"{name}@{revision}{hash}{part}"


@dataclasses.dataclass(frozen=True)
class _Recomputed:
    """A row as the steps make it today: its place, its life so far, and what it is known by.

    `ids` are those of the input and the labels, None if it made none; `left` is the step that rejected it, "" if none did.
    """

    file: str
    row: int
    life: Life
    plain_id: str = ""
    record_id: str | None = None
    split: str | None = None
    ids: tuple[list[int], list[int]] | None = None
    left: str = ""


class _Steps:
    """The steps of one preparation, for single rows. Evaluation sets and earlier datasets are not read again."""

    def __init__(self, dataset: manifest.Manifest, task: Any, tokenizer: Tokenizer, files: Sequence[RawFile]) -> None:
        settings = dataset.settings
        self._settings, self._task, self._tokenizer = settings, task, tokenizer
        self.examples = BlockExamples(settings, task)
        self._own_splits = {} if settings.splits else source_files.splits_of(files)
        names = [file.name for file in files]
        self._sort = BlockSorter(settings, task.task, tokenizer, files=names, own_splits=self._own_splits)

    def made(self, reached: _Reached, *, wanted: str | None) -> _Recomputed:
        """Return what the steps make of a row; of several examples, the one whose record has the `wanted` id."""
        block, number, examples = reached
        row = next(row for row in blocks.read(block, columns=self.examples.columns) if row.number == number)
        life: Life = {"source": _told_source(block, row)}
        here = functools.partial(_Recomputed, block.file.name, number, life)
        if not len(examples):
            life["example"] = {"blank": True}
            return here()
        (example,) = example_table.examples_of(examples)
        if isinstance(example, str):
            life["example"] = {"reason": example}
            return here(left="reading" if row.record is None else "task")
        life["example"] = _told_example(example, group=examples["group"][0].as_py())
        trace = Trace()
        table = BlockTokenizer(self._settings, self._task, self._tokenizer, trace=trace).features(examples)
        life["filters"] = [_told_filter(*each) for each in trace.filters]
        if life["filters"] and "reason" in life["filters"][-1]:
            return here(left="filters")
        kept = table.filter(table["reason"].is_null()).combine_chunks()
        if not len(kept):
            life["tokens"] = _counted(table, 0)
            return here(left="tokens")
        placed = self._sort.places(kept, block)
        at = placed.record_ids.index(wanted) if wanted in placed.record_ids else 0
        inputs, labels = (kept[name][at].as_py() for name in ("inputs", "labels"))
        life["tokens"] = _counted(kept, at) | {"input_ids": inputs, "labels": labels}
        sizes = {name: np.array([len(own)]) for name, own in (("inputs", inputs), ("targets", labels))}
        sizes |= {name: kept[name].to_numpy()[at : at + 1] for name in ("tokens", "target_tokens")}
        lost = record_counts.tokens_lost(sizes, marked=self._settings.marked)
        life["tokens"] |= {name: int(number) for name, (number,) in zip(_CUT, lost, strict=True)}
        life["tokens"] |= {"cut_input": self._texts(trace.inputs), "cut_target": self._texts(trace.targets)}
        split = placed.names[placed.of[at]]
        life["split"] = self._drawn(kept, placed.drawn_by, at, split=split, file=block.file.name)
        mine = wanted is None or wanted == placed.record_ids[at] or wanted.startswith(f"{placed.record_ids[at]}@")
        return here(
            plain_id=placed.ids[at],
            record_id=(wanted or placed.record_ids[at]) if mine else None,
            split=split,
            ids=(inputs, labels),
        )

    def _texts(self, runs: list[list[int]]) -> list[str]:
        """Return the texts of runs of ids, without the special tokens between texts and lines."""
        between = {id for part in self._tokenizer.frame for id in part}
        if self._settings.keep_newlines:
            between.add(self._tokenizer.sentinel(newlines.NUMBER))
        parts = (
            list(part)
            for run in runs
            for of_text, part in itertools.groupby(run, lambda id: id not in between)
            if of_text
        )
        return [self._tokenizer.decode(part) for part in parts]

    def _drawn(self, kept: pa.Table, digests: np.ndarray, at: int, *, split: str, file: str) -> dict[str, Any]:
        """Return how the split of a row was decided."""
        told: dict[str, Any] = {"name": split}
        if kept["split"][at].as_py():
            return told | {"by": "task"}
        shares = self._sort.draw.shares(file)
        if len(shares) == 1:
            return told | {"by": "file" if self._own_splits.get(file) else "all"}
        number = float(placement.uniform(self._sort.draw.keys(kept, digests, file=file))[at])
        group = kept["group"][at].as_py() if self._settings.group_column else None
        edges = np.concatenate([[0.0], np.cumsum(list(shares.values()))]).tolist()
        by = "group" if group else "id"
        ranges = {name: list(pair) for name, pair in zip(shares, itertools.pairwise(edges), strict=True)}
        return told | {"by": by, "number": number, "ranges": ranges} | ({"group": group} if group else {})


def _counted(table: pa.Table, at: int) -> dict[str, Any]:
    """Return the tokens of a row before it was cut, and its part if it is one of several."""
    told = {"inputs": table["tokens"][at].as_py(), "targets": table["target_tokens"][at].as_py()}
    return told | ({"part": part, "parts": len(table)} if (part := table["part"][at].as_py()) else {})


def _told_example(example: Example, *, group: str | None) -> dict[str, Any]:
    """Return what the task made of a row."""
    parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    named = {"id": example.id, "target": example.targets, "references": list(example.references)}
    told = [
        {"eos": True}
        if part is EOS
        else {"text": part.text, "protected": True}
        if isinstance(part, Protected)
        else {"text": part}
        for part in parts
    ]
    return {"inputs": told, **named, "split": example.split, "group": group}


def _told_filter(filter: str, before: Example, after: Example, reason: str) -> dict[str, Any]:
    """Return what a filter did to an example."""
    told: dict[str, Any] = {"filter": filter, "changed": after != before}
    if after != before:
        told |= {"before": text_of(before.inputs), "after": text_of(after.inputs)}
    if after.targets != before.targets:
        told |= {"target_before": before.targets, "target_after": after.targets}
    return told | ({"reason": reason} if reason else {})


def _told_source(block: Block, row: Row) -> dict[str, Any]:
    """Return where a row stands, and its values in the columns that are read, or the bytes of a row that has none."""
    told: dict[str, Any] = {"file": block.file.name, "row": row.number}
    span = _span(block, row)
    told |= {"byte": None, "bytes": None} if span is None else {"byte": span.byte, "bytes": len(span.data)}
    if row.record is not None:
        told["values"] = {name: _plain(value) for name, value in row.record.items()}
    elif span is not None:
        told["text"] = span.data.decode("utf-8", "backslashreplace")
    return told


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    try:
        return json.loads(json.dumps(value, default=str))
    except (TypeError, ValueError):
        return str(value)


class _Span(NamedTuple):
    byte: int
    data: bytes


def _span(block: Block, row: Row) -> _Span | None:
    """Return where a row lies in its file (unpacked, if it is packed), or None where its bytes do not lie there in one piece.

    That is so in Parquet, in one JSON document, in a pair of files, and where the encoding is changed while it is read.
    """
    if block.format.kind == "parquet":
        return None
    data, before, quoted = blocks.content(block), row.number - block.first_row, block.format.quoted
    dialect = {"delimiter": block.format.delimiter or ",", "escape": block.format.escape}
    begin = 0
    if before and quoted:
        begin = text_rows.ends(data, final=True, most=before, **dialect)[0]
    elif before:
        begin = next(itertools.islice(text_rows.row_ends(data), before - 1, None), 0)
    own = data[begin : begin + text_rows.of_first(data[begin:], quoted=quoted, final=True, **dialect)]
    names = tuple(row.record or ())
    again = next(text_rows.read(own, block.format, columns=block.columns, first=row.number, wanted=names), None)
    if again is None or (row.record is not None and again.record is None) or again.reason != row.reason:
        return None
    if block.data is not None and not _stands_at(block, begin, own):
        return None
    return _Span(block.begin + begin, own)


def _stands_at(block: Block, begin: int, own: bytes) -> bool:
    """Check whether some bytes of a block that travels with its content are those of the file."""
    with sources.open_stream(block.file) as stream:
        left = block.begin + begin
        while left and (skipped := stream.read(min(left, 1 << 20))):
            left -= len(skipped)
        return not left and stream.read(len(own)) == own

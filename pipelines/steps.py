"""The steps of a preparation that workers take, as functions of plain values: whatever executes them, they never import Beam.

What workers need besides their elements lies beside the shards: the list of files, the tokenizer, a user's own task. A
graph that carried them would grow with the corpus, and engines limit its size (10 MB on Dataflow).
"""

import base64
import dataclasses
import functools
import hashlib
import itertools
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import sorting
from pipelines.pieces import Piece, Stored, load
from t5prep import sources
from t5prep.dataset import rejected_rows
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.rejected_rows import RejectedFile
from t5prep.dataset.settings import Settings
from t5prep.errors import TaskError, UsageError
from t5prep.io import atomic_files, paths
from t5prep.preparation import earlier_datasets, records, row_limit, shards, token_cache
from t5prep.preparation import evaluation_sets as evaluation_leaks
from t5prep.preparation.block_tokenizer import BlockTokenizer
from t5prep.preparation.earlier_datasets import EarlierTexts
from t5prep.preparation.evaluation_sets import Leaks
from t5prep.preparation.near_duplicates import clusters as search
from t5prep.preparation.near_duplicates.clusters import EARLIER, Plan, Repeats, Search
from t5prep.preparation.near_duplicates.sketches import ROWS, Sketch, shingles, sketch, tables, to_bytes
from t5prep.preparation.row_limit import LimitedFile
from t5prep.preparation.shards import ShardSpec, ShardTotals, WrittenShard
from t5prep.preparation.sort_blocks import BlockSorter, BlockTotals, SortedBlock
from t5prep.preparation.spills import Spill
from t5prep.preparation.token_cache import TokenCache
from t5prep.reading import blocks as parallel_files
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile, Resolved
from t5prep.tasks import registry
from t5prep.tasks.filters import rules
from t5prep.tasks.filters.chain import Chain
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer

FILES, MODEL, TASK, LEAKS, FILTERS = "files.jsonl", "tokenizer.model", "task.py", "leaks.npz", "filters.json"
EARLIER_TEXTS = "earlier.npz"
# Parts of a row group of Parquet that one worker prepares, one after the other, because it decodes the group from its
# beginning: an eighth of the group, so that all workers have some, and at most so many.
RUNS_OF_GROUP, MOST_PARTS = 8, 8


@dataclasses.dataclass(frozen=True)
class Job:
    """One preparation as it travels to workers: its settings, and the folder where the rest of it lies.

    `tokenizer` is what the user calls it, `task_file` the user's own file that defines the task ("": it is installed),
    `files` are the names of what lies in the folder, and `digest` is that of all of it.
    """

    settings: Settings
    folder: str
    tokenizer: str
    task_file: str
    digest: str
    files: tuple[str, ...] = ()


def stage(
    settings: Settings,
    *,
    task: Definition,
    source: Resolved,
    tokenizer: Tokenizer,
    folder: str,
    against: Leaks | None = None,
    earlier: EarlierTexts | None = None,
) -> Job:
    """Write what workers need into a folder that every one of them can read, and return the job. Raises OutputError."""
    filters = {path: base64.b64encode(rules.read(path)).decode() for path in Chain(settings.filter).files()}
    contents = {
        FILES: "".join(json.dumps([*vars(file).values()]) + "\n" for file in source.files).encode(),
        MODEL: tokenizer.model,
        TASK: task.code if task.file else b"",
        LEAKS: against.dumps() if against else b"",
        EARLIER_TEXTS: earlier.dumps() if earlier else b"",
        FILTERS: json.dumps(filters).encode() if filters else b"",
    }
    job_files = {name: content for name, content in contents.items() if content}
    digest = hashlib.sha256(task.code)
    for name, content in job_files.items():
        paths.write(paths.join(folder, name), content)
        digest.update(content)
    return Job(settings, folder, tokenizer.name, task.file, digest.hexdigest(), tuple(job_files))


class Staged:
    """The files in a job's folder; each is loaded when it is first asked for."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def _read(self, name: str) -> bytes:
        """Return a file of the folder; nothing if the job has no such file."""
        return paths.read(paths.join(self.job.folder, name)) if name in self.job.files else b""

    def source_files(self) -> Iterator[RawFile]:
        """Yield the files of the source, in order of their names."""
        yield from itertools.starmap(RawFile, self._files())

    @functools.cached_property
    def names(self) -> Sequence[str]:
        """The names of the source's files, in order."""
        return [name for name, *_ in self._files()]

    @functools.cached_property
    def splits(self) -> Mapping[str, str]:
        """The split of each of the source's files that has one."""
        return {name: split for name, *_, split in self._files() if split}  # RawFile's first field and its last

    def _files(self) -> list[list[Any]]:
        return json.loads(b"[%b]" % b",".join(self._read(FILES).splitlines()))

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, under the name the user gave it."""
        return loading.of_content(self._read(MODEL), name=self.job.tokenizer)

    @functools.cached_property
    def definition(self) -> Definition:
        """The definition of the task: of the user's own file, or of what is installed here.

        Raises TaskError if this machine has no such task.
        """
        if self.job.task_file:
            return registry.from_code(self._read(TASK), file=self.job.task_file)
        try:
            return registry.get_installed(self.job.settings.task)
        except UsageError as error:
            raise TaskError(
                f"a worker has no task {self.job.settings.task}: the package that offers it is not installed there. Hand it over "
                "behind the other options: -- --extra_package=PACKAGE.whl"
            ) from error

    @functools.cached_property
    def task(self) -> ChosenTask:
        """The task with its options."""
        return self.definition.choose(self.job.settings.options)

    @functools.cached_property
    def evaluation_sets(self) -> Leaks | None:
        """The evaluation sets that no row may share a text with, or None if there are none."""
        content = self._read(LEAKS)
        return evaluation_leaks.loads(content) if content else None

    @functools.cached_property
    def earlier(self) -> EarlierTexts | None:
        """The texts of earlier datasets that no row may repeat, or None if there are none."""
        content = self._read(EARLIER_TEXTS)
        return earlier_datasets.loads(content) if content else None

    def bring_filter_files(self) -> None:
        """Let filters read the user's files on this machine, wherever it is."""
        if content := self._read(FILTERS):
            encoded_files = json.loads(content)
            rules.install({path: base64.b64decode(encoded) for path, encoded in encoded_files.items()})


# What this process has loaded, of the last job: a worker serves one preparation, a test many.
_LAST: list[Staged] = []


def staged_of(job: Job) -> Staged:
    """Return what lies in a job's folder; a process loads it once."""
    if not (_LAST and _LAST[0].job == job):
        _LAST[:] = [Staged(job)]
    return _LAST[0]


def limited_files(job: Job) -> Iterator[LimitedFile]:
    """Yield the files and pairs of files that are to be read, and how far."""
    staged = staged_of(job)
    yield from row_limit.limited_files(list(staged.source_files()), job.settings, staged.task)


def shared(source: Resolved, *, folder: str) -> Resolved:
    """Return the source with every file where a cloud's workers can read it; files of this machine are copied there.

    Raises SourceError or OutputError.
    """
    shared_paths: dict[str, str] = {}
    moved = []
    for file in source.files:
        if "://" in file.path:
            moved.append(file)
            continue
        if file.path not in shared_paths:
            shared_paths[file.path] = paths.copy(file.path, paths.join(folder, f"source-{len(shared_paths):06d}"))
        sha256 = file.sha256 or sources.sha256(file)
        sources.check_unchanged(file)
        moved.append(dataclasses.replace(file, path=shared_paths[file.path], sha256=sha256, modified=0))
    return dataclasses.replace(source, files=tuple(moved))


def refuse_local(datasets: Sequence[str]) -> None:
    """Raise UsageError for a dataset on this machine, where a cloud's workers have to read it."""
    for data in datasets:
        if "://" not in data:
            raise UsageError(
                f"--dedup-against {data}: Dataflow's workers cannot read this machine's disk. Upload it first: "
                f"t5prep upload {data} gs://BUCKET/PREFIX"
            )


# Records of an earlier dataset in one sketch.
ROWS_OF_SKETCH = 4096


class Hashed(NamedTuple):
    """A source file with the SHA-256 of its bytes."""

    file: RawFile
    sha256: str


# From files to blocks, and from blocks to spills.

Element = Block | RawFile | Hashed


def file_name(file: LimitedFile) -> str:
    """Return the name of a file, or of both of a pair."""
    return "\0".join(raw_file.name for raw_file in parallel_files.files(file.element))


def scan(file: LimitedFile, *, job: Job, block_bytes: int) -> Iterator[Element]:
    """Yield a file, or both of a pair, and their blocks: what PrepareBlock is applied to. A small file is read, and hashed, here."""
    element, content = file.element, None
    if isinstance(element, RawFile) and (content := sources.content_of_small(element)) is not None:
        yield Hashed(element, element.sha256 or hashlib.sha256(content).hexdigest())
    else:
        yield from parallel_files.files(element)
    corpus = staged_of(job).definition.task.corpus
    yield from row_limit.scan(file, job.settings, corpus, block_bytes=block_bytes, content=content)


@dataclasses.dataclass(frozen=True)
class PrepareBlock:
    """Sort a block into a spill, or hash a source file. This is pickled to workers; the tokenizer is loaded there.

    `kept` is where tokenized tables stay for the next run (`fresh`: none of an earlier run is used), `spool` where
    finished spills wait on disk ("" keeps them in memory, for what stores them itself).
    """

    job: Job
    kept: str = ""
    spool: str = ""
    fresh: bool = False

    def __call__(self, element: Element) -> Iterator[BlockTotals | Hashed | Piece | Spill | Sketch]:
        """Yield the totals of a block, its rejected lines, spill and sketch, or a file's hash. Raises SourceError for a bad file."""
        if not isinstance(element, Block):
            yield element if isinstance(element, Hashed) else Hashed(element, sources.checksum(element))
            return
        block = self.sort(element)
        yield block.totals
        if block.rejected:
            yield Piece((0, block.file, block.first_row), block.rejected)
        path = Path(self.spool) / digest(block.file, block.first_row)
        if block.spill.records:
            # Spills lie in one folder, for they are merged and few at a time: more folders would take longer to remove than they do.
            yield block.spill.spooled(path) if self.spool else block.spill
        if block.sketch:
            sketch_path = path.parent / path.name[:2] / f"{path.name}.sketch"
            yield block.sketch.spooled(sketch_path) if self.spool else block.sketch

    def sort(self, block: Block) -> SortedBlock:
        """Return the sorted block. Raises SourceError."""
        tokenize, sort = _loaded(self)
        tokenized = tokenize(block)
        sorted_block = sort(tokenized.table, block)
        sorted_block.totals.found = int(tokenized.found)
        return sorted_block

    def cache_name(self, element: Element) -> str:
        """Return a name for the results of an element, "" where it is a result itself."""
        if isinstance(element, Block):
            return digest(element.file.name, element.first_row, element.rows)
        return "" if isinstance(element, Hashed) else digest("sha256", element.name)


def digest(*parts: object) -> str:
    """Return a name for what is made of an element, which is known by these."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def prepare_run(run: Iterable[Element], *, work: PrepareBlock) -> Iterator[Any]:
    """Yield the results of each of some elements."""
    return itertools.chain.from_iterable(map(work, run))


def blocks_in_runs(elements: Iterable[Element], *, job: Job, joined_bytes: int) -> Iterator[list[Element]]:
    """Yield all elements in lists (`in_runs`), with the blocks of small files joined."""
    if job.settings.dedup != "near":  # a sketch is of one file
        split_of_file = {} if job.settings.splits else staged_of(job).splits
        elements = parallel_files.joined(elements, file_groups=split_of_file, size=joined_bytes)
    return in_runs(elements)


def in_runs(elements: Iterable[Element]) -> Iterator[list[Element]]:
    """Yield all elements in order, in lists for one worker each.

    A list has some parts of one row group, or any other element alone, behind the files that are hashed already.
    """
    run = list[Element]()
    for group, group_elements in itertools.groupby(elements, key=_row_group):
        if group is not None:
            parts = list(group_elements)
            max_parts = max(1, min(len(parts) // RUNS_OF_GROUP, MOST_PARTS))
            yield from (parts[begin : begin + max_parts] for begin in range(0, len(parts), max_parts))
            continue
        for element in group_elements:
            run.append(element)
            if not isinstance(element, Hashed):
                yield run
                run = []
    if run:
        yield run


def _row_group(element: Element) -> tuple[RawFile, int] | None:
    """Return the row group that a block is a part of, None for any other element."""
    return (element.file, element.begin) if isinstance(element, Block) and element.format.kind == "parquet" else None


# What a process has loaded, by the work it is for: a worker serves one preparation, a test many. Beam's workers have
# several threads; those of one preparation share it.
_LOADED: dict[str, tuple[BlockTokenizer, BlockSorter]] = {}
_LOADING = threading.Lock()


def _loaded(work: PrepareBlock) -> tuple[BlockTokenizer, BlockSorter]:
    name = repr(work)
    with _LOADING:
        if name not in _LOADED:
            _LOADED.clear()
            _LOADED[name] = _load(work)
        return _LOADED[name]


def _load(work: PrepareBlock) -> tuple[BlockTokenizer, BlockSorter]:
    staged, settings = staged_of(work.job), work.job.settings
    task, tokenizer, cache = staged.task, staged.tokenizer, None
    leaks, earlier = staged.evaluation_sets, staged.earlier
    staged.bring_filter_files()
    if work.kept:
        code = token_cache.digest_of_code(staged.definition.code)
        code += "".join([*Chain(settings.filter).files().values(), *(leaks.digests().values() if leaks else ())])
        code += work.job.digest if earlier else ""
        key = token_cache.key(settings, tokenizer=tokenizer.sha256, code=code)
        cache = TokenCache(Path(work.kept), key=key, fresh=work.fresh)
    own_splits = {} if settings.splits else staged.splits
    sorter = BlockSorter(settings, task.task, tokenizer, files=staged.names, own_splits=own_splits)
    return BlockTokenizer(settings, task, tokenizer, cache=cache, leaks=leaks, earlier=earlier), sorter


def preload(work: PrepareBlock) -> None:
    """Load in this process what preparing a block needs."""
    _loaded(work)


# From spills to shards.


def plan_shards(*, blocks: BlockTotals, count: int | None, drawn: bool) -> list[ShardSpec]:
    """Return the shards of all blocks. Raises UsageError when there are more shards than examples."""
    return shards.plan_shards(blocks.records, blocks.record_bytes, shards=count, drawn=drawn)


def name_shards(*, specs: Sequence[ShardSpec]) -> Iterator[tuple[str, ShardSpec]]:
    """Yield each shard under its name, so that it is written even if nothing is in it."""
    for spec in specs:
        yield spec.name, spec


@dataclasses.dataclass(frozen=True)
class WriteShard:
    """Write a shard from its specification, its rows, and those that repeat another one.

    Rows that it leaves out wait on disk under `spool` ("": in memory).
    """

    job: Job
    out: str
    range_bytes: int = shards.RANGE_BYTES
    spool: str = ""

    def __call__(
        self, group: tuple[str, Iterable[ShardSpec | Piece | Stored[Spill]]], *, spills: Sequence[Spill] = ()
    ) -> Iterator[ShardTotals | Piece]:
        """Yield the totals of a shard, and the lines that it leaves out. Raises OutputError if the place cannot be written.

        The group has its ShardSpec, Pieces of Repeats, and Stored rows; `spills` have rows of all shards.
        """
        items = list(group[1])
        (spec,) = [item for item in items if isinstance(item, ShardSpec)]
        repeats = [Repeats(rows) for item in items if isinstance(item, Piece) for rows in tables(item.read())]
        with sorting.load_parts([item for item in items if isinstance(item, Stored)]) as parts:
            written = self.write(spec, [*spills, *parts], repeats)
        yield written.totals
        if self.spool and written.totals.duplicates:
            path = Path(self.spool) / "left-out" / f"{spec.name}.jsonl"
            with atomic_files.scratch(path) as temporary, open(temporary, "wb") as file:
                file.writelines(written.rejected)
            yield Piece((1, spec.name, 0), path=str(path), size=path.stat().st_size)
        else:
            yield from (Piece((1, spec.name, number), lines) for number, lines in enumerate(written.rejected))

    def cache_file(self, group: tuple[str, Iterable[Any]]) -> str:
        """Return the path of the shard of a group."""
        return paths.join(self.out, group[0])

    def write(self, spec: ShardSpec, spilled: Sequence[Spill], repeats: Sequence[Repeats]) -> WrittenShard:
        """Return the written shard. Raises OutputError if the place cannot be written."""
        settings, staged = self.job.settings, staged_of(self.job)
        task, tokenizer = staged.task, staged.tokenizer
        return shards.write(
            spec,
            spilled,
            files=staged.names,
            out=self.out,
            layout=records.layout_of(settings, task, tokenizer),
            frame=records.frame_of_rows(settings, task.task, pad_id=tokenizer.pad_id, separator=tokenizer.eos_id),
            several=task.task.several_answers,
            duplicate_key="text" if settings.dedup == "exact" else "id",
            repeats=repeats,
            # A packed row is made of neighbours in one range, so its bytes must not depend on memory.
            range_bytes=shards.RANGE_BYTES if settings.is_packed else self.range_bytes,
        )


# The search for near-duplicates: sketches → bands → links → groups of linked rows → repeats.


class EarlierShard(NamedTuple):
    """The name of a shard of an earlier dataset."""

    folder: str
    name: str

    @property
    def digest(self) -> str:
        """Return a name for what is made of the shard."""
        return digest(*self)


def earlier_shards(job: Job) -> Iterator[EarlierShard]:
    """Yield the shards of the earlier datasets that a job compares with. Raises DatasetError."""
    for data in job.settings.dedup_against:
        dataset = Dataset(data)
        for name in earlier_datasets.shards(dataset):
            yield EarlierShard(dataset.folder, name)


def sketch_shard(shard: EarlierShard, *, job: Job, spool: str) -> Iterator[Sketch]:
    """Yield the sketches of the records of an earlier dataset's shard, their bytes under `spool` (""). Raises DatasetError."""
    repeat_search = search.of_settings(job.settings)
    assert repeat_search is not None
    records = earlier_datasets.records(shard.folder, shard.name, staged_of(job).tokenizer)
    while batch := list(itertools.islice(records, ROWS_OF_SKETCH)):
        hashed = shingles([record.text for record in batch], words=job.settings.near_words)
        columns = {
            "row": [record.number for record in batch],
            "id": [record.id for record in batch],
            "split": [EARLIER] * len(batch),
            "high": np.zeros(len(batch), np.uint64),
            "low": np.zeros(len(batch), np.uint64),
            "shingles": pa.ListArray.from_arrays(pa.array(hashed.begins.astype(np.int32)), pa.array(hashed.hashes)),
        }
        table = pa.table([pa.array(column, ROWS.field(name).type) for name, column in columns.items()], schema=ROWS)
        name = f"{shard.folder.rstrip('/')}/{shard.name}"
        batch_sketch = sketch(table, file=name, first_row=batch[0].number, bands=repeat_search.bands)
        yield (
            batch_sketch.spooled(Path(spool) / "earlier" / f"{shard.digest}-{batch[0].number}.sketch")
            if spool
            else batch_sketch
        )


def plan_search(*, sketches: Sequence[Sketch | Stored[Sketch]], search: Search) -> Plan:
    """Return the plan of a search in some sketches; their bytes are not needed."""
    return search.plan([stored.about if isinstance(stored, Stored) else stored for stored in sketches])


def cut_bands(stored: Sketch | Stored[Sketch], *, plan: Plan) -> Iterator[tuple[int, Piece]]:
    """Yield a sketch's bands in each range of their values, under the number of the range; its file has them no more."""
    sketch = load(stored)
    for number, entries in plan.cut(sketch):
        yield number, Piece(data=entries)
    sketch.drop_bands()


def link_rows(group: tuple[int, Iterable[Piece]]) -> Iterator[tuple[int, Piece]]:
    """Yield the links between rows in one range of band values, all under one number."""
    pieces = list(group[1])
    max_links = shards.LARGEST_PIECE // np.dtype((np.uint64, 2)).itemsize

    def bands() -> Iterator[np.ndarray]:
        for part in itertools.chain.from_iterable(piece.parts(search.ENTRY.itemsize << 16) for piece in pieces):
            yield np.frombuffer(part, search.ENTRY)

    for links in search.links(bands, size=sum(map(len, pieces))):
        for begin in range(0, len(links), max_links):
            yield 0, Piece(data=links[begin : begin + max_links].tobytes())


def group_rows(group: tuple[int, Iterable[Piece]], *, plan: Plan, spool: str) -> Iterator[tuple[int, Piece]]:
    """Yield the rows of each sketch that are to be compared, each with its group, under the sketch's number.

    All links come together in this one step, which holds some of them at a time, and the rest under `spool` ("": where
    temporary files are).
    """
    parts = (part for piece in group[1] for part in piece.parts())
    links = (np.frombuffer(part, np.uint64).reshape(-1, 2) for part in parts)
    for number, placed in search.grouped(links, plan=plan, folder=spool):
        yield number, Piece(data=placed.tobytes())


def cut_rows(
    stored: Sketch | Stored[Sketch], *, plan: Plan, groups: Mapping[int, Iterable[Piece | Stored[Piece]]]
) -> Iterator[tuple[int, Piece]]:
    """Yield a sketch's rows that are to be compared, under the number of their group."""
    sketch = load(stored)
    placed = np.frombuffer(b"".join(piece.read() for piece in groups[plan.number(sketch)]), search.PLACED)
    placed = placed[np.lexsort((placed["place"], placed["group"]))]
    begins = np.flatnonzero(np.append(True, placed["group"][1:] != placed["group"][:-1])[: len(placed)])
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(placed)], strict=False):
        yield int(placed["group"][begin]), Piece(data=sketch.rows_of(placed["place"][begin:end]))


def find_repeats(group: tuple[int, Iterable[Piece]], *, search: Search, spool: str) -> Iterator[Repeats]:
    """Yield the repeats among the rows of a group, their rows in a file under `spool` where that is given."""
    repeats = search.find(rows for piece in group[1] for rows in tables(piece.mapped()))
    yield repeats.spooled(Path(spool) / "repeats" / f"{group[0]:08d}") if spool else repeats


def cut_repeats(part: Repeats, *, specs: Sequence[ShardSpec]) -> Iterator[tuple[str, Piece]]:
    """Yield the rows that each shard leaves out because they repeat another one, under the shard's name."""
    for split, split_shards in shards.of_splits(specs).items():
        for number, repeats in part.cut(split, len(split_shards)):
            yield split_shards[number].name, Piece(data=to_bytes(repeats.dropped))


def remove_pieces(group: tuple[Any, Iterable[Piece]], results: Sequence[Any]) -> None:
    """Remove the files of a group, which no other stage reads."""
    for path in {piece.path for piece in group[1] if piece.path}:
        Path(path).unlink(missing_ok=True)


# The files of rejected rows: finished JSON lines, each piece about (0, file, first row) or (1, shard, number).


class RejectedPart(NamedTuple):
    """The description of one file of rejected rows: its number, and how often each reason stands in it."""

    number: int
    file: RejectedFile
    reasons: dict[str, int]


def size_of(lines: Piece) -> Iterator[int]:
    """Yield the bytes of some lines."""
    yield len(lines)


def number_files(*, size: int) -> Iterator[tuple[int, None]]:
    """Yield the number of each file of rejected rows, so that it is written even if nothing is in it."""
    for number in range(rejected_rows.files_for(size)):
        yield number, None


def cut_lines(lines: Piece, *, size: int) -> Iterator[tuple[int, Piece]]:
    """Yield the lines of each file of rejected rows, under its number."""
    parts = rejected_rows.files_for(size)
    if parts == 1:
        yield 0, lines
        return
    for chunk in lines.lines():
        cut: dict[int, list[bytes]] = {}
        for line in chunk.splitlines(keepends=True):
            cut.setdefault(rejected_rows.part_of(line, parts=parts), []).append(line)
        for number, file_lines in cut.items():
            yield number, Piece(lines.about, b"".join(file_lines))


def write_rejected(group: tuple[int, Iterable[Piece | None]], *, size: int, out: str) -> Iterator[RejectedPart]:
    """Write one file of rejected rows, in order, and yield what was written. Raises OutputError."""
    number, parts = group[0], rejected_rows.files_for(size)
    ordered = sorted((piece for piece in group[1] if piece is not None), key=lambda piece: piece.about)
    name = rejected_rows.numbered(number, parts)
    different = rejected_rows.DIFFERENT_REASONS if parts == 1 else rejected_rows.DIFFERENT_REASONS // 16
    lines = itertools.chain.from_iterable(piece.lines() for piece in ordered)
    with paths.open_atomic(paths.join(out, name)) as file:
        written = rejected_rows.write_rejected(file, lines, name=name, different=different)
    yield RejectedPart(number, *written)

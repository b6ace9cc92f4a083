"""Define the steps of a preparation as functions of plain values, for workers of any executor; none imports Beam.

Further data of the workers (list of files, tokenizer, the user's task) are files beside the shards. A Beam graph that
contained them would grow with the corpus, and engines limit its size (10 MB on Dataflow).
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
from typing import NamedTuple, TypeAlias

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
from t5prep.json_values import JSON
from t5prep.preparation import earlier_datasets, evaluation_sets, records, row_limit, shards, token_cache
from t5prep.preparation.block_tokenizer import BlockTokenizer
from t5prep.preparation.earlier_datasets import EarlierTexts
from t5prep.preparation.evaluation_sets import Leaks
from t5prep.preparation.near_duplicates import clusters
from t5prep.preparation.near_duplicates.clusters import EARLIER, Plan, Repeats, Search
from t5prep.preparation.near_duplicates.sketches import ROWS, Sketch, shingles, sketch, tables, to_bytes
from t5prep.preparation.row_limit import LimitedFile
from t5prep.preparation.shards import ShardSpec, ShardTotals, WrittenShard
from t5prep.preparation.sort_blocks import BlockSorter, BlockTotals, SortedBlock
from t5prep.preparation.spills import Spill
from t5prep.preparation.token_cache import TokenCache
from t5prep.reading import blocks
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile, Resolved
from t5prep.tasks import registry
from t5prep.tasks.filters import rules
from t5prep.tasks.filters.chain import Chain
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask
from t5prep.tokens import loading
from t5prep.tokens.ragged import run_starts
from t5prep.tokens.tokenizer import Tokenizer

FILES, MODEL, TASK, LEAKS, FILTERS = "files.jsonl", "tokenizer.model", "task.py", "leaks.npz", "filters.json"
EARLIER_TEXTS = "earlier.npz"
# A worker decodes a Parquet row group from its beginning, so it prepares several parts of a group in order: an eighth
# of the group, so that all workers get some, but at most MOST_PARTS. See
# docs/decisions/024-decode-a-row-group-once.md
RUNS_OF_GROUP, MOST_PARTS = 8, 8


@dataclasses.dataclass(frozen=True)
class Job:
    """A preparation in the form that is sent to workers: its settings, and the folder with all other data.

    * `tokenizer`: its name as the user gave it.
    * `task_file`: the user's file that defines the task; "" for an installed task.
    * `digest`: the SHA-256 of the task's code and of all files in the folder.
    * `files`: the names of the files in the folder.
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
    """Write the data that workers need into `folder`, which all of them can read, and return the job. Raises OutputError.

    `against` are the texts of evaluation sets, `earlier` those of earlier datasets.
    """
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
    # The code of an installed task is no file in the folder, but decides the results, too.
    digest = hashlib.sha256(task.code)
    for name, content in job_files.items():
        paths.write(paths.join(folder, name), content)
        digest.update(content)
    return Job(settings, folder, tokenizer.name, task.file, digest.hexdigest(), tuple(job_files))


class Staged:
    """The files in a job's folder; each is loaded on first use."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def _read(self, name: str) -> bytes:
        """Return the content of a file in the folder, b"" if the job has no such file."""
        return paths.read(paths.join(self.job.folder, name)) if name in self.job.files else b""

    def source_files(self) -> Iterator[RawFile]:
        """Yield the files of the source, in order of their names."""
        yield from itertools.starmap(RawFile, self._files())

    @functools.cached_property
    def names(self) -> Sequence[str]:
        """The names of the source's files, in order."""
        return [str(name) for name, *_ in self._files()]

    @functools.cached_property
    def splits(self) -> Mapping[str, str]:
        """The split of each of the source's files that has one."""
        return {
            str(name): str(split) for name, *_, split in self._files() if split
        }  # RawFile's first field and its last

    def _files(self) -> list[list[JSON]]:
        """Return the fields of each RawFile, as `stage` wrote them."""
        # One parse of a JSON array takes less time than one parse for each line.
        return json.loads(b"[%b]" % b",".join(self._read(FILES).splitlines()))

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, with the name that the user gave it."""
        return loading.of_content(self._read(MODEL), name=self.job.tokenizer)

    @functools.cached_property
    def definition(self) -> Definition:
        """The definition of the task, from the user's file or from the tasks installed on this machine.

        Raises TaskError if this machine has no such task.
        """
        if self.job.task_file:
            return registry.from_code(self._read(TASK), file=self.job.task_file)
        try:
            return registry.get_installed(self.job.settings.task)
        except UsageError as error:
            raise TaskError(
                f"A worker has no task {self.job.settings.task}, because the package that offers the task is "
                "not installed there. Add the package after the other options: -- --extra_package=PACKAGE.whl",
                code="pipeline.missing-task",
            ) from error

    @functools.cached_property
    def task(self) -> ChosenTask:
        """The task with the user's options."""
        return self.definition.choose(self.job.settings.options)

    @functools.cached_property
    def evaluation_sets(self) -> Leaks | None:
        """The evaluation sets that no row may share a text with, or None if there are none."""
        content = self._read(LEAKS)
        return evaluation_sets.loads(content) if content else None

    @functools.cached_property
    def earlier(self) -> EarlierTexts | None:
        """The texts of earlier datasets that no row may repeat, or None if there are none."""
        content = self._read(EARLIER_TEXTS)
        return earlier_datasets.loads(content) if content else None

    def bring_filter_files(self) -> None:
        """Make the user's filter files available to filters on this machine."""
        if content := self._read(FILTERS):
            encoded_files = json.loads(content)
            rules.install({path: base64.b64decode(encoded) for path, encoded in encoded_files.items()})


# The data of the last job in this process: a worker serves one preparation, but tests run many.
_LAST: list[Staged] = []


def staged_of(job: Job) -> Staged:
    """Return the data in a job's folder, which a process loads once."""
    if not (_LAST and _LAST[0].job == job):
        _LAST[:] = [Staged(job)]
    return _LAST[0]


def limited_files(job: Job) -> Iterator[LimitedFile]:
    """Yield the files and pairs of files to read, each with its row limit."""
    staged = staged_of(job)
    yield from row_limit.limited_files(list(staged.source_files()), job.settings, staged.task)


def shared(source: Resolved, *, folder: str) -> Resolved:
    """Return the source with all files readable by a cloud's workers: local files are copied into `folder`.

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
        # After the copy, so that a change during copying is noticed.
        sources.check_unchanged(file)
        moved.append(dataclasses.replace(file, path=shared_paths[file.path], sha256=sha256, modified=0))
    return dataclasses.replace(source, files=tuple(moved))


def refuse_local(datasets: Sequence[str]) -> None:
    """Raise UsageError if a dataset is on this machine, because a cloud's workers cannot read it."""
    for data in datasets:
        if "://" not in data:
            raise UsageError(
                f"--dedup-against {data} is on this machine's disk, which Dataflow's workers cannot read. "
                f"Upload the dataset first: t5prep upload {data} gs://BUCKET/PREFIX",
                code="bucket.local-path",
            )


# Number of records of an earlier dataset in one sketch.
ROWS_OF_SKETCH = 4096


class Hashed(NamedTuple):
    """A source file with the SHA-256 of its bytes."""

    file: RawFile
    sha256: str


# From files to blocks, and from blocks to spills.

Element = Block | RawFile | Hashed


def file_name(file: LimitedFile) -> str:
    """Return the name of a file, or both names of a pair, joined by NUL."""
    return "\0".join(raw_file.name for raw_file in blocks.files(file.element))


def scan(file: LimitedFile, *, job: Job, block_bytes: int) -> Iterator[Element]:
    """Yield a file (or both of a pair) and then its blocks: the elements of PrepareBlock.

    A small file is read and hashed here, so that it is read only once. It is yielded as Hashed.
    """
    element, content = file.element, None
    if isinstance(element, RawFile) and (content := sources.content_of_small(element)) is not None:
        yield Hashed(element, element.sha256 or hashlib.sha256(content).hexdigest())
    else:
        yield from blocks.files(element)
    corpus = staged_of(job).definition.task.corpus
    yield from row_limit.scan(file, job.settings, corpus, block_bytes=block_bytes, content=content)


BlockPart: TypeAlias = "BlockTotals | Hashed | Piece | Spill | Sketch"


@dataclasses.dataclass(frozen=True)
class PrepareBlock:
    """Prepare a block into a sorted spill, or hash a source file. The object is pickled to workers, which load the tokenizer.

    * `cache_folder`: the folder of the token cache; "" for none.
    * `spool`: the folder for finished spills; "" leaves their bytes in memory, for executors that store them.
    * `fresh`: ignore tables that an earlier run cached.
    """

    job: Job
    cache_folder: str = ""
    spool: str = ""
    fresh: bool = False

    def __call__(self, element: Element) -> Iterator[BlockPart]:
        """Yield totals, rejected lines, spill and sketch of a block; or a file with its hash. Raises SourceError for a bad file."""
        if not isinstance(element, Block):
            yield element if isinstance(element, Hashed) else Hashed(element, sources.checksum(element))
            return
        block = self.sort(element)
        yield block.totals
        if block.rejected:
            yield Piece((0, block.file, block.first_row), block.rejected)
        path = Path(self.spool) / digest(block.file, block.first_row)
        if block.spill.records:
            # Spills are in one folder: few exist at once, because they are merged. Up to 256 folders took longer to
            # remove (docs/decisions/025-leave-many-spills.md).
            yield block.spill.spooled(path) if self.spool else block.spill
        if block.sketch:
            sketch_path = path.parent / path.name[:2] / f"{path.name}.sketch"
            yield block.sketch.spooled(sketch_path) if self.spool else block.sketch

    def sort(self, block: Block) -> SortedBlock:
        """Return the tokenized and sorted rows of a block. Raises SourceError."""
        tokenize, sort = _loaded(self)
        tokenized = tokenize(block)
        sorted_block = sort(tokenized.table, block)
        sorted_block.totals.cached_blocks = int(tokenized.is_cached)
        return sorted_block

    def cache_name(self, element: Element) -> str:
        """Return the name under which the results of an element are cached; "" for a Hashed, which is its own result."""
        if isinstance(element, Block):
            return digest(element.file.name, element.first_row, element.rows)
        return "" if isinstance(element, Hashed) else digest("sha256", element.name)


def digest(*parts: object) -> str:
    """Return a name, made of a hash of `parts`, for the result of an element that these parts identify.

    >>> len(digest("train.csv", 0))
    32
    """
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def prepare_run(run: Iterable[Element], *, work: PrepareBlock) -> Iterator[BlockPart]:
    """Yield the results of each element of a run."""
    return itertools.chain.from_iterable(map(work, run))


def blocks_in_runs(elements: Iterable[Element], *, job: Job, joined_bytes: int) -> Iterator[list[Element]]:
    """Yield all elements in lists (`in_runs`), with the blocks of small files joined."""
    if job.settings.dedup != "near":  # a sketch belongs to one file
        split_of_file = {} if job.settings.splits else staged_of(job).splits
        elements = blocks.joined(elements, file_groups=split_of_file, size=joined_bytes)
    return in_runs(elements)


def in_runs(elements: Iterable[Element]) -> Iterator[list[Element]]:
    """Yield all elements in order, in lists that one worker processes.

    A list has several parts of one row group, or one other element, preceded by files that are hashed already.
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
    """Return the row group that a Parquet block belongs to, as (file, begin); None for any other element."""
    return (element.file, element.begin) if isinstance(element, Block) and element.format.kind == "parquet" else None


# The loaded tokenizer and sorter of this process, keyed by their work: a worker serves one preparation, but tests run
# many. Beam's workers have several threads, which share them.
_LOADED: dict[str, tuple[BlockTokenizer, BlockSorter]] = {}
_LOADING = threading.Lock()


def _loaded(work: PrepareBlock) -> tuple[BlockTokenizer, BlockSorter]:
    """Return the tokenizer and the sorter of blocks, loaded once for all threads."""
    name = repr(work)
    with _LOADING:
        if name not in _LOADED:
            _LOADED.clear()
            _LOADED[name] = _load(work)
        return _LOADED[name]


def _load(work: PrepareBlock) -> tuple[BlockTokenizer, BlockSorter]:
    """Return a new tokenizer and a new sorter of blocks."""
    staged, settings = staged_of(work.job), work.job.settings
    task, tokenizer, cache = staged.task, staged.tokenizer, None
    leaks, earlier = staged.evaluation_sets, staged.earlier
    staged.bring_filter_files()
    if work.cache_folder:
        # The key of the token cache has everything that decides tokens, so another seed or split reuses them.
        code = token_cache.digest_of_code(staged.definition.code)
        code += "".join([*Chain(settings.filter).files().values(), *(leaks.digests().values() if leaks else ())])
        code += work.job.digest if earlier else ""
        key = token_cache.key(settings, tokenizer=tokenizer.sha256, code=code)
        cache = TokenCache(Path(work.cache_folder), key=key, fresh=work.fresh)
    own_splits = {} if settings.splits else staged.splits
    sorter = BlockSorter(settings, task.task, tokenizer, files=staged.names, own_splits=own_splits)
    return BlockTokenizer(settings, task, tokenizer, cache=cache, leaks=leaks, earlier=earlier), sorter


def preload(work: PrepareBlock) -> None:
    """Load the tokenizer and sorter that preparing a block needs."""
    _loaded(work)


# From spills to shards.


def plan_shards(*, blocks: BlockTotals, count: int | None, drawn_by_id: bool) -> list[ShardSpec]:
    """Return the plan of all shards. Raises UsageError if there are more shards (`count`) than examples.

    `drawn_by_id`: the split of a record is drawn_by_id by its id.
    """
    return shards.plan_shards(blocks.records, blocks.record_bytes, shards=count, drawn_by_id=drawn_by_id)


def name_shards(*, specs: Sequence[ShardSpec]) -> Iterator[tuple[str, ShardSpec]]:
    """Yield each shard's plan with its name, so that a shard without rows is written, too."""
    for spec in specs:
        yield spec.name, spec


ShardItem: TypeAlias = "ShardSpec | Piece | Spill | Stored[Spill]"


@dataclasses.dataclass(frozen=True)
class WriteShard:
    """Write a shard from its plan, its rows, and the rows that repeat another one.

    `range_bytes` is the size of the ranges that are merged in memory. Lines of duplicates wait in files under `spool`
    ("": in memory).
    """

    job: Job
    out: str
    range_bytes: int = shards.RANGE_BYTES
    spool: str = ""

    def __call__(
        self, group: tuple[str, Iterable[ShardItem]], *, spills: Sequence[Spill] = ()
    ) -> Iterator[ShardTotals | Piece]:
        """Yield the totals of a shard, and the rejected lines of its duplicates. Raises OutputError if `out` cannot be written.

        `group` has the shard's name and its items: one ShardSpec, Pieces of Repeats, and Stored rows. `spills` have
        rows of all shards.
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

    def cache_file(self, group: tuple[str, Iterable[object]]) -> str:
        """Return the path of the shard that a group belongs to."""
        return paths.join(self.out, group[0])

    def write(self, spec: ShardSpec, spilled: Sequence[Spill], repeats: Sequence[Repeats]) -> WrittenShard:
        """Write a shard and return its totals and rejected lines. Raises OutputError if `out` cannot be written."""
        settings, staged = self.job.settings, staged_of(self.job)
        task, tokenizer = staged.task, staged.tokenizer
        return shards.write(
            spec,
            spilled,
            files=staged.names,
            out=self.out,
            layout=records.layout_of(settings, task, tokenizer),
            record_format=records.format_of_rows(
                settings, task.task, pad_id=tokenizer.pad_id, separator=tokenizer.eos_id
            ),
            several=task.task.several_answers,
            duplicate_key="text" if settings.dedup == "exact" else "id",
            repeats=repeats,
            # A packed record holds neighbours of one range. A range that depended on the memory budget would change
            # the bytes.
            range_bytes=shards.RANGE_BYTES if settings.is_packed else self.range_bytes,
        )


# The search for near-duplicates: sketches → bands → links → groups of linked rows → repeats.


class EarlierShard(NamedTuple):
    """A shard of an earlier dataset: its dataset's folder and its name."""

    folder: str
    name: str

    @property
    def digest(self) -> str:
        """The name for results of this shard."""
        return digest(*self)


def earlier_shards(job: Job) -> Iterator[EarlierShard]:
    """Yield the shards of the earlier datasets that rows are compared with. Raises DatasetError."""
    for data in job.settings.dedup_against:
        dataset = Dataset(data)
        for name in earlier_datasets.shards(dataset):
            yield EarlierShard(dataset.folder, name)


def sketch_shard(shard: EarlierShard, *, job: Job, spool: str) -> Iterator[Sketch]:
    """Yield sketches of the records of an earlier shard, with bytes in `spool` ("": in memory). Raises DatasetError."""
    repeat_search = clusters.of_settings(job.settings)
    assert repeat_search is not None
    records = earlier_datasets.records(shard.folder, shard.name, staged_of(job).tokenizer)
    while batch := list(itertools.islice(records, ROWS_OF_SKETCH)):
        hashed = shingles([record.text for record in batch], words=job.settings.near_words)
        # Rows of earlier datasets are never dropped, so no shard looks up their positions: these are 0.
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
    """Return the plan of a search in some sketches. Their bytes are not needed."""
    return search.plan([stored.about if isinstance(stored, Stored) else stored for stored in sketches])


def cut_bands(stored: Sketch | Stored[Sketch], *, plan: Plan) -> Iterator[tuple[int, Piece]]:
    """Yield the bands of a sketch by range of their values, as (number of the range, bands). Bands are removed from its file."""
    sketch = load(stored)
    for number, entries in plan.cut(sketch):
        yield number, Piece(data=entries)
    sketch.drop_bands()


def link_rows(group: tuple[int, Iterable[Piece]]) -> Iterator[tuple[int, Piece]]:
    """Yield links between rows that share a band in one range of values. All links have the key 0."""
    pieces = list(group[1])
    max_links = shards.LARGEST_PIECE // np.dtype((np.uint64, 2)).itemsize

    def bands() -> Iterator[np.ndarray]:
        for part in itertools.chain.from_iterable(piece.parts(clusters.ENTRY.itemsize << 16) for piece in pieces):
            yield np.frombuffer(part, clusters.ENTRY)

    for links in clusters.links(bands, size=sum(map(len, pieces))):
        for begin in range(0, len(links), max_links):
            yield 0, Piece(data=links[begin : begin + max_links].tobytes())


def group_rows(group: tuple[int, Iterable[Piece]], *, plan: Plan, spool: str) -> Iterator[tuple[int, Piece]]:
    """Yield the rows of each sketch that need a comparison, with their groups, as (number of the sketch, rows).

    All links arrive in this one step, because only then their connected components are known. It holds some links in
    memory, and the others in `spool` ("": the folder for temporary files).
    """
    parts = (part for piece in group[1] for part in piece.parts())
    links = (np.frombuffer(part, np.uint64).reshape(-1, 2) for part in parts)
    for number, placed in clusters.grouped(links, plan=plan, folder=spool):
        yield number, Piece(data=placed.tobytes())


def cut_rows(
    stored: Sketch | Stored[Sketch], *, plan: Plan, groups: Mapping[int, Iterable[Piece | Stored[Piece]]]
) -> Iterator[tuple[int, Piece]]:
    """Yield the rows of a sketch that need a comparison, as (number of their group, rows)."""
    sketch = load(stored)
    placed = np.frombuffer(b"".join(piece.read() for piece in groups[plan.number(sketch)]), clusters.PLACED)
    placed = placed[np.lexsort((placed["place"], placed["group"]))]
    begins = run_starts(placed["group"])
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(placed)], strict=False):
        yield int(placed["group"][begin]), Piece(data=sketch.rows_of(placed["place"][begin:end]))


def find_repeats(group: tuple[int, Iterable[Piece]], *, search: Search, spool: str) -> Iterator[Repeats]:
    """Yield the rows of a group that repeat another row; in a file under `spool`, unless it is ""."""
    repeats = search.find(rows for piece in group[1] for rows in tables(piece.mapped()))
    yield repeats.spooled(Path(spool) / "repeats" / f"{group[0]:08d}") if spool else repeats


def cut_repeats(part: Repeats, *, specs: Sequence[ShardSpec]) -> Iterator[tuple[str, Piece]]:
    """Yield the rows that each shard drops because they repeat another row, as (shard name, rows)."""
    for split, split_shards in shards.of_splits(specs).items():
        for number, repeats in part.cut(split, len(split_shards)):
            yield split_shards[number].name, Piece(data=to_bytes(repeats.dropped))


def remove_pieces(group: tuple[int, Iterable[Piece]], results: Sequence[object]) -> None:
    """Remove the files of a group, because only one stage reads them."""
    for path in {piece.path for piece in group[1] if piece.path}:
        Path(path).unlink(missing_ok=True)


# Rejected rows are JSON lines. `about` of a piece is (0, file, first row) for rows of a block, and (1, shard, number)
# for duplicates.


class RejectedPart(NamedTuple):
    """One file of rejected rows: its number, its description for the manifest, and the count of each reason."""

    number: int
    file: RejectedFile
    reasons: dict[str, int]


def size_of(lines: Piece) -> Iterator[int]:
    """Yield the number of bytes of some lines."""
    yield len(lines)


def number_files(*, size: int) -> Iterator[tuple[int, None]]:
    """Yield (number, None) for each file of rejected rows, so that a file without rows is written, too."""
    for number in range(rejected_rows.files_for(size)):
        yield number, None


def cut_lines(lines: Piece, *, size: int) -> Iterator[tuple[int, Piece]]:
    """Yield the lines of each file of rejected rows, as (number of the file, lines)."""
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
    """Write one file of rejected rows, in order, and yield its description. Raises OutputError."""
    number, parts = group[0], rejected_rows.files_for(size)
    ordered = sorted((piece for piece in group[1] if piece is not None), key=lambda piece: piece.about)
    name = rejected_rows.numbered(number, parts)
    different = rejected_rows.DIFFERENT_REASONS if parts == 1 else rejected_rows.DIFFERENT_REASONS // 16
    lines = itertools.chain.from_iterable(piece.lines() for piece in ordered)
    with paths.open_atomic(paths.join(out, name)) as file:
        written = rejected_rows.write_rejected(file, lines, name=name, different=different)
    yield RejectedPart(number, *written)

"""Do one worker's work on one element: plain callables that never import Beam, loaded once a process."""

import dataclasses
import hashlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines import staging
from pipelines.staging import Job
from t5prep import sources
from t5prep.io import atomic_files
from t5prep.prepare import code_digest, record_layouts, row_limit, shard_writer, sorted_runs, token_cache
from t5prep.prepare.block_sorter import BlockSorter, SortedSpill
from t5prep.prepare.block_tokenizer import BlockTokenizer
from t5prep.prepare.filters.chain import Chain
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.row_limit import LimitedFile
from t5prep.prepare.shard_writer import ShardSpec, WrittenShard
from t5prep.prepare.sorted_runs import Run
from t5prep.prepare.token_cache import TokenCache
from t5prep.reading import parallel_files, split_files
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile

# Inside the scratch folder: where the sorted runs are.
RUNS = "runs.json"


class Hashed(NamedTuple):
    """Hold a source file with the SHA-256 of its bytes."""

    file: RawFile
    sha256: str


def scan(file: LimitedFile, *, job: Job, block_bytes: int) -> Iterator[RawFile | Block]:
    """Yield a file, or both of a pair, and their blocks: what PrepareBlock is applied to."""
    corpus = staging.definition(job).task.corpus
    yield from parallel_files.files(file.element)
    yield from row_limit.scan(file, job.settings, corpus, block_bytes=block_bytes)


@dataclasses.dataclass(frozen=True)
class PrepareBlock:
    """Make a spill of a block, or hash a source file. This is pickled to workers; the tokenizer is loaded there.

    `kept` is where tokenized tables stay for the next run (`fresh`: none of an earlier run is used), `spool` where
    finished spills wait on disk ("" keeps them in memory, for runners that have their own shuffle).
    """

    job: Job
    kept: str = ""
    spool: str = ""
    fresh: bool = False

    def __call__(self, element: Block | RawFile) -> SortedSpill | Hashed:
        """Return the spill or the hash. Raises SourceError for a bad file; bad rows are in the spill."""
        if isinstance(element, RawFile):
            return Hashed(element, element.sha256 or hash_file(element))
        tokenize, sort = _loaded(self)
        tokenized = tokenize(element)
        spill = dataclasses.replace(sort(tokenized.table, element), found=tokenized.found)
        if not self.spool:
            return spill
        name = hashlib.blake2b(f"{spill.file}\0{spill.first_row}".encode(), digest_size=12).hexdigest()
        path = Path(self.spool) / name[:2] / name
        atomic_files.write_scratch(path, spill.data)
        sketch = spill.sketch and spill.sketch.spooled(path.with_suffix(".sketch"))
        return dataclasses.replace(spill, data=b"", path=str(path), sketch=sketch)


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
    job, settings = work.job, work.job.settings
    task, tokenizer, cache = staging.task(job), staging.tokenizer(job), None
    leaks, earlier = staging.evaluation_sets(job), staging.earlier(job)
    staging.bring_filter_files(job)
    if work.kept:
        filters = Chain(settings.filter)
        code = code_digest.kept_of_task(Path(work.kept), staging.definition(job).code, *filters.modules)
        code += "".join([*filters.files().values(), *(leaks.digests().values() if leaks else ())])
        code += job.digest if earlier else ""
        key = token_cache.key(settings, tokenizer=tokenizer.sha256, code=code)
        cache = TokenCache(Path(work.kept), key=key, fresh=work.fresh)
    names = staging.names(job)
    own_splits = {} if settings.splits else split_files.of_files(names)
    special = {"pad_id": tokenizer.pad_id, "unk_id": tokenizer.unk_id, "separator": tokenizer.eos_id}
    sorter = BlockSorter(settings, task.task, files=names, own_splits=own_splits, **special)
    return BlockTokenizer(settings, task, tokenizer, cache=cache, leaks=leaks, earlier=earlier), sorter


@dataclasses.dataclass(frozen=True)
class WriteShard:
    """Write a shard from its specification, sorted runs, and the rows that repeat another one.

    With a `spool` the runs are those that `sorted_runs.save` named there, and rows that were left out are written there.
    """

    job: Job
    out: str
    range_bytes: int = shard_writer.RANGE_BYTES
    spool: str = ""

    def __call__(self, element: tuple[ShardSpec, Sequence[Run], Sequence[Repeats]]) -> WrittenShard:
        """Return the written shard. Raises OutputError where the place cannot be written."""
        spec, runs, repeats = element
        settings, task = self.job.settings, staging.task(self.job)
        written = shard_writer.write(
            spec,
            sorted_runs.load(Path(self.spool) / RUNS) if self.spool else runs,
            files=staging.names(self.job),
            out=self.out,
            arrange=record_layouts.choose(settings, task, staging.tokenizer(self.job)),
            several=task.task.several_answers,
            same="text" if settings.dedup == "exact" else "id",
            repeats=repeats,
            # A packed row is made of neighbours in one range, so its bytes must not depend on memory.
            range_bytes=shard_writer.RANGE_BYTES if settings.layout == "packed" else self.range_bytes,
        )
        if not (self.spool and written.rejected):
            return written
        atomic_files.write_scratch(left_out_path(self.spool, spec.name), written.rejected)
        return written._replace(rejected=b"")


def left_out_path(spool: str, shard: str) -> Path:
    """Return where the rows that a shard left out are written."""
    return Path(spool) / "left-out" / f"{shard}.jsonl"


def hash_file(file: RawFile) -> str:
    """Return the SHA-256 (hex) of a source file's bytes (of a zip's member, not of the zip for each of its members).

    For a file that is not on this machine, return what its publisher says of it.
    """
    return file.checksum if "://" in file.path else sources.sha256(file)


def preload(work: PrepareBlock) -> None:
    """Load in this process what preparing a block needs."""
    _loaded(work)

"""Do one worker's work on one element: plain callables that never import Beam, loaded once a process."""

import collections
import dataclasses
import hashlib
import itertools
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines import staging
from pipelines.staging import Job
from t5prep import sources
from t5prep.dataset import balance, block_index, manifest
from t5prep.dataset.block_index import Index
from t5prep.dataset.manifest import Manifest
from t5prep.errors import SourceError
from t5prep.io import atomic_files, paths
from t5prep.prepare import build_manifest, code_digest, record_layouts, row_limit, shard_writer, token_cache
from t5prep.prepare.block_sorter import BlockSorter, SortedSpill
from t5prep.prepare.block_tokenizer import BlockTokenizer
from t5prep.prepare.filters.chain import Chain
from t5prep.prepare.near_duplicates.repeats import Repeats, merged
from t5prep.prepare.row_limit import LimitedFile
from t5prep.prepare.shard_writer import ShardSpec, WrittenShard
from t5prep.prepare.token_cache import TokenCache
from t5prep.reading import parallel_files, split_files
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile, Resolved


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
        if spill.rejected:
            atomic_files.write_scratch(path.with_suffix(".rejected"), spill.rejected)
        sketch = spill.sketch and spill.sketch.spooled(path.with_suffix(".sketch"))
        return dataclasses.replace(spill, data=b"", rejected=b"", path=str(path), sketch=sketch)


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
    leaks = staging.evaluation_sets(job)
    if work.kept:
        filters = Chain(settings.filter)
        code = code_digest.of_task(staging.definition(job).code, *filters.modules)
        code += "".join([*filters.files().values(), *(leaks.digests().values() if leaks else ())])
        key = token_cache.key(settings, tokenizer=tokenizer.sha256, code=code)
        cache = TokenCache(Path(work.kept), key=key, fresh=work.fresh)
    own_splits = {} if settings.splits else split_files.of_files([file.name for file in staging.files(job)])
    sorter = BlockSorter(settings, task.task, own_splits=own_splits, pad_id=tokenizer.pad_id, unk_id=tokenizer.unk_id)
    return BlockTokenizer(settings, task, tokenizer, cache=cache, leaks=leaks), sorter


@dataclasses.dataclass(frozen=True)
class WriteShard:
    """Write a shard from its specification, all spills, and the rows that repeat another one."""

    job: Job
    out: str
    range_bytes: int = shard_writer.RANGE_BYTES

    def __call__(self, element: tuple[ShardSpec, list[SortedSpill], list[Repeats]]) -> WrittenShard:
        """Return the written shard. Raises OutputError where the place cannot be written."""
        spec, spills, repeats = element
        task = staging.task(self.job)
        arrange = record_layouts.choose(self.job.settings, task, staging.tokenizer(self.job))
        several = task.task.several_answers
        same = "text" if self.job.settings.dedup == "exact" else "id"
        return shard_writer.write(
            spec,
            spills,
            out=self.out,
            arrange=arrange,
            several=several,
            same=same,
            repeats=repeats,
            range_bytes=self.range_bytes,
        )


def rejected_lines(spill: SortedSpill) -> bytes:
    """Return the JSON lines of a spill's rejected rows, from memory or from its file."""
    if spill.path and spill.reasons:
        with atomic_files.open_scratch(Path(spill.path).with_suffix(".rejected")) as file:
            return file.read()
    return spill.rejected


def hash_file(file: RawFile) -> str:
    """Return the SHA-256 (hex) of a source file's bytes (of a zip's member, not of the zip for each of its members).

    For a file that is not on this machine, return what its publisher says of it.
    """
    return file.checksum if "://" in file.path else sources.sha256(file)


def write_index(written: Iterable[WrittenShard], out: str) -> Index:
    """Write the index of all shards, and return what the manifest says of it. Raises OutputError."""
    ordered = sorted(written, key=lambda part: (part.spec.split, part.spec.number))
    every = {part.spec.split: part.spec.every for part in ordered}
    return block_index.write(out, (part.blocks for part in ordered), every=every)


def no_example(spills: list[SortedSpill], *, place: str) -> str:
    """Return why there is no example at all, as a sentence; `place` is where the rejected rows are."""
    rows, blank = sum(spill.rows for spill in spills), sum(spill.blank for spill in spills)
    reasons = sum((collections.Counter(spill.reasons) for spill in spills), collections.Counter[str]())
    if rows == blank:
        return f"the source has no rows{f' but {blank:,} blank ones' if blank else ''}."
    why = ", ".join(f"{reason} {number:,}" for reason, number in sorted(reasons.items()))
    blanks = f", {blank:,} of them blank" if blank else ""
    return (
        f"no example could be made: {rows:,} rows read{blanks}, all rejected ({why}). Each row's reason is in {place}"
    )


def source_files(hashed: list[Hashed]) -> list[manifest.SourceFile]:
    """Return what the manifest says of the source's files, in the order of their names."""
    return sorted(
        (manifest.SourceFile(file.name, file.bytes, sha256) for file, sha256 in hashed), key=lambda file: file.name
    )


def preload(work: PrepareBlock) -> None:
    """Load in this process what preparing a block needs."""
    _loaded(work)


@dataclasses.dataclass(frozen=True)
class Finish:
    """Write rejected.jsonl and the index, and then the manifest that makes a directory of shards a dataset.

    `source` is without its files: those that were hashed are listed.
    """

    job: Job
    source: Resolved
    out: str

    def __call__(
        self,
        _: None,
        *,
        written: list[WrittenShard],
        spills: list[SortedSpill],
        hashed: list[Hashed],
        repeats: list[Repeats],
    ) -> Manifest:
        """Return the manifest. Raises OutputError where the place cannot be written, SourceError where no row made an example."""
        place = paths.at(self.out, manifest.REJECTED)
        with paths.whole(place) as file:
            lines = itertools.chain(
                (rejected_lines(spill) for spill in sorted(spills, key=lambda spill: (spill.file, spill.first_row))),
                (item.rejected for item in sorted(written, key=lambda item: item.spec.name)),
            )
            rejected, reasons = balance.write_rejected(file, lines, name=manifest.REJECTED)
        for hashed_file in hashed:
            sources.check_unchanged(hashed_file.file)
        if not any(spill.records for spill in spills):
            raise SourceError(no_example(spills, place=place))
        task = staging.task(self.job)
        dataset = build_manifest.assemble(
            self.job.settings,
            task,
            facts=build_manifest.task_facts(staging.definition(self.job), task),
            source=self.source,
            files=source_files(hashed),
            tokenizer=staging.tokenizer(self.job),
            written=written,
            spills=spills,
            rejected_file=rejected,
            leaks=staging.evaluation_sets(self.job),
            rejected_for=reasons,
            index=write_index(written, self.out),
            repeats=merged(repeats) if self.job.settings.dedup == "near" else None,
        )
        paths.write(paths.at(self.out, manifest.NAME), dataset.dumps().encode())
        return dataset

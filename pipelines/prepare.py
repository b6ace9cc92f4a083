"""Prepare a corpus from source files to shards and their manifest, by this machine's processes or by a Beam pipeline."""

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines import engines, estimates, pool, stages, staging
from pipelines.estimates import Price
from pipelines.finish import Finish
from pipelines.local import Local, LocalProgress
from pipelines.steps import PrepareBlock, WriteShard, preload
from t5prep.dataset import manifest
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.io import byte_sizes, paths
from t5prep.prepare import (
    earlier_records,
    earlier_texts,
    evaluation_leaks,
    evaluation_sets,
    memory_budget,
    output_folder,
    overwriting,
    source_check,
    spill_pieces,
    split_counts,
    task_settings,
)
from t5prep.prepare.earlier_texts import EarlierTexts
from t5prep.prepare.memory_budget import Budget
from t5prep.sources import Resolved
from t5prep.tasks import registry
from t5prep.tasks.registry import Definition
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer

# Bytes of a source that one process prepares in less than the second in which others start (about 5 MB a second).
SMALL = 4 << 20


def prepare(
    settings: Settings,
    *,
    source: Resolved,
    tokenizer: str,
    out: Path | str,
    runner: str = "local",
    arguments: Sequence[str] = (),
    workers: int | None = None,
    memory: int | None = None,
    kept: Path | None = None,
    fresh: bool = False,
    overwrite: bool = False,
    price: Price | None = None,
    task: Definition | None = None,
) -> manifest.Manifest:
    """Prepare a resolved source into a directory and return the manifest that was written last.

    `runner` is a name of engines.RUNNERS, `arguments` are Beam's own options for it. Locally, `workers` are processes
    (0: this process does the work; by default all cores, and 0 for a small source), `memory` is what they may use
    together (bytes, 2 GiB by default), and `kept` is a directory where tokenized blocks stay for the next run; `fresh`
    uses none of an earlier one. `overwrite` replaces another dataset when the new one is whole. `price` is what an
    engine costs, for the line that is printed before it begins. `task` is the definition of a task that is not
    installed. Raises T5prepError, one sentence, for anything that the user can mend.
    """
    pool.exit_if_respawned_script()
    out = str(out)
    engines.require(runner, arguments=arguments, out=out)
    if workers is not None and workers < 0:
        raise UsageError(f"--workers {workers}: it is at least 0, which is this process alone")
    loaded = loading.load(tokenizer)
    task = task or registry.get(settings.task)
    settings, source = _completed(settings, task, source=source, tokenizer=loaded)
    if loaded.slow:
        print(f"SentencePiece tokenizes, more slowly, to the same bytes: {loaded.slow}", file=sys.stderr)
    if runner == "dataflow" and settings.dedup == "near":
        staging.refuse_local(settings.dedup_against)
    against = _compared(settings, loaded)
    output_folder.refuse_inside(out, source=source.uri)
    same = _identity(settings, task, source, loaded)
    with overwriting.claimed(out, same=same, overwrite=overwrite) as out:
        folder = paths.at(out, output_folder.SPOOL)
        if runner == "dataflow":
            source = staging.shared(source, folder=folder)
        aside: dict[str, Any] = {"against": against.leaks, "earlier": against.earlier}
        job = staging.stage(settings, task=task, source=source, tokenizer=loaded, folder=folder, **aside)
        finish = Finish(job, dataclasses.replace(source, files=()), out, against.digests)
        if runner == "local":
            _run_here(finish, source=source, kept=kept, fresh=fresh, workers=workers, memory=memory)
        else:
            work = PrepareBlock(job)
            if price or runner != "prism":
                print(f"{runner}: {estimates.estimate(work, source=source).line(price)}", file=sys.stderr)
            size = sum(file.bytes for file in source.files)
            _run(runner, work=work, finish=finish, arguments=arguments, workers=workers, source_bytes=size)
        return manifest.load(out)


def _completed(
    settings: Settings, task: Definition, *, source: Resolved, tokenizer: Tokenizer
) -> tuple[Settings, Resolved]:
    """Return the settings with all that follows from task, source and tokenizer, and the source's files with rows.

    Raises UsageError where they do not go together.
    """
    chosen = task.choose(settings.options)
    settings = task_settings.complete(settings, chosen)
    source = source_check.without_documents(source, kind=settings.format or chosen.task.corpus.format)
    settings = source_check.with_label_names(settings, source=source)
    chosen = task.choose(settings.options)
    settings = task_settings.with_tokenizer(settings, chosen, tokenizer)
    source_check.check(settings, chosen, source=source, tokenizer=tokenizer)
    return split_counts.resolved(settings, chosen, source=source), source


class _Compared(NamedTuple):
    """Hold what rows are compared with: evaluation sets, the texts of earlier datasets, and those datasets' digests."""

    leaks: evaluation_leaks.Leaks | None
    earlier: EarlierTexts | None
    digests: dict[str, str]


def _compared(settings: Settings, tokenizer: Tokenizer) -> _Compared:
    """Read what the settings compare rows with. Raises UsageError for a dataset that cannot be compared with."""
    leaks = texts = None
    if settings.decontaminate:
        sets = {name: evaluation_sets.texts(name) for name in settings.decontaminate}
        leaks = evaluation_leaks.collect(sets, words=settings.decontaminate_words)
    datasets = {data: earlier_records.open_dataset(data, settings, tokenizer) for data in settings.dedup_against}
    earlier = {data: earlier_records.all_of(data, dataset, tokenizer) for data, dataset in datasets.items()}
    if earlier and settings.dedup == "exact":
        texts = earlier_texts.collect(earlier)
    return _Compared(leaks, texts, {data: dataset.digest for data, dataset in datasets.items()})


def _run_here(
    finish: Finish, *, source: Resolved, kept: Path | None, fresh: bool, workers: int | None, memory: int | None
) -> None:
    """Run a staged job on this machine, within a budget of memory and after a look at the disk."""
    count = _workers_for(source) if workers is None else workers
    default = byte_sizes.parse(memory_budget.DEFAULT, name="--memory")
    shared = memory_budget.share(default if memory is None else memory, workers=count)
    with output_folder.scratch(finish.out) as scratch:
        work = PrepareBlock(finish.job, str(kept or ""), scratch, fresh)
        estimates.check_disk(work, source=source, out=finish.out)
        with engines.explained("local", out=finish.out), _pool(work, source=source, workers=shared.workers) as name:
            write = WriteShard(finish.job, finish.out, shared.range_bytes)
            stages.run(Local(name, scratch), work, write, finish, block_bytes=shared.block_bytes)


def _workers_for(source: Resolved) -> int:
    """Return how many processes prepare this source: none where they would take longer to start than the work takes."""
    return 0 if sum(file.bytes for file in source.files) < SMALL else os.cpu_count() or 1


def _run(
    runner: str,
    *,
    work: PrepareBlock,
    finish: Finish,
    shared: Budget = memory_budget.LARGEST,
    arguments: Sequence[str] = (),
    workers: int | None = None,
    source_bytes: int = 0,
) -> None:
    """Run the pipeline on an engine."""
    import apache_beam as beam

    engine = engines.engine(runner, arguments=arguments, workers=workers)
    with engines.explained(runner, out=finish.out), engines.running(engine):
        pipeline = beam.Pipeline(runner=engine.runner, options=engine.options)
        wired(pipeline, work=work, finish=finish, shared=shared, source_bytes=source_bytes)
        pipeline.run().wait_until_finish()


def wired(
    pipeline: Any,
    *,
    work: PrepareBlock,
    finish: Finish,
    shared: Budget = memory_budget.LARGEST,
    source_bytes: int = 0,
) -> Any:
    """Return the pipeline with all its steps added, for workers that share neither memory nor disk.

    `source_bytes` decides how records travel between them.
    """
    from pipelines.graph import Graph

    executor = Graph(pipeline, spill_pieces.for_source(source_bytes))
    write = WriteShard(work.job, finish.out, shared.range_bytes)
    stages.run(executor, work, write, finish, block_bytes=shared.block_bytes)
    return pipeline


@contextlib.contextmanager
def _pool(work: PrepareBlock, *, source: Resolved, workers: int) -> Iterator[str]:
    """Yield the name of a pool of processes on this machine that shows how far it is ("" where there is none)."""
    if not workers:
        yield ""
        return
    watch = LocalProgress(work, total=sum(file.bytes for file in source.files))
    local = pool.Pool(workers, warm=functools.partial(preload, work))
    local.done = watch
    try:
        yield local.name
    finally:
        local.close()
        watch.close()


def _identity(settings: Settings, task: Definition, source: Resolved, tokenizer: Tokenizer) -> output_folder.Identity:
    """Return the identity of the dataset that these would make."""
    files = sorted((file.name, file.bytes) for file in source.files)
    return output_folder.Identity(settings, tokenizer.sha256, task.sha256 if task.file else "", files)

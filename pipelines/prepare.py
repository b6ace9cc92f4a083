"""Prepare a corpus from source files to shards and their manifest, by this machine's processes or by a Beam pipeline."""

import contextlib
import dataclasses
import functools
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines import engines, estimates, pool, stages, steps
from pipelines.estimates import Price
from pipelines.kept import FOUND, MADE, NOTHING, Kept
from pipelines.local import Local, LocalProgress
from pipelines.stages import Finish
from pipelines.steps import Job, PrepareBlock, WriteShard, preload
from t5prep import sources
from t5prep.dataset.manifest import Manifest, load
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError, did_you_mean
from t5prep.io import atomic_files, byte_sizes, paths, store, trusted_code
from t5prep.options.fields import typed
from t5prep.preparation import earlier_datasets, evaluation_sets, memory_budget, output_folder, shards, task_settings
from t5prep.preparation.earlier_datasets import EarlierTexts
from t5prep.preparation.memory_budget import DEFAULT, Budget
from t5prep.reading import blocks
from t5prep.sources import Resolved, unpacked_name
from t5prep.sources import memory as memory_source
from t5prep.tasks import registry
from t5prep.tasks.filters import chain, rules
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer


def prepare_resolved(
    definition: Definition,
    task: ChosenTask,
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
    **given: Any,
) -> Manifest:
    """Prepare a resolved source into a directory and return the manifest that was written last.

    `task` is the definition with its options, and `given` are fields of Settings; others are the task's defaults.
    `runner` is a name of engines.RUNNERS, `arguments` are Beam's own options for it. Locally, `workers` are processes
    (0: this process does the work; by default all cores, and 0 for a small source), `memory` is what they may use
    together (bytes, 2 GiB by default), and `kept` is a directory where tokenized blocks stay for the next run; `fresh`
    uses none of an earlier one. `overwrite` replaces another dataset when the new one is whole. `price` is what an
    engine costs, for the line that is printed before it begins. Raises T5prepError, one sentence, for anything that the
    user can mend.
    """
    pool.exit_if_respawned_script()
    out = str(out)
    engines.require(runner, arguments=arguments, out=out)
    decided = _decide(
        definition, task, source=source, tokenizer=tokenizer, out=out, runner=runner, workers=workers, **given
    )
    source = decided.source
    with output_folder.claimed(out, same=decided.same, overwrite=overwrite, goes_on=runner != "local") as out:
        folder = paths.at(out, output_folder.SPOOL)
        if runner == "dataflow":
            source = steps.shared(source, folder=folder)
        job = _staged(decided._replace(source=source), definition, folder=folder)
        finish = Finish(job, dataclasses.replace(source, files=()), out, decided.digests)
        if runner == "local":
            return _run_here(finish, source=source, kept=kept, fresh=fresh, workers=workers, memory=memory)
        work = PrepareBlock(job)
        if price or runner != "prism":
            told = estimates.forecast(work, source=source)
            print(told.text(out=out, settings=decided.settings, runner=runner, price=price), file=sys.stderr)
        size = sum(file.bytes for file in source.files)
        results = Kept.of(job, out, earlier=decided.digests.values(), fresh=fresh)
        how: dict[str, Any] = {"arguments": arguments, "workers": workers, "source_bytes": size}
        _run(runner, work=work, finish=finish, results=results, **how)
        return load(out)


class _Decided(NamedTuple):
    """Hold together what is known before anything is written: the choices, the source with its files, and which dataset it will be.

    `leaks` and `earlier` are the texts that rows are compared with, `digests` those of the earlier datasets.
    """

    settings: Settings
    source: Resolved
    tokenizer: Tokenizer
    leaks: evaluation_sets.Leaks | None
    earlier: EarlierTexts | None
    digests: dict[str, str]
    same: output_folder.Identity


def _decide(
    definition: Definition,
    task: ChosenTask,
    *,
    source: Resolved,
    tokenizer: str,
    out: str,
    runner: str,
    workers: int | None,
    **given: Any,
) -> _Decided:
    """Decide what is prepared, of arguments of `prepare_resolved`. Raises T5prepError."""
    if "\0" in out:
        raise UsageError(f"--out {out!r}: a name of a folder holds no NUL character. Choose another name.")
    if workers is not None and workers < 0:
        raise UsageError(f"--workers {workers}: it is at least 0, which is this process alone")
    loaded = loading.load(tokenizer)
    settings, task, source = task_settings.decide(definition, task, source=source, tokenizer=loaded, **given)
    if loaded.slow:
        print(f"SentencePiece tokenizes, more slowly, to the same bytes: {loaded.slow}", file=sys.stderr)
    if runner == "dataflow" and settings.dedup == "near":
        steps.refuse_local(settings.dedup_against)
    for uri in sources.uris_of(source.uri):
        output_folder.refuse_inside(out, source=uri)
    leaks = earlier = None
    if settings.decontaminate:
        sets = {name: evaluation_sets.texts(name, settings) for name in settings.decontaminate}
        leaks = evaluation_sets.collect(sets, words=settings.decontaminate_words)
    datasets = {data: earlier_datasets.open_dataset(data, settings, loaded) for data in settings.dedup_against}
    if datasets and settings.dedup == "exact":
        earlier = earlier_datasets.collect(datasets, loaded)
    digests = {data: dataset.digest for data, dataset in datasets.items()}
    files = sorted((file.name, file.bytes) for file in source.files)
    same = output_folder.Identity(settings, loaded.sha256, definition.sha256 if definition.file else "", files)
    return _Decided(settings, source, loaded, leaks, earlier, digests, same)


def _staged(decided: _Decided, definition: Definition, *, folder: str) -> Job:
    """Write what workers need into a folder. Raises OutputError."""
    return steps.stage(
        decided.settings,
        task=definition,
        source=decided.source,
        tokenizer=decided.tokenizer,
        folder=folder,
        against=decided.leaks,
        earlier=decided.earlier,
    )


def _run_here(
    finish: Finish, *, source: Resolved, kept: Path | None, fresh: bool, workers: int | None, memory: int | None
) -> Manifest:
    """Run a staged job on this machine, within a budget of memory and after a look at the disk; return the manifest."""
    shared, memory = _budget(source, workers=workers, memory=memory)
    with output_folder.scratch(finish.out) as scratch:
        work = PrepareBlock(finish.job, str(kept or ""), scratch, fresh)
        with engines.explained("local", out=finish.out), _pool(work, source=source, workers=shared.workers) as name:
            # Workers load meanwhile what they need.
            estimates.check_disk(work, source=source, out=finish.out, workers=shared.workers, memory=memory)
            write = WriteShard(finish.job, finish.out, shared.range_bytes)
            executor = Local(name, scratch, joined_bytes=min(blocks.JOINED_BYTES, shared.block_bytes))
            made: Manifest = stages.run(executor, work, write, finish, block_bytes=shared.block_bytes)
            return made


def _budget(source: Resolved, *, workers: int | None, memory: int | None) -> tuple[Budget, int]:
    """Return the shares of a run here, and what they are of (bytes). Raises UsageError for too little memory."""
    small = sum(file.bytes for file in source.files) < memory_budget.SMALL
    count = (0 if small else os.cpu_count() or 1) if workers is None else workers
    given = byte_sizes.parse(memory_budget.DEFAULT, name="--memory") if memory is None else memory
    return memory_budget.share(given, workers=count), given


def _run(
    runner: str,
    *,
    work: PrepareBlock,
    finish: Finish,
    results: Kept,
    shared: Budget = memory_budget.LARGEST,
    arguments: Sequence[str] = (),
    workers: int | None = None,
    source_bytes: int = 0,
) -> None:
    """Run the pipeline on an engine; say how many results of an earlier run were used again."""
    import apache_beam as beam
    from apache_beam.metrics import MetricsFilter

    engine = engines.engine(runner, arguments=arguments, workers=workers)
    with engines.explained(runner, out=finish.out), engines.running(engine):
        pipeline = beam.Pipeline(runner=engine.runner, options=engine.options)
        wired(pipeline, work=work, finish=finish, results=results, shared=shared, source_bytes=source_bytes)
        done = pipeline.run()
        done.wait_until_finish()
        if results.found:
            counted = done.metrics().query(MetricsFilter().with_namespace("t5prep"))["counters"]
            again, made = (
                sum(one.result or 0 for one in counted if one.key.metric.name == name) for name in (FOUND, MADE)
            )
            print(
                f"{again:,} of {again + made:,} blocks, groups and shards are those that an earlier run had made; --fresh "
                "makes them anew",
                file=sys.stderr,
            )


def wired(
    pipeline: Any,
    *,
    work: PrepareBlock,
    finish: Finish,
    results: Kept = NOTHING,
    shared: Budget = memory_budget.LARGEST,
    source_bytes: int = 0,
) -> Any:
    """Return the pipeline with all its steps added, for workers that share neither memory nor disk.

    `source_bytes` decides how rows are merged.
    """
    from pipelines.graph import Graph

    results = results if results.folder else dataclasses.replace(results, folder=work.job.folder)
    executor = Graph(pipeline, shards.for_source(source_bytes), results)
    write = WriteShard(work.job, finish.out, shared.range_bytes)
    stages.run(executor, work, write, finish, block_bytes=shared.block_bytes)
    return pipeline


@contextlib.contextmanager
def _pool(work: PrepareBlock, *, source: Resolved, workers: int) -> Iterator[str]:
    """Yield the name of a pool of processes on this machine that shows how far it is ("" if there is none)."""
    if not workers:
        yield ""
        return
    local = pool.Pool(workers, warm=functools.partial(preload, work))
    known = all(unpacked_name(file.name) == file.name for file in source.files)
    local.done = watch = LocalProgress(work, total=sum(file.bytes for file in source.files) if known else 0)
    try:
        yield local.name
    finally:
        local.close()
        watch.close()


# The public function, with plain arguments: `t5prep.prepare`.


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Let libraries log nothing while a function runs: what goes wrong is raised. Then the program's own level is set again."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.setLevel(level)


@_quiet_libraries()
def prepare(
    task: str,
    *,
    tokenizer: str,
    out: str | Path,
    source: Any = None,
    runner: str = "local",
    beam_options: Sequence[str] = (),
    workers: int | None = None,
    memory: str | int = DEFAULT,
    fresh: bool = False,
    overwrite: bool = False,
    price: str | None = None,
    **choices: Any,
) -> Manifest:
    """Prepare a corpus: its rows become tokenized, shuffled, verified TFRecord shards and a manifest.

    A run that was killed goes on where it stopped, and the same call on any runner, with any number of workers, makes the
    same bytes. A directory that holds another dataset is left alone.

    Args:
        task: What a row becomes: a name that `t5prep tasks` lists, such as "text2text" or "so_quality", or the path of a file
            of your own, such as "./headlines.py".
        tokenizer: A SentencePiece model file, a directory in Hugging Face layout, a Hub name, or "sample:".
        out: The dataset's directory, or a gs:// prefix.
        source: Where the rows are: "sample:", a path or glob, "gs://...", "https://...", "kaggle:owner/slug",
            "zenodo:RECORD" or "hf:owner/name", or a list of them; "-" is standard input, whose `format` is said. Or the
            rows themselves: a DataFrame, an Arrow table, a dataset of the Hub's `datasets`, or a list of dicts. May be left
            out for a task that has its own.
        runner: What runs the pipeline: "local", "prism", "flink" or "dataflow".
        beam_options: Beam's own options for the runner, such as `["--project=PROJECT"]`.
        workers: Processes on this machine, 0 for the calling process alone; all cores by default, none for a small source.
        memory: What all processes may use together, such as "2GiB" or a number of bytes.
        fresh: Whether to tokenize anew what an earlier run has tokenized.
        overwrite: Whether another dataset in `out` is replaced: it is moved to `OUT.replaced` when the new one is whole.
        price: What an engine costs, for the estimate that is printed before it begins: of a vCPU-hour, and after a `+` of
            a gigabyte shuffled, as in "0.07+0.011".
        **choices: The options of `t5prep prepare TASK`, with underscores: `input_length=256`, `splits={"train": 1.0}`,
            `inputs_column="question"`. What is left out is the task's default.

    Returns:
        The manifest, as `t5prep.load(out)` returns it.

    Raises:
        T5prepError: In one sentence: a source that cannot be read, a column that is not there, a choice that the task does
            not have, a directory that holds another dataset.

    Example:
        manifest = t5prep.prepare("so_quality", source="sample:", tokenizer="sample:", out="data/sample")
        print(manifest.splits["train"].records, manifest.rejected)
    """
    with _asked(task, source, choices) as (definition, chosen, resolved, given):
        return prepare_resolved(
            definition,
            chosen,
            source=resolved,
            tokenizer=tokenizer,
            out=str(out),
            runner=runner,
            arguments=list(beam_options),
            workers=workers,
            memory=memory if isinstance(memory, int) else byte_sizes.parse(memory, name="--memory"),
            kept=store.root() / "tokenized",
            fresh=fresh,
            overwrite=overwrite,
            price=estimates.parse_price(price) if price else None,
            **given,
        )


@_quiet_libraries()
def forecast(
    task: str,
    *,
    tokenizer: str,
    out: str,
    source: Any = None,
    runner: str = "local",
    beam_options: Sequence[str] = (),
    workers: int | None = None,
    memory: str = DEFAULT,
    overwrite: bool = False,
    price: str | None = None,
    **choices: Any,
) -> str:
    """Return on a few lines what `prepare` would read, write and need with these arguments, measured on a sample.

    Nothing is written into `out`, and an engine need not be here. Raises T5prepError.
    """
    if runner == "local":
        engines.require(runner, arguments=beam_options)
    of_engine = estimates.parse_price(price) if price else None
    with _asked(task, source, choices) as (definition, chosen, resolved, given):
        decided = _decide(
            definition, chosen, source=resolved, tokenizer=tokenizer, out=out, runner=runner, workers=workers, **given
        )
        if not overwrite:
            output_folder.refuse_another(out, same=decided.same)
        with atomic_files.temporary_folder() as folder:
            made = estimates.forecast(PrepareBlock(_staged(decided, definition, folder=folder)), source=decided.source)
        shared, bytes_given = _budget(decided.source, workers=workers, memory=byte_sizes.parse(memory, name="--memory"))
    return made.text(
        out=out, settings=decided.settings, runner=runner, workers=shared.workers, memory=bytes_given, price=of_engine
    )


@contextlib.contextmanager
def _asked(
    task: str, source: Any, choices: Mapping[str, Any]
) -> Iterator[tuple[Definition, ChosenTask, Resolved, dict[str, Any]]]:
    """Yield a task with its options, its source with pinned files, and the fields of Settings that were given."""
    definition = registry.get(task)
    if definition.file:
        trusted_code.remember(definition.code)
    given, options = _parted(definition, choices)
    for path in chain.code_files(given.get("filter", ())):
        with contextlib.suppress(OSError):  # said where it is read as a filter
            trusted_code.remember(rules.read(path))
    chosen = definition.choose(options)
    has_splits = bool(given.get("split_files"))
    with _opened(definition.task.corpus.source if source is None else source, chosen, has_splits) as resolved:
        yield definition, chosen, resolved, given


@contextlib.contextmanager
def _opened(source: Any, task: ChosenTask, has_splits: bool = False) -> Iterator[Resolved]:
    """Yield a source as pinned files: of a place, of standard input (`-`), or of rows in memory. Raises T5prepError.

    has_splits: the user says which file is of which split, so the configs of a card are not read
    """
    given: contextlib.AbstractContextManager[Resolved]
    texts = source if isinstance(source, list | tuple) else [source]
    uris = [os.fspath(each) for each in texts] if all(isinstance(each, str | Path) for each in texts) else []
    if not uris:
        given = memory_source.table(source)
    elif uris == ["-"]:
        if sys.stdin is None:
            raise UsageError("--source -: standard input is closed. Pipe the rows into it, or name a file.")
        given = memory_source.piped(sys.stdin.buffer, name="stdin")
    elif "-" in uris:
        raise UsageError("--source -: standard input cannot be read beside other sources. Save it to a file first.")
    elif uris != [""]:
        given = contextlib.nullcontext(sources.resolve_all(uris, include=task.files, ignore_card=has_splits))
    else:
        raise UsageError(f"{task.name} has no source of its own. Say where the rows are: --source mine.csv")
    with given as resolved:
        yield resolved


def _parted(definition: Definition, choices: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the choices that every task has, and those of the task, checked as the command line does. Raises UsageError."""
    common = {field.name: field for field in dataclasses.fields(Settings) if field.metadata.get("help")}
    own = {field.name: field for field in dataclasses.fields(definition.task.options)}
    known = own | common
    for name in choices:
        if name not in known:
            raise UsageError(
                f"{definition.name} has no option {name}.{did_you_mean(name, known)} It has {', '.join(known)}."
            )
    typed_choices = {name: typed(known[name], value) for name, value in choices.items()}
    settings = {name: value for name, value in typed_choices.items() if name in common}
    return settings, {name: value for name, value in typed_choices.items() if name not in common}

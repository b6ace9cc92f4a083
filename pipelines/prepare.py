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
from pipelines.kept import FOUND, MADE, NOTHING, JobResults
from pipelines.local import Local, LocalProgress
from pipelines.run_options import RunOptions
from pipelines.stages import Finish, OneDisk, Shuffle
from pipelines.steps import Job, PrepareBlock, WriteShard, preload
from t5prep import sources
from t5prep.dataset.manifest import Manifest, load
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError, did_you_mean
from t5prep.io import atomic_files, paths, store, trusted_code
from t5prep.options.fields import accepts, typed
from t5prep.preparation import earlier_datasets, evaluation_sets, memory_budget, output_folder, shards, task_settings
from t5prep.preparation.earlier_datasets import EarlierTexts
from t5prep.preparation.memory_budget import Budget
from t5prep.reading import blocks
from t5prep.sources import Resolved, unpacked_name
from t5prep.sources import memory as memory_source
from t5prep.tasks import registry
from t5prep.tasks.filters import chain, rules
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PrepareRequest:
    """Hold all that is asked of a preparation: which task makes what of which source, and how it runs.

    `settings` are those that the user chose, completed by what the task and the source say when it begins. `beam_options` are
    Beam's own, for its runners. `cache` is a directory where tokenized blocks stay for the next run.
    """

    definition: Definition
    task: ChosenTask
    settings: Settings
    source: Resolved
    tokenizer: str
    out: str
    run: RunOptions = RunOptions()  # noqa: RUF009 - frozen
    beam_options: Sequence[str] = ()
    cache: Path | None = None


def prepare_resolved(request: PrepareRequest) -> Manifest:
    """Prepare a source into a directory and return the manifest that was written last.

    Raises T5prepError, one sentence, for anything that the user can mend.
    """
    pool.exit_if_respawned_script()
    run, price = request.run, _price(request)
    engines.require(run.runner, arguments=request.beam_options, out=request.out)
    decided = _decide(request)
    source = decided.source
    with output_folder.claimed(
        request.out, new_identity=decided.same, overwrite=run.overwrite, goes_on=run.runner != "local"
    ) as out:
        folder = paths.join(out, output_folder.SPOOL)
        if run.runner == "dataflow":
            source = steps.shared(source, folder=folder)
        job = _staged(decided._replace(source=source), request.definition, folder=folder)
        finish = Finish(job, dataclasses.replace(source, files=()), out, decided.digests)
        if run.runner == "local":
            return _run_here(request, finish, source=source)
        work = PrepareBlock(job)
        if price or run.runner != "prism":
            estimate = estimates.forecast(work, source=source)
            print(estimate.text(out=out, settings=decided.settings, runner=run.runner, price=price), file=sys.stderr)
        results = JobResults.of(job, out, earlier=decided.digests.values(), fresh=run.fresh)
        _run(request, work=work, finish=finish, results=results, source_bytes=sum(file.bytes for file in source.files))
        return load(out)


def _price(request: PrepareRequest) -> Price | None:
    """Return what an engine costs, where the user says it. Raises UsageError."""
    return estimates.parse_price(request.run.price) if request.run.price else None


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


def _decide(request: PrepareRequest) -> _Decided:
    """Decide what is prepared. Raises T5prepError."""
    out = request.out
    if "\0" in out:
        raise UsageError(f"--out {out!r}: a name of a folder holds no NUL character. Choose another name.")
    loaded, definition = loading.load(request.tokenizer), request.definition
    settings, _, source = task_settings.decide(
        definition, request.task, request.settings, source=request.source, tokenizer=loaded
    )
    if loaded.slow:
        print(f"SentencePiece tokenizes, more slowly, to the same bytes: {loaded.slow}", file=sys.stderr)
    if request.run.runner == "dataflow" and settings.dedup == "near":
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
    digests = {data: dataset.manifest.digest for data, dataset in datasets.items()}
    files = sorted((file.name, file.bytes) for file in source.files)
    identity = output_folder.Identity(settings, loaded.sha256, definition.sha256 if definition.file else "", files)
    return _Decided(settings, source, loaded, leaks, earlier, digests, identity)


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


def _run_here(request: PrepareRequest, finish: Finish, *, source: Resolved) -> Manifest:
    """Run a staged job on this machine, within a budget of memory and after a look at the disk; return the manifest."""
    shared, memory = _budget(request.run, source)
    with output_folder.scratch(finish.out) as scratch:
        work = PrepareBlock(finish.job, str(request.cache or ""), scratch, request.run.fresh)
        with engines.explained("local", out=finish.out), _pool(work, source=source, workers=shared.workers) as name:
            # Workers load meanwhile what they need.
            estimates.check_disk(work, source=source, out=finish.out, workers=shared.workers, memory=memory)
            write = WriteShard(finish.job, finish.out, shared.range_bytes, scratch)
            rows = OneDisk(scratch, min(blocks.JOINED_BYTES, shared.block_bytes))
            of_job = stages.of_job(work, write, finish, rows=rows, block_bytes=shared.block_bytes)
            manifest: Manifest = Local(name, scratch).run(of_job)
            return manifest


def _budget(run: RunOptions, source: Resolved) -> tuple[Budget, int]:
    """Return the shares of a run here, and what they are of (bytes). Raises UsageError for too little memory."""
    small = sum(file.bytes for file in source.files) < memory_budget.SMALL
    count = (0 if small else os.cpu_count() or 1) if run.workers is None else run.workers
    return memory_budget.share(run.memory, workers=count), run.memory


def _run(
    request: PrepareRequest,
    *,
    work: PrepareBlock,
    finish: Finish,
    results: JobResults,
    source_bytes: int,
    shared: Budget = memory_budget.LARGEST,
) -> None:
    """Run the pipeline on an engine; say how many results of an earlier run were used again."""
    import apache_beam as beam
    from apache_beam.metrics import MetricsFilter

    runner = request.run.runner
    engine = engines.engine(runner, arguments=request.beam_options, workers=request.run.workers)
    with engines.explained(runner, out=finish.out), engines.running(engine):
        pipeline = beam.Pipeline(runner=engine.runner, options=engine.options)
        wired(pipeline, work=work, finish=finish, results=results, shared=shared, source_bytes=source_bytes)
        pipeline_result = pipeline.run()
        pipeline_result.wait_until_finish()
        counters = pipeline_result.metrics().query(MetricsFilter().with_namespace("t5prep"))["counters"]
        hits, misses = (
            sum(counter.result or 0 for counter in counters if counter.key.metric.name == name)
            for name in (FOUND, MADE)
        )
        if hits:
            print(
                f"{hits:,} of {hits + misses:,} blocks and shards are those that an earlier run had made; --fresh makes them anew",
                file=sys.stderr,
            )


def wired(
    pipeline: Any,
    *,
    work: PrepareBlock,
    finish: Finish,
    results: JobResults = NOTHING,
    shared: Budget = memory_budget.LARGEST,
    source_bytes: int = 0,
) -> Any:
    """Return the pipeline with all its steps added, for workers that share neither memory nor disk.

    `source_bytes` decides how rows are merged.
    """
    from pipelines.graph import Graph

    results = results if results.folder else dataclasses.replace(results, folder=work.job.folder)
    rows, write = Shuffle(shards.for_source(source_bytes)), WriteShard(work.job, finish.out, shared.range_bytes)
    Graph(pipeline, results).run(stages.of_job(work, write, finish, rows=rows, block_bytes=shared.block_bytes))
    return pipeline


@contextlib.contextmanager
def _pool(work: PrepareBlock, *, source: Resolved, workers: int) -> Iterator[str]:
    """Yield the name of a pool of processes on this machine that shows how far it is ("" if there is none)."""
    if not workers:
        yield ""
        return
    local = pool.Pool(workers, warm=functools.partial(preload, work))
    is_size_known = all(unpacked_name(file.name) == file.name for file in source.files)
    local.done = watch = LocalProgress(work, total=sum(file.bytes for file in source.files) if is_size_known else 0)
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


@accepts(RunOptions)
@_quiet_libraries()
def prepare(
    task: str,
    *,
    tokenizer: str,
    out: str | Path,
    source: Any = None,
    beam_options: Sequence[str] = (),
    **choices: Any,
) -> Manifest:
    """Prepare a corpus: its rows become tokenized, shuffled, verified TFRecord shards and a manifest.

    A run that was killed goes on where it stopped, and the same call on any runner, with any number of workers, makes the
    same bytes. A directory that holds another dataset is left alone. Without `workers`, a small source is prepared by the
    calling process alone, as with 0 of them.

    Args:
        task: What a row becomes: a name that `t5prep tasks` lists, such as "text2text" or "so_quality", or the path of a file
            of your own, such as "./headlines.py".
        tokenizer: A SentencePiece model file, a directory in Hugging Face layout, a Hub name, or "sample:".
        out: The dataset's directory, or a gs:// prefix.
        source: Where the rows are: "sample:", a path or glob, "gs://...", "https://...", "kaggle:owner/slug",
            "zenodo:RECORD" or "hf:owner/name", or a list of them; "-" is standard input, whose `format` is said. Or the
            rows themselves: a DataFrame, an Arrow table, a dataset of the Hub's `datasets`, or a list of dicts. May be left
            out for a task that has its own.
        beam_options: Beam's own options for the runner, such as `["--project=PROJECT"]`.
        **options
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
    with _requested(task, source, tokenizer=tokenizer, out=out, beam_options=beam_options, choices=choices) as request:
        return prepare_resolved(request)


@_quiet_libraries()
def forecast(
    task: str,
    *,
    tokenizer: str,
    out: str,
    source: Any = None,
    beam_options: Sequence[str] = (),
    **choices: Any,
) -> str:
    """Return on a few lines what `prepare` would read, write and need with these arguments, measured on a sample.

    Nothing is written into `out`, and an engine need not be here. Raises T5prepError.
    """
    with _requested(task, source, tokenizer=tokenizer, out=out, beam_options=beam_options, choices=choices) as request:
        run, price = request.run, _price(request)
        if run.runner == "local":
            engines.require(run.runner, arguments=beam_options)
        decided = _decide(request)
        if not run.overwrite:
            output_folder.refuse_another(out, new_identity=decided.same)
        with atomic_files.temporary_folder() as folder:
            job = _staged(decided, request.definition, folder=folder)
            estimate = estimates.forecast(PrepareBlock(job), source=decided.source)
        shared, memory = _budget(run, decided.source)
    return estimate.text(
        out=out, settings=decided.settings, runner=run.runner, workers=shared.workers, memory=memory, price=price
    )


@contextlib.contextmanager
def _requested(
    task: str,
    source: Any,
    *,
    tokenizer: str,
    out: str | Path,
    beam_options: Sequence[str],
    choices: Mapping[str, Any],
) -> Iterator[PrepareRequest]:
    """Yield the request of a user's arguments: the task with its options, and the source with pinned files."""
    definition = registry.get(task)
    if definition.file:
        trusted_code.remember(definition.code)
    run, settings, options = _parted(definition, choices)
    for path in chain.code_files(settings.get("filter", ())):
        with contextlib.suppress(OSError):  # said where it is read as a filter
            trusted_code.remember(rules.read(path))
    chosen = definition.choose(options)
    requested = task_settings.requested(chosen, settings)
    effective_source = definition.task.corpus.source if source is None else source
    with _opened(effective_source, chosen, bool(requested.split_files)) as resolved:
        yield PrepareRequest(
            definition,
            chosen,
            requested,
            resolved,
            tokenizer,
            str(out),
            RunOptions(**run),
            beam_options,
            cache=store.root() / "tokenized",
        )


@contextlib.contextmanager
def _opened(source: Any, task: ChosenTask, has_splits: bool = False) -> Iterator[Resolved]:
    """Yield a source as pinned files: of a place, of standard input (`-`), or of rows in memory. Raises T5prepError.

    has_splits: the user says which file is of which split, so the configs of a card are not read
    """
    source_context: contextlib.AbstractContextManager[Resolved]
    texts = source if isinstance(source, list | tuple) else [source]
    uris = [os.fspath(uri) for uri in texts] if all(isinstance(uri, str | Path) for uri in texts) else []
    if not uris:
        source_context = memory_source.table(source)
    elif uris == ["-"]:
        if sys.stdin is None:
            raise UsageError("--source -: standard input is closed. Pipe the rows into it, or name a file.")
        source_context = memory_source.piped(sys.stdin.buffer, name="stdin")
    elif "-" in uris:
        raise UsageError("--source -: standard input cannot be read beside other sources. Save it to a file first.")
    elif uris != [""]:
        source_context = contextlib.nullcontext(sources.resolve_all(uris, include=task.files, ignore_card=has_splits))
    else:
        raise UsageError(f"{task.name} has no source of its own. Say where the rows are: --source mine.csv")
    with source_context as resolved:
        yield resolved


def _parted(definition: Definition, choices: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield those choices that say how it runs, those that every task has, and those of the task. Raises UsageError."""
    run = {field.name: field for field in dataclasses.fields(RunOptions)}
    common = {field.name: field for field in dataclasses.fields(Settings) if field.metadata.get("help")}
    task_fields = {field.name: field for field in dataclasses.fields(definition.task.options)}
    all_fields = task_fields | common | run
    for name in choices:
        if name not in all_fields:
            raise UsageError(
                f"{definition.name} has no option {name}.{did_you_mean(name, all_fields)} It has {', '.join(all_fields)}."
            )
    for fields in (run, common, task_fields):
        yield {name: typed(all_fields[name], value) for name, value in choices.items() if name in fields}

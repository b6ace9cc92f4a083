"""Prepare a corpus: from source files to shards and their manifest, by processes of this machine or by a Beam pipeline."""

import contextlib
import dataclasses
import functools
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines import engines, estimates, pool, stages, steps
from pipelines.estimates import Price
from pipelines.job_results import CACHE_HITS, CACHE_MISSES, NOTHING, JobResults
from pipelines.local_executor import Local, LocalProgress
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
from t5prep.sources import Resolved, memory, unpacked_name
from t5prep.tasks import registry
from t5prep.tasks.filters import chain, rules
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    import apache_beam as beam


@dataclasses.dataclass(frozen=True)
class PrepareRequest:
    """A request to prepare a corpus: the task, its source, and how to run it.

    * `settings`: the user's choices. `task_settings.decide` completes them with defaults of the task and facts of the source.
    * `beam_options`: Beam's own options, for its runners.
    * `cache`: the folder where tokenized blocks are cached for later runs; None caches none.
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
    """Prepare the requested source into the folder `request.out`, and return the manifest, which is written last.

    Raises T5prepError, one sentence, for any problem that the user can fix.
    """
    pool.exit_if_respawned_script()
    run, price = request.run, _price(request)
    engines.require(run.runner, arguments=request.beam_options, out=request.out)
    resolved = _resolve_request(request)
    source = resolved.source
    with output_folder.claimed(
        request.out, new_identity=resolved.identity, overwrite=run.overwrite, resumes=run.runner != "local"
    ) as out:
        folder = paths.join(out, output_folder.SPOOL)
        if run.runner == "dataflow":
            # Dataflow's workers cannot read files of this machine.
            source = steps.shared(source, folder=folder)
        job = _stage_job(resolved._replace(source=source), request.definition, folder=folder)
        finish = Finish(job, dataclasses.replace(source, files=()), out, resolved.digests)
        if run.runner == "local":
            return _run_here(request, finish, source=source)
        work = PrepareBlock(job)
        if price or run.runner != "prism":
            estimate = estimates.forecast(work, source=source)
            print(estimate.text(out=out, settings=resolved.settings, runner=run.runner, price=price), file=sys.stderr)
        results = JobResults.of(job, out, earlier=resolved.digests.values(), fresh=run.fresh)
        _run(request, work=work, finish=finish, results=results, source_bytes=sum(file.bytes for file in source.files))
        return load(out)


def _price(request: PrepareRequest) -> Price | None:
    """Return the engine's prices, or None if the user gave none. Raises UsageError."""
    return estimates.parse_price(request.run.price) if request.run.price else None


class _ResolvedRequest(NamedTuple):
    """The result of all checks that happen before anything is written: the choices, the source with its files, and the identity.

    * `leaks`: the texts of evaluation sets, which no row may contain.
    * `earlier`: the texts of earlier datasets, which no row may repeat.
    * `digests`: for each earlier dataset, the digest of its manifest.
    * `identity`: the identity of the dataset. A folder may only hold a dataset with the same one.
    """

    settings: Settings
    source: Resolved
    tokenizer: Tokenizer
    leaks: evaluation_sets.Leaks | None
    earlier: EarlierTexts | None
    digests: dict[str, str]
    identity: output_folder.Identity


def _resolve_request(request: PrepareRequest) -> _ResolvedRequest:
    """Check the request and return what is to be prepared, without writing anything. Raises T5prepError."""
    out = request.out
    if "\0" in out:
        raise UsageError(
            f"--out {out!r} contains a NUL character, which is not allowed in folder names. Choose another name.",
            code="file.invalid-name",
        )
    loaded, definition = loading.load(request.tokenizer), request.definition
    settings, _, source = task_settings.decide(
        definition, request.task, request.settings, source=request.source, tokenizer=loaded
    )
    if loaded.slow:
        print(
            f"Tokenizing with SentencePiece itself, more slowly but to the same bytes: {loaded.slow}", file=sys.stderr
        )
    if request.run.runner == "dataflow" and settings.dedup == "near":
        steps.refuse_local(settings.dedup_against)
    for uri in sources.uris_of(source.uri):
        output_folder.refuse_inside(out, source=uri)
    leaks = earlier = None
    if settings.decontaminate:
        sets = {name: evaluation_sets.texts(name, settings) for name in settings.decontaminate}
        leaks = evaluation_sets.collect(sets, words=settings.decontaminate_words)
    datasets = {data: earlier_datasets.open_dataset(data, settings, loaded) for data in settings.dedup_against}
    # For near-duplicates, workers sketch the earlier shards instead (`steps.sketch_shard`).
    if datasets and settings.dedup == "exact":
        earlier = earlier_datasets.collect(datasets, loaded)
    digests = {data: dataset.manifest.digest for data, dataset in datasets.items()}
    files = sorted((file.name, file.bytes) for file in source.files)
    identity = output_folder.Identity(settings, loaded.sha256, definition.sha256 if definition.file else "", files)
    return _ResolvedRequest(settings, source, loaded, leaks, earlier, digests, identity)


def _stage_job(resolved: _ResolvedRequest, definition: Definition, *, folder: str) -> Job:
    """Write the files that workers need into `folder`, and return the job. Raises OutputError."""
    return steps.stage(
        resolved.settings,
        task=definition,
        source=resolved.source,
        tokenizer=resolved.tokenizer,
        folder=folder,
        against=resolved.leaks,
        earlier=resolved.earlier,
    )


def _run_here(request: PrepareRequest, finish: Finish, *, source: Resolved) -> Manifest:
    """Run a staged job on this machine, within its memory budget and after checking the free disk; return the manifest."""
    shared, memory_bytes = _budget(request.run, source)
    with output_folder.scratch(finish.out) as scratch:
        work = PrepareBlock(finish.job, str(request.cache or ""), scratch, request.run.fresh)
        with (
            engines.explained("local", out=finish.out),
            _executor(work, source=source, workers=shared.workers) as local,
        ):
            # The workers import and load the tokenizer during this check.
            estimates.check_disk(work, source=source, out=finish.out, workers=shared.workers, memory=memory_bytes)
            write = WriteShard(finish.job, finish.out, shared.range_bytes, scratch)
            rows = OneDisk(scratch, min(blocks.JOINED_BYTES, shared.block_bytes))
            of_job = stages.of_job(work, write, finish, rows=rows, block_bytes=shared.block_bytes)
            manifest = local.run(of_job)
            assert isinstance(manifest, Manifest)
            return manifest


def _budget(run: RunOptions, source: Resolved) -> tuple[Budget, int]:
    """Return the shares of the memory budget of a local run, and the whole budget in bytes. Raises UsageError.

    Without `--workers`, a source below SMALL bytes is prepared by this process alone, because starting workers takes
    longer.
    """
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
    """Run the pipeline on an engine, and print how many cached results of an earlier run it reused."""
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
            for name in (CACHE_HITS, CACHE_MISSES)
        )
        if hits:
            print(
                f"Reused {hits:,} of {hits + misses:,} blocks and shards from an earlier run. To make them again, add --fresh.",
                file=sys.stderr,
            )


def wired(
    pipeline: "beam.Pipeline",
    *,
    work: PrepareBlock,
    finish: Finish,
    results: JobResults = NOTHING,
    shared: Budget = memory_budget.LARGEST,
    source_bytes: int = 0,
) -> "beam.Pipeline":
    """Add all stages to a Beam pipeline, for workers that share neither memory nor disk, and return the pipeline.

    `source_bytes`, the size of the source, decides how rows are merged.
    """
    from pipelines.graph import Graph

    # Without a signing key no results are cached, but rows still need a folder for their files.
    results = results if results.folder else dataclasses.replace(results, folder=work.job.folder)
    rows, write = Shuffle(shards.for_source(source_bytes)), WriteShard(work.job, finish.out, shared.range_bytes)
    Graph(pipeline, results).run(stages.of_job(work, write, finish, rows=rows, block_bytes=shared.block_bytes))
    return pipeline


@contextlib.contextmanager
def _executor(work: PrepareBlock, *, source: Resolved, workers: int) -> Iterator[Local]:
    """Yield the executor with a new pool of `workers` processes, which shows its progress; without a pool for 0 workers."""
    if not workers:
        yield Local(None, work.spool)
        return
    local = pool.Pool(workers, warm=functools.partial(preload, work))
    # The unpacked size of a compressed file is unknown, so there is no total to show.
    is_size_known = all(unpacked_name(file.name) == file.name for file in source.files)
    progress = LocalProgress(work, total=sum(file.bytes for file in source.files) if is_size_known else 0)
    try:
        yield Local(local, work.spool, progress)
    finally:
        local.close()
        progress.close()


# The public function, with plain arguments: `t5prep.prepare`.


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Disable the logs of libraries in the body, because errors are raised anyway, and restore the log level afterwards."""
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
    source: object = None,
    beam_options: Sequence[str] = (),
    **choices: object,
) -> Manifest:
    """Prepare a corpus: its rows become tokenized, shuffled, verified TFRecord shards and a manifest.

    A killed run resumes when it is called again. The same call produces the same bytes on any runner, with any number
    of workers. A directory that holds another dataset is not changed. By default, the calling process alone prepares
    a small source, as with `workers=0`.

    Args:
        task: What a row becomes: a name that `t5prep tasks` lists, such as "text2text" or "so_quality", or the path of a file
            of your own, such as "./headlines.py".
        tokenizer: A SentencePiece model file, a directory in Hugging Face layout, a Hub name, or "sample:".
        out: The dataset's directory, or a gs:// prefix.
        source: Where the rows are: "sample:", a path or glob, "gs://...", "https://...", "kaggle:owner/slug",
            "zenodo:RECORD" or "hf:owner/name", or a list of them. "-" is standard input, which needs a `format`. Or the
            rows themselves: a DataFrame, an Arrow table, a dataset of the Hub's `datasets`, or a list of dicts. Optional
            for a task that has its own source.
        beam_options: Beam's own options for the runner, such as `["--project=PROJECT"]`.
        **options
        **choices: The options of `t5prep prepare TASK`, with underscores: `input_length=256`, `splits={"train": 1.0}`,
            `inputs_column="question"`. Options that are not given have the task's defaults.

    Returns:
        The manifest, as `t5prep.load(out)` returns it.

    Raises:
        T5prepError: In one sentence: a source that cannot be read, a missing column, an option that the task does
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
    source: object = None,
    beam_options: Sequence[str] = (),
    **choices: object,
) -> str:
    """Return some lines with what `prepare` would read, write and need with these arguments, estimated from a sample.

    Nothing is written into `out`, and the engine need not be installed. Raises T5prepError.
    """
    with _requested(task, source, tokenizer=tokenizer, out=out, beam_options=beam_options, choices=choices) as request:
        run, price = request.run, _price(request)
        if run.runner == "local":
            engines.require(run.runner, arguments=beam_options)
        resolved = _resolve_request(request)
        if not run.overwrite:
            output_folder.refuse_another(out, new_identity=resolved.identity)
        with atomic_files.temporary_folder() as folder:
            job = _stage_job(resolved, request.definition, folder=folder)
            estimate = estimates.forecast(PrepareBlock(job), source=resolved.source)
        shared, memory_bytes = _budget(run, resolved.source)
    return estimate.text(
        out=out, settings=resolved.settings, runner=run.runner, workers=shared.workers, memory=memory_bytes, price=price
    )


@contextlib.contextmanager
def _requested(
    task: str,
    source: object,
    *,
    tokenizer: str,
    out: str | Path,
    beam_options: Sequence[str],
    choices: Mapping[str, object],
) -> Iterator[PrepareRequest]:
    """Yield the request of a user's arguments, with the task's options and with the files of the source pinned."""
    definition = registry.get(task)
    if definition.file:
        # `predict` executes the task's file only if its checksum was remembered here or `--trust-code` is given.
        trusted_code.remember(definition.code)
    run, settings, options = _parted(definition, choices)
    for path in chain.code_files(settings.get("filter", ())):
        with contextlib.suppress(OSError):  # reported where it is read as a filter
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
def _opened(source: object, task: ChosenTask, has_splits: bool = False) -> Iterator[Resolved]:
    """Yield a source as pinned files: a path or URI, standard input (`-`), or rows in memory. Raises T5prepError.

    has_splits: the user assigns files to splits, so the configs of a dataset card are not read
    """
    source_context: contextlib.AbstractContextManager[Resolved]
    texts = source if isinstance(source, list | tuple) else [source]
    uris = [os.fspath(uri) for uri in texts if isinstance(uri, str | Path)]
    if not uris or len(uris) < len(texts):
        source_context = memory.table(source)
    elif uris == ["-"]:
        if sys.stdin is None:
            raise UsageError(
                "--source - reads standard input, which is closed. Pipe rows into the command, or name a file.",
                code="source.stdin-closed",
            )
        source_context = memory.piped(sys.stdin.buffer, name="stdin")
    elif "-" in uris:
        raise UsageError(
            "--source - (standard input) cannot be combined with other sources. Save standard input to a "
            "file first, and name that file.",
            code="source.mixed-stdin",
        )
    elif uris != [""]:
        source_context = contextlib.nullcontext(sources.resolve_all(uris, include=task.files, ignore_card=has_splits))
    else:
        raise UsageError(
            f"The task {task.name} has no source of its own. Name the source: --source mine.csv", code="option.missing"
        )
    with source_context as resolved:
        yield resolved


def _parted(definition: Definition, choices: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    """Yield three dicts of the user's choices: RunOptions, Settings, and the task's own options. Raises UsageError."""
    run = {field.name: field for field in dataclasses.fields(RunOptions)}
    common = {field.name: field for field in dataclasses.fields(Settings) if field.metadata.get("help")}
    task_fields = {field.name: field for field in dataclasses.fields(definition.task.options)}
    all_fields = task_fields | common | run
    for name in choices:
        if name not in all_fields:
            raise UsageError(
                f"The task {definition.name} has no option {name}.{did_you_mean(name, all_fields)} Choose one "
                f"of: {', '.join(all_fields)}.",
                code="option.unknown",
            )
    for fields in (run, common, task_fields):
        yield {name: typed(all_fields[name], value) for name, value in choices.items() if name in fields}

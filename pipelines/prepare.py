"""Preparing a corpus: one Beam pipeline from source files to shards, and then their manifest."""

import functools
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from pipelines import pool
from pipelines.work import Finish, GatherShard, PrepareBlock, preload
from t5prep import blocks, manifest, output, pairs, splits, task, tokenizer_files
from t5prep.blocks import Block
from t5prep.errors import OutputError, SourceError, T5prepError, TokenizerError
from t5prep.progress import Progress
from t5prep.settings import Settings
from t5prep.sources import Resolved
from t5prep.tokenizer import Tokenizer

_WHERE = re.compile(r" \[while running '[^']*'\]")


def prepare(
    settings: Settings,
    *,
    source: Resolved,
    tokenizer: str,
    out: Path,
    workers: int | None = None,
    kept: Path | None = None,
) -> manifest.Manifest:
    """Prepares a resolved source into a directory and returns the manifest that was written last.

    `workers` are processes (all cores by default, 0 for none: this process does the work); `kept` is a directory where
    tokenized blocks stay for the next run. Raises T5prepError, one sentence, for anything that the user can mend.
    """
    loaded = tokenizer_files.load(tokenizer)
    check(settings, source=source, tokenizer=loaded)
    own_splits = {} if settings.splits else splits.of_files([file.name for file in source.files])
    with output.claimed(out, same=_identity(settings, source, loaded)):
        work = PrepareBlock(settings, tokenizer, own_splits, str(kept or ""), str(out / output.SPOOL))
        progress = Progress("preparing", total=sum(file.bytes for file in source.files))
        count = os.cpu_count() or 1 if workers is None else workers
        local = pool.Pool(count, warm=functools.partial(preload, work)) if count else None
        if local:
            local.done = lambda element: (
                progress.add(bytes=element.size, rows=element.rows) if isinstance(element, Block) else None
            )
        try:
            _run(settings, source=source, tokenizer=tokenizer, out=out, work=work, pool=local.name if local else "")
        finally:
            if local:
                local.close()
            progress.close()
    return manifest.load(out)


def _run(settings: Settings, *, source: Resolved, tokenizer: str, out: Path, work: PrepareBlock, pool: str) -> None:
    # Beam takes seconds to import; the workers have been started and load at the same time.
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    from pipelines import transforms

    # Beam logs a traceback of every error before it raises it; what matters is raised.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
            files = pairs.match(source.files, task.get(settings.task).pairs)
            elements = pipeline | "Files" >> beam.Create(files) | "ScanBlocks" >> transforms.ScanBlocks(settings)
            runs, hashed = elements | "PrepareBlocks" >> transforms.PrepareBlocks(work, pool=pool)
            gathered = (
                runs
                | "PlanShards" >> transforms.PlanShards(settings.shards, drawn=settings.splits is not None)
                | "GatherShards" >> transforms.GatherShards(GatherShard(settings, tokenizer, str(out)), runs, pool=pool)
            )
            _ = pipeline | "Finish" >> transforms.WriteManifest(
                Finish(settings, source, tokenizer, str(out)), gathered=gathered, runs=runs, hashed=hashed
            )
    except T5prepError as error:
        raise type(error)(_WHERE.sub("", str(error))) from error
    except OSError as error:
        raise OutputError(f"{out}: {_WHERE.sub('', str(error))}") from error


def check(settings: Settings, *, source: Resolved, tokenizer: Tokenizer) -> None:
    """Finds before any work what would make all of it vain: a missing column, a class word that does not fit.

    Raises SourceError, UsageError or TokenizerError.
    """
    this = task.get(settings.task)
    options = task.make_options(this, settings.options)
    wanted = this.columns(options)
    if not source.files:
        raise SourceError(f"{source.uri} has no files that {settings.task} can read.")
    for word in this.classes(options):
        pieces = tokenizer.encode(word)
        if len(pieces) + 1 > settings.target_length:
            raise TokenizerError(
                f'the class word "{word}" is {len(pieces)} tokens in {tokenizer.name}, and with EOS does not fit '
                f"--target-length {settings.target_length}. Ask for --target-length {len(pieces) + 1}"
            )
    first = pairs.match(source.files, this.pairs)[0]
    found = pairs.scan(first, kind=settings.format, encoding=settings.encoding, otherwise=this.format)
    columns = _columns(next(found, None))
    if columns and (missing := task.missing_column(wanted, columns)):
        raise SourceError(f"{pairs.files(first)[0].name} has no column {missing}; it has {', '.join(columns)}.")


def _columns(block: Block | None) -> Sequence[str]:
    if block is None or block.columns:
        return block.columns if block else ()
    first = next((row.record for row in blocks.read(block) if row.record), None)
    return tuple(first or ())


def _identity(settings: Settings, source: Resolved, tokenizer: Tokenizer) -> tuple:
    """What output.identity says of the dataset that these would make."""
    return (
        settings.task,
        dict(settings.options),
        tokenizer.sha256,
        settings.layout,
        {"inputs": settings.input_length, "targets": settings.target_length},
        (settings.truncation, settings.marker),
        settings.seed,
        sorted((file.name, file.bytes) for file in source.files),
    )

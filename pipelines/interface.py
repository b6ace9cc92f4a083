"""Offer preparing as a public function with plain arguments: `t5prep.prepare`."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5prep import sources
from t5prep.dataset.manifest import Manifest
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError, did_you_mean
from t5prep.io import byte_sizes, cache_folder, trusted_code
from t5prep.prepare import source_check, task_settings
from t5prep.prepare.memory_budget import DEFAULT
from t5prep.tasks import registry
from t5prep.tasks.options import typed
from t5prep.tasks.registry import Definition

# NumPy's BLAS starts a thread for each core in each worker, and no matrix is multiplied here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


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
    source: str | None = None,
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
            "zenodo:RECORD" or "hf:owner/name". May be left out for a task that has its own.
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
    from pipelines import estimates
    from pipelines.prepare import prepare as run

    definition = registry.get(task)
    if definition.file:
        trusted_code.remember(definition.code)
    settings, options = _parted(definition, choices)
    place = source or definition.task.corpus.source
    if not place:
        raise UsageError(f"{task} has no source of its own. Say where the rows are: --source mine.csv")
    chosen = definition.choose(options)
    kind = settings.get("format") or definition.task.corpus.format
    resolved = source_check.without_documents(sources.resolve(place, include=chosen.files), kind=kind)
    return run(
        task_settings.choose(definition, options=options, source=resolved, **settings),
        source=resolved,
        tokenizer=tokenizer,
        out=str(out),
        runner=runner,
        arguments=list(beam_options),
        workers=workers,
        memory=memory if isinstance(memory, int) else byte_sizes.parse(memory, name="--memory"),
        kept=cache_folder.tokenized(),
        fresh=fresh,
        overwrite=overwrite,
        price=estimates.parse_price(price) if price else None,
        task=definition,
    )


def _parted(definition: Definition, choices: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the choices that every task has, and those of the task, checked as the command line does. Raises UsageError."""
    common = {field.name: field for field in dataclasses.fields(Settings) if field.metadata.get("help")}
    own = {field.name: field for field in dataclasses.fields(definition.task.options)}
    settings, options = {}, {}
    for name, value in choices.items():
        if name in common:
            parse = common[name].metadata["parse"]
            settings[name] = parse(_spelled(value)) if parse and value is not None else typed(common[name], value)
        elif name in own:
            options[name] = typed(own[name], value)
        else:
            known = [*own, *common]
            raise UsageError(
                f"{definition.name} has no option {name}.{did_you_mean(name, known)} It has {', '.join(known)}."
            )
    return settings, options


def _spelled(value: Any) -> str:
    """Return a value as it is typed: `train=0.9,validation=0.1` for a dict."""
    return ",".join(f"{name}={part}" for name, part in value.items()) if isinstance(value, Mapping) else str(value)

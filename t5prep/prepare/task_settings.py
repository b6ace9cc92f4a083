"""Settings made whole and checked by the task that they are for."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.prepare.filters.chain import Chain
from t5prep.reading import split_files
from t5prep.sources import Resolved
from t5prep.tasks import options as task_options
from t5prep.tasks import registry, task
from t5prep.tasks.task import Task
from t5prep.tokens import newlines, span_corruption

DEFAULT_SPLITS = {"train": 0.9, "validation": 0.1}


def files(name: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the patterns of the files that a task reads with these options. Raises UsageError."""
    this = registry.get(name)
    return task.files(this, task.make_options(this, given))


def choose(name: str, *, options: Mapping[str, Any], source: Resolved, **given: Any) -> Settings:
    """Return whole settings of a task from some: what is not given is the task's default, or follows from the source.

    Raises UsageError.
    """
    this = registry.get(name)
    values: dict[str, Any] = {"input_length": this.input_length, "target_length": this.target_length, **given}
    if values.get("splits") is None:
        values["splits"] = default_splits(source)
    if this.documents and values["target_length"] == this.target_length:  # as long as inputs of this length need
        values["target_length"] = _target_length(this, options, values["input_length"])
    return complete(Settings(task=name, options=dict(options), **values))


def default_splits(source: Resolved) -> dict[str, float] | None:
    """Return the shares to draw where none were given: none where the source's files are splits themselves."""
    return None if split_files.of_files([file.name for file in source.files]) else dict(DEFAULT_SPLITS)


def complete(settings: Settings) -> Settings:
    """Return the settings with every option of the task named, so that what was left out is equal to its default.

    Raises UsageError for options that the task does not have, and for settings that it cannot work with.
    """
    this = registry.get(settings.task)
    chosen = task.make_options(this, settings.options)
    if this.documents:
        _check_documents(settings)
    Chain(settings.filter)
    return dataclasses.replace(settings, options=task_options.plain(chosen))


def built_when_written(settings: Settings) -> bool:
    """Return whether records are built when a shard is written, of examples that were spilled without padding."""
    return settings.layout == "packed" or registry.get(settings.task).documents


def _check_documents(settings: Settings) -> None:
    if settings.keep_newlines:
        raise UsageError(
            f"--keep-newlines: {settings.task} hides spans behind {newlines.SENTINEL}, so it cannot stand for a newline. "
            "Leave the flag out"
        )
    if settings.layout != "padded":
        raise UsageError(
            f"--layout {settings.layout}: the rows of {settings.task} are full already. Use --layout padded"
        )
    targets = _target_length(registry.get(settings.task), settings.options, settings.input_length)
    if targets > settings.target_length:
        raise UsageError(
            f"--target-length {settings.target_length}: inputs of {settings.input_length} tokens have targets of {targets}. "
            f"Ask for --target-length {targets}"
        )


def _target_length(this: Task, given: Mapping[str, Any], input_length: int) -> int:
    """Return how many tokens a target has where the spans of documents are hidden."""
    chosen = task.make_options(this, given)
    return span_corruption.lengths(input_length, density=chosen.density, mean_span=chosen.mean_span)[1]

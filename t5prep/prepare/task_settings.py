"""Complete and check settings by the task that they are for."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.prepare.filters.chain import Chain
from t5prep.reading import json_documents, split_files
from t5prep.sources import Resolved
from t5prep.tasks import options as task_options
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask
from t5prep.tokens import newlines, span_corruption
from t5prep.tokens.tokenizer import Tokenizer

DEFAULT_SPLITS = {"train": 0.9, "validation": 0.1}


def choose(definition: Definition, *, options: Mapping[str, Any], source: Resolved, **given: Any) -> Settings:
    """Return whole settings of a task from some: what is not given is the task's default, or follows from the source.

    Raises UsageError.
    """
    task = definition.task
    values: dict[str, Any] = {"input_length": task.input_length, "target_length": task.target_length, **given}
    if values.get("splits") is None:
        values["splits"] = default_splits(source)
    chosen = definition.choose(options)
    if chosen.spans and values["target_length"] == task.target_length:  # as long as inputs of this length need
        values["target_length"] = _target_length(chosen, values["input_length"])
    return complete(Settings(task=definition.name, options=dict(options), **values), chosen)


def with_tokenizer(settings: Settings, task: ChosenTask, tokenizer: Tokenizer) -> Settings:
    """Return the settings as a tokenizer decides them: a target is the number of a class for an encoder.

    Raises UsageError for settings that classes do not go with.
    """
    if settings.target != "class" and not tokenizer.is_encoders:
        return settings
    if not task.classes:
        why = f"{tokenizer.name} is an encoder's tokenizer" if tokenizer.is_encoders else "--target class"
        mend = "take a task with classes (t5prep tasks)"
        if "label_map" in settings.options:
            mend = "name its classes, as in --label-map good=good,bad=bad"
        raise UsageError(
            f"{why}, and {settings.task} has no classes to tell apart: {mend}, or prepare it for a T5 "
            "(--tokenizer google-t5/t5-base)"
        )
    if settings.layout == "packed":
        raise UsageError("--layout packed: a classification has one class for each row. Use --layout padded or ragged")
    if settings.keep_newlines:
        raise UsageError("--keep-newlines is for texts that are written out: leave it out of a classification")
    return dataclasses.replace(settings, target="class", target_length=1, marker="none")


def default_splits(source: Resolved) -> dict[str, float] | None:
    """Return the shares to draw where none were given: none where the source's files are splits themselves."""
    return None if split_files.of_files([file.name for file in source.files]) else dict(DEFAULT_SPLITS)


def complete(settings: Settings, task: ChosenTask) -> Settings:
    """Return the settings with every option of the task named, so that what was left out is equal to its default.

    Raises UsageError for settings that the task cannot work with.
    """
    if task.spans:
        _check_spans(settings, task)
    Chain(settings.filter)
    if settings.records:
        json_documents.check_path(settings.records)
    return dataclasses.replace(settings, options=task_options.plain(task.options))


def _check_spans(settings: Settings, task: ChosenTask) -> None:
    """Raise UsageError for settings that do not go with texts laid end to end."""
    if settings.keep_newlines:
        raise UsageError(
            f"--keep-newlines: {settings.task} hides spans behind {newlines.SENTINEL}, so it cannot stand for a newline. "
            "Leave the flag out"
        )
    if settings.layout != "padded":
        raise UsageError(
            f"--layout {settings.layout}: the rows of {settings.task} are full already. Use --layout padded"
        )
    targets = _target_length(task, settings.input_length)
    if targets > settings.target_length:
        raise UsageError(
            f"--target-length {settings.target_length}: inputs of {settings.input_length} tokens have targets of {targets}. "
            f"Ask for --target-length {targets}"
        )


def _target_length(task: ChosenTask, input_length: int) -> int:
    """Return how many tokens a target has where the spans of texts are hidden."""
    assert task.spans is not None
    return span_corruption.lengths(input_length, **task.spans._asdict())[1]

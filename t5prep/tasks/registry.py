"""Find a task by its name: the built-in corpora, those that installed packages offer, and the user's own files.

A package offers tasks by the entry point group `t5prep.tasks`: a name, and the module that defines its TASK.
"""

import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5prep.errors import TaskError, UsageError, did_you_mean
from t5prep.tasks import chosen_task, corpora, task_file
from t5prep.tasks.chosen_task import ChosenTask
from t5prep.tasks.task import Task

GROUP = "t5prep.tasks"
_BUILT_IN = "t5prep.tasks.corpora"


@dataclasses.dataclass(frozen=True)
class Definition:
    """Hold a task and its definition: `code` is the source of its module, and `file` the user's own file or ""."""

    name: str
    task: Task
    code: bytes
    summary: str
    file: str = ""

    @property
    def sha256(self) -> str:
        """Return the checksum (hex) of the source that defines the task."""
        return hashlib.sha256(self.code).hexdigest()

    def choose(self, given: Mapping[str, Any]) -> ChosenTask:
        """Return the task with the given options. Raises UsageError."""
        return chosen_task.choose(self.name, self.task, given)


def names() -> list[str]:
    """Return the names of all tasks that are installed, sorted."""
    built_in = (module.name for module in pkgutil.iter_modules(corpora.__path__))
    return sorted({*built_in, *_offered()})


def installed() -> tuple[dict[str, Definition], list[str]]:
    """Return all tasks that are installed, by name, and a sentence for each that cannot be loaded."""
    loaded, failures = {}, []
    for name in names():
        try:
            loaded[name] = _installed(name)
        except TaskError as error:
            failures.append(str(error))
    return loaded, failures


def get(name: str) -> Definition:
    """Return the task of a name, or of a file whose name ends in .py.

    Raises UsageError, with the closest known name.
    """
    if name.endswith(".py"):
        return from_code(task_file.read(name), file=name)
    if name not in names():
        raise UsageError(
            f'no task named "{name}".{did_you_mean(name, names())} See all: t5prep tasks. A file of your own is named '
            "with its ending: ./mine.py"
        )
    return _installed(name)


def from_code(code: bytes, *, file: str) -> Definition:
    """Return the task that a user's own file defines. Raises TaskError."""
    module = task_file.run(code, file=file)
    return Definition(task_file.name_of(file), module.TASK, code, _summary(module), file)


@functools.cache
def _installed(name: str) -> Definition:
    module_name = _offered().get(name, "")
    if any(module.name == name for module in pkgutil.iter_modules(corpora.__path__)):
        module_name = f"{_BUILT_IN}.{name}"
    try:
        module = importlib.import_module(module_name)
        code = Path(inspect.getsourcefile(module) or "").read_bytes()
    except Exception as error:
        package = module_name.partition(".")[0]
        raise TaskError(
            f"the task {name}, which the package {package} offers, cannot be loaded: {task_file.said(error)}."
        ) from error
    task_file.check(module, where=module_name)
    return Definition(name, module.TASK, code, _summary(module))


@functools.cache
def _offered() -> dict[str, str]:
    """Return the tasks that installed packages offer: name → module."""
    return {entry.name: entry.module for entry in importlib.metadata.entry_points(group=GROUP)}


def _summary(module: Any) -> str:
    """Return the first line of a task's module: one sentence on what the task does."""
    text = (module.__doc__ or "").strip()
    return text.splitlines()[0] if text else ""

"""The registry of tasks: a task's name is the name of its module in `t5prep/tasks/corpora/`.

A new corpus is one file there that defines TASK (and golden rows under tests/data/); nothing else is edited.
"""

import importlib
import pkgutil

from t5prep.errors import UsageError, did_you_mean
from t5prep.tasks import corpora
from t5prep.tasks.task import Task


def names() -> list[str]:
    """All tasks there are, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(corpora.__path__))


def get(name: str) -> Task:
    """The task of a name. Raises UsageError, with the closest name there is."""
    if name not in names():
        raise UsageError(f'no task named "{name}".{did_you_mean(name, names())} See all: t5prep tasks')
    task: Task = importlib.import_module(f"t5prep.tasks.corpora.{name}").TASK
    return task


def summary(name: str) -> str:
    """The first line of a task's module: what it does, in one sentence."""
    doc = importlib.import_module(f"t5prep.tasks.corpora.{name}").__doc__ or ""
    return doc.strip().splitlines()[0]

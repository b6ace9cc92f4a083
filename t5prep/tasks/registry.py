"""Find a task by its name: a built-in corpus, a task of an installed package, or a user's file.

A package offers tasks by the entry point group `t5prep.tasks`: a name, and the module that defines TASK.
"""

import dataclasses
import functools
import hashlib
import importlib
import inspect
import pkgutil
import re
import sys
import traceback
import types
from collections.abc import Mapping
from pathlib import Path

from t5prep.errors import TaskError, UsageError, did_you_mean
from t5prep.tasks import corpora, task
from t5prep.tasks.task import ChosenTask, Task

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def read(path: str) -> bytes:
    """Return the content of a task's file. Raises TaskError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise TaskError(
            f"The task file {path} does not exist. Name another file, or list all tasks: t5prep tasks",
            code="task.not-found",
        ) from None
    except OSError as error:
        raise TaskError(f"{path} cannot be read ({error.strerror}).", code="task.unreadable") from error


def name_of(file: str) -> str:
    """Return the name of the task that `file` defines, the file's name without its ending.

    >>> name_of("../tasks/headlines.py")
    'headlines'

    Raises TaskError for a name with other characters than letters, digits, - and _, which a manifest cannot hold.
    """
    name = Path(file).name.removesuffix(".py")
    if not _NAME.fullmatch(name):
        raise TaskError(
            f"The file name of {file} is not a valid task name. Rename the file with letters, digits, _ and - only.",
            code="task.invalid-name",
        )
    return name


def run(code: bytes, *, file: str) -> types.ModuleType:
    """Execute the `code` of a task's file and return its module, which has a TASK. Raises a TaskError that names the line."""
    # The module is added to sys.modules under a unique name, because dataclasses look it up there.
    module = types.ModuleType(f"t5prep_task_{hashlib.sha256(code).hexdigest()[:16]}")
    module.__file__ = file
    sys.modules[module.__name__] = module
    try:
        exec(compile(code, file, "exec"), module.__dict__)
    except SyntaxError as error:
        location = f"{file}, line {error.lineno}" if error.lineno else file
        raise TaskError(f"{location}: {error.msg}.", code="task.syntax-error") from error
    except (Exception, SystemExit) as error:
        raise TaskError(
            f"{line_of(error, file) or file}: {describe_error(error)}.", code="task.import-failure"
        ) from error
    check(module, location=file)
    return module


def check(module: types.ModuleType, *, location: str) -> None:
    """Raise a TaskError that names `location` if `module` defines no TASK."""
    task = getattr(module, "TASK", None)
    if not isinstance(task, Task):
        problem = f"its TASK is a {type(task).__name__}" if hasattr(module, "TASK") else "it has no TASK"
        raise TaskError(
            f"{location} defines no task ({problem}). Define TASK = Task(to_example=..., columns=...), "
            "with Task from t5prep.tasks.",
            code="task.missing-definition",
        )


def line_of(error: BaseException, file: str) -> str:
    """Return the last line of `file` in the traceback of an error, such as `headlines.py, line 7`; "" if there is none."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{Path(file).name}, line {lines[-1]}" if lines else ""


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error in one line.

    >>> describe_error(KeyError("title"))
    "KeyError: 'title'"
    """
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": .")


GROUP = "t5prep.tasks"
_BUILT_IN = "t5prep.tasks.corpora"


@dataclasses.dataclass(frozen=True)
class Definition:
    """A task with its name, the source of its module (`code`), a one-line `summary`, and the user's `file`, or ""."""

    name: str
    task: Task
    code: bytes
    summary: str
    file: str = ""

    @property
    def sha256(self) -> str:
        """Return the SHA-256 (hex) of the source that defines the task."""
        return hashlib.sha256(self.code).hexdigest()

    def choose(self, options: Mapping[str, object]) -> ChosenTask:
        """Return the task with `options`. Raises UsageError."""
        return task.choose(self.name, self.task, options)


def names() -> list[str]:
    """Return the names of all installed tasks, sorted."""
    return sorted({*_built_in(), *_offered()})


def installed() -> tuple[dict[str, Definition], list[str]]:
    """Return all installed tasks by name, and a message for each task that cannot be loaded."""
    loaded, failures = {}, []
    for name in names():
        try:
            loaded[name] = _installed(name)
        except TaskError as error:
            failures.append(str(error))
    return loaded, failures


def get(name: str) -> Definition:
    """Return the installed task `name`, or the task in a file if `name` ends in .py.

    Raises UsageError with the closest known name, and TaskError if the task cannot be loaded.
    """
    if name.endswith(".py"):
        return from_code(read(name), file=name)
    return get_installed(name)


def get_installed(name: str) -> Definition:
    """Return the installed task `name`. Raises UsageError, TaskError.

    A name is never taken as a file here: it may come from a stranger's manifest, and a file is code.
    """
    if name not in _built_in() and name not in _offered():
        raise UsageError(
            f'No task is named "{name}".{did_you_mean(name, names())} List all tasks with t5prep tasks, '
            "or name a task file with its suffix: ./mine.py",
            code="task.unknown",
        )
    return _installed(name)


def from_code(code: bytes, *, file: str) -> Definition:
    """Execute the `code` of a user's file and return the task that it defines. Raises TaskError."""
    module = run(code, file=file)
    return Definition(name_of(file), module.TASK, code, _summary(module), file)


@functools.cache
def _installed(name: str) -> Definition:
    module_name = f"{_BUILT_IN}.{name}" if name in _built_in() else _offered().get(name, "")
    try:
        module = importlib.import_module(module_name)
        code = Path(inspect.getsourcefile(module) or "").read_bytes()
    except (Exception, SystemExit) as error:
        package = module_name.partition(".")[0]
        raise TaskError(
            f"The task {name} of the package {package} cannot be loaded: {describe_error(error)}.",
            code="task.import-failure",
        ) from error
    check(module, location=module_name)
    return Definition(name, module.TASK, code, _summary(module))


@functools.cache
def _built_in() -> frozenset[str]:
    """Return the names of the tasks that come with t5prep."""
    return frozenset(module.name for module in pkgutil.iter_modules(corpora.__path__))


@functools.cache
def _offered() -> dict[str, str]:
    """Return the tasks of installed packages: name → module."""
    import importlib.metadata

    return {entry.name: entry.module for entry in importlib.metadata.entry_points(group=GROUP)}


def _summary(module: types.ModuleType) -> str:
    """Return the first line of the docstring of a task's module, a summary of the task."""
    text = (module.__doc__ or "").strip()
    return text.splitlines()[0] if text else ""

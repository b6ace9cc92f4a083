"""Load a task from a user's own file, and report what is wrong with it in one sentence."""

import hashlib
import re
import sys
import traceback
import types
from pathlib import Path

from t5prep.errors import TaskError
from t5prep.tasks.task import Task

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def read(path: str) -> bytes:
    """Return the bytes of a task's file. Raises TaskError."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise TaskError(f"{path} does not exist. Name the file that defines a TASK, or see all: t5prep tasks") from None
    except OSError as error:
        raise TaskError(f"{path} cannot be read ({error.strerror}).") from error


def name_of(file: str) -> str:
    """Return the name of the task in a file.

    >>> name_of("../tasks/headlines.py")
    'headlines'

    Raises TaskError for a name that a manifest cannot hold.
    """
    name = Path(file).name.removesuffix(".py")
    if not _NAME.fullmatch(name):
        raise TaskError(f"{file}: a task's file is named with letters, digits and _, because its name is the task's.")
    return name


def run(code: bytes, *, file: str) -> types.ModuleType:
    """Return the module that a task's file defines, with its TASK. Raises TaskError that names the line."""
    # The module is added to sys.modules under a unique name, because dataclasses look it up there.
    module = types.ModuleType(f"t5prep_task_{hashlib.sha256(code).hexdigest()[:16]}")
    module.__file__ = file
    sys.modules[module.__name__] = module
    try:
        exec(compile(code, file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise TaskError(f"{file}, line {error.lineno}: {error.msg}.") from error
    except Exception as error:
        raise TaskError(f"{line_of(error, file) or file}: {said(error)}.") from error
    check(module, where=file)
    return module


def check(module: types.ModuleType, *, where: str) -> None:
    """Raise TaskError for a module that defines no TASK."""
    task = getattr(module, "TASK", None)
    if not isinstance(task, Task):
        what = f"its TASK is a {type(task).__name__}" if hasattr(module, "TASK") else "it has none"
        raise TaskError(f"{where} must define TASK = Task(to_example=..., columns=...), from t5prep.tasks; {what}.")


def line_of(error: BaseException, file: str) -> str:
    """Return the last line of a file that an error passed through, as `headlines.py, line 7`; "" if there is none."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{Path(file).name}, line {lines[-1]}" if lines else ""


def said(error: BaseException) -> str:
    """Return the type and text of an error in one line.

    >>> said(KeyError("title"))
    "KeyError: 'title'"
    """
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": .")

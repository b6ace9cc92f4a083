"""Compute a digest of the code that makes tokens of rows; edits of comments and docstrings do not change it."""

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import t5prep

# The code begins here, and goes on in what it imports from these folders.
_START = (
    *("t5prep.prepare.block_tokenizer", "t5prep.prepare.column_tokenizer", "t5prep.prepare.feature_table"),
    *("t5prep.reading.parallel_files", "t5prep.prepare.evaluation_leaks"),
)
_FOLDERS = (
    *("t5prep.reading.", "t5prep.tasks.", "t5prep.tokens."),
    *("t5prep.prepare.filters.", "t5prep.prepare.near_duplicates."),
)
_ROOT = Path(t5prep.__file__).parents[1]


def digest(sources: Iterable[str | bytes]) -> str:
    """Return 32 hex digits of what Python sources do, whatever their comments and docstrings say.

    >>> digest(['x = 1  # one']) == digest(['"A module."', 'x = 1']) == digest(['x = 2'])
    False
    >>> digest(['x = 1  # one']) == digest(['"A module."\\nx = 1'])
    True
    """
    hasher = hashlib.blake2b(digest_size=16)
    for source in sources:
        hasher.update(_statements(source) + b"\0")
    return hasher.hexdigest()


@functools.cache
def _statements(source: str | bytes) -> bytes:
    """Return what a source does, without its comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree).encode()


@functools.cache
def of_task(code: bytes, *filters: str) -> str:
    """Return the digest of all code that makes tokens of a task's rows.

    `code` is the source that defines the task, and `filters` are the modules of filters.
    """
    used = (name for name in _imports(code) if _decides(name))
    names = sorted(modules(*_START, *filters, *used))
    return digest([*map(_source, names), code])


def modules(*start: str) -> set[str]:
    """Return the names of these modules and of all that they import from the folders which decide tokens."""
    reached: set[str] = set()
    ahead = list(start)
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += [imported for imported in _imports(_source(name)) if _decides(imported)]
    return reached


def _decides(name: str) -> bool:
    """Return whether a name is that of a module in one of the folders which decide tokens."""
    return name.startswith(_FOLDERS) and _path(name).exists()


@functools.cache
def _imports(source: str | bytes) -> list[str]:
    """Return the name of everything that a source imports, module or not."""
    names = list[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


@functools.cache
def _source(name: str) -> str:
    return _path(name).read_text(encoding="utf-8")


def _path(module: str) -> Path:
    path = _ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

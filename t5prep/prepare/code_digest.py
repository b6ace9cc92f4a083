"""Compute a digest of the code that makes tokens of rows; edits of comments and docstrings do not change it."""

import ast
import contextlib
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import t5prep
from t5prep.errors import OutputError
from t5prep.io import atomic_files

# The code begins here, and goes on in what it imports from these folders.
_START = (
    *("t5prep.prepare.block_tokenizer", "t5prep.prepare.block_examples", "t5prep.prepare.feature_table"),
    *("t5prep.reading.parallel_files", "t5prep.tokens.featurizer", "t5prep.prepare.evaluation_leaks"),
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


def kept_of_task(folder: Path, code: bytes, *filters: str) -> str:
    """Return the same digest from a file in that folder, where it is kept until a byte of the code changes.

    Parsing the code takes a sixth of a second, which is a sixth of a small run.
    """
    hasher = hashlib.blake2b(repr([code, filters]).encode(), digest_size=16)
    for package in sorted({name.split(".")[1] for name in (*_START, *_FOLDERS)}):
        for path in sorted((_ROOT / "t5prep" / package).rglob("*.py")):
            hasher.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes() + b"\0")
    path = folder / "code" / hasher.hexdigest()
    with contextlib.suppress(OSError):
        if len(kept := path.read_text(encoding="ascii")) == 32:  # a power cut may have cut it
            return kept
    code_digest = of_task(code, *filters)
    with contextlib.suppress(OutputError):
        atomic_files.write_scratch(path, code_digest.encode())
    return code_digest


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

"""Cache the tables of tokenized blocks for later runs, by what decides them: rows, settings, tokenizer, and code."""

import ast
import contextlib
import functools
import hashlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from t5prep import _native
from t5prep.dataset.settings import Settings
from t5prep.errors import OutputError
from t5prep.io import signed_files
from t5prep.io.store import Store
from t5prep.reading import blocks, parquet_rows
from t5prep.reading.blocks import Block

# The packages whose code makes tokens of rows.
_PACKAGES = ("preparation", "reading", "tasks", "tokens")


@functools.cache
def digest_of_code(task: bytes) -> str:
    """Return a digest, in 32 hex digits, of the code that makes tokens of a task's rows: t5prep's own, and the task's module.

    Comments and docstrings of the task have no influence.

    >>> digest_of_code(b'x = 1  # one') == digest_of_code(b'"A module."\\nx = 1'), digest_of_code(b"1") == digest_of_code(b"2")
    (True, False)
    """
    tree = ast.parse(task)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return hashlib.blake2b(_own_code() + ast.dump(tree).encode(), digest_size=16).hexdigest()


@functools.cache
def _own_code() -> bytes:
    """Return a digest of the installed code in _PACKAGES and of the extension in C."""
    hasher, root = hashlib.blake2b(digest_size=16), Path(__file__).parents[1]
    for path in sorted(path for name in _PACKAGES for path in (root / name).rglob("*.py")):
        hasher.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    hasher.update(Path(_native.__file__).read_bytes())
    return hasher.digest()


# The cache: tables under the digest of what decides them, within a limit on disk.
# A killed run finds its finished blocks. A run that differs only in seed, splits, shards or layout finds all blocks.

# Types of ids in memory and in the cache: the narrow type takes half of the bytes, and fits most vocabularies.
_WIDE, _NARROW = pa.list_(pa.int32()), pa.list_(pa.uint16())
# A file in the cache's folder. While it exists, nothing is added.
_FULL = "full"


def key(settings: Settings, *, tokenizer: str, code: str) -> str:
    """Return a digest, in 32 hex digits, of everything but the row that decides a row's tokens.

    It covers each field of the settings that declares `changes_tokens`, the tokenizer's SHA-256, and the digest of
    the code. Seed, splits, shards and layout are excluded: they only place tokenized rows.
    """
    text = json.dumps([settings.token_choices(), tokenizer, code], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class TokenCache:
    """Find and add tables of blocks of one preparation. With `fresh`, none is found."""

    def __init__(self, folder: Path, *, key: str, fresh: bool = False) -> None:
        self._store, self._full_marker, self._key, self._fresh = _store(folder), folder / _FULL, key, fresh

    def name_of(self, block: Block, *, columns: Sequence[str]) -> str:
        """Return the name of a block's table: a digest of the cache's key and of the bytes that are read for the block."""
        key_text = f"{self._key} {block.format} {block.columns} {block.rows} {block.skip} "
        hasher = hashlib.blake2b(key_text.encode(), digest_size=20)
        if block.format.kind != "parquet":
            hasher.update(blocks.content(block))
        elif "://" in block.file.path:
            # The checksum identifies the version, because reading a remote file twice would cost more than
            # tokenizing.
            hasher.update(f"{block.file.path} {block.file.checksum} {block.begin}".encode())
        else:
            hasher.update(parquet_rows.digest(block.file, block.begin, columns=columns))
        return hasher.hexdigest()

    def find(self, name: str) -> pa.Table | None:
        """Return the table of that name and mark it as used now, or None if there is none."""
        name = _path(name)
        if not self._fresh and (content := self._store.get(name)) is not None:
            with contextlib.suppress(OSError, pa.ArrowInvalid):
                os.utime(self._store.path(name))
                table = pa.ipc.open_file(pa.py_buffer(content)).read_all()
                wide = [field.with_type(_WIDE) if field.type == _NARROW else field for field in table.schema]
                return table.cast(pa.schema(wide))
        return None

    def keep(self, name: str, table: pa.Table) -> None:
        """Add a table, unless the cache or the disk is full."""
        if self._full_marker.exists():  # a marker that a process writes when the cache has reached its limit
            return
        table, sink = _narrowed(table), pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        with contextlib.suppress(OutputError):
            self._store.put(_path(name), sink.getvalue().to_pybytes())


def _store(folder: Path) -> Store:
    """Return the store of tables, which are not signed but checksummed: a damaged disk must not change tokens."""
    return Store(str(folder), ".arrow", signed_files.CHECKSUM)


def _path(name: str) -> str:
    """Return the path of a name in one of 256 subfolders."""
    return f"{name[:2]}/{name}"


def _narrowed(table: pa.Table) -> pa.Table:
    """Return the table with each column of ids in the narrow type, if all of its ids fit."""
    for index, field in enumerate(table.schema):
        if field.type != _WIDE:
            continue
        ids = [lists.values.to_numpy().view(np.uint32) for lists in table.column(index).chunks]
        if all(chunk_ids.max(initial=0) < 1 << 16 for chunk_ids in ids):  # Arrow would check each id again
            table = table.set_column(index, field.name, table.column(index).cast(_NARROW, safe=False))
    return table


def bound(folder: Path, *, limit: int, began: float) -> float:
    """Remove the least recently used blocks until the cache fits into `limit` bytes, and return the bytes that still fit.

    Blocks used since `began` stay, because a resumed run needs them. If these alone exceed the limit, no more are
    added, and infinity is returned.
    """
    total, full = _store(folder).trim(limit, cutoff=began), folder / _FULL
    with contextlib.suppress(OSError):  # an unwritable folder stays unchanged
        if total <= limit:
            full.unlink(missing_ok=True)
        else:
            full.touch()
    return limit - total if total <= limit else math.inf

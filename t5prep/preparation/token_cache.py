"""Keep the tables of tokenized blocks for later runs, by what they were made of: rows, settings, tokenizer, and code."""

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
_PACKAGES = ("prepare", "reading", "tasks", "tokens")


def digest_of_code(task: bytes) -> str:
    """Return 32 hex digits of the code that makes tokens of a task's rows: of t5prep's own, and of the task's module.

    The digest of a task follows from what its source does, whatever its comments and docstrings say.

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
    """Return a digest of all installed code that makes tokens of rows, what is in C included."""
    hasher, root = hashlib.blake2b(digest_size=16), Path(__file__).parents[1]
    for path in sorted(path for name in _PACKAGES for path in (root / name).rglob("*.py")):
        hasher.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    hasher.update(Path(_native.__file__).read_bytes())
    return hasher.digest()


# Keep tokenized blocks for the next run, under the digest of what made them, and within a bound on disk.
#
# A run that was killed finds what it had done, and a run that differs only in seed, splits, shards or layout finds all.

# Ids as they are used, and as they are kept: half as large, and most vocabularies fit.
_WIDE, _NARROW = pa.list_(pa.int32()), pa.list_(pa.uint16())
# Beside the blocks: while it is there nothing more is kept.
_FULL = "full"


def key(settings: Settings, *, tokenizer: str, code: str) -> str:
    """Return what decides the tokens of a row besides the row, as 32 hex digits.

    That is every field of the settings which declares so, the tokenizer's SHA-256, and the digest of the code. Seed,
    splits, shards and layout are not in it: they only place what is tokenized.
    """
    text = json.dumps([settings.token_choices(), tokenizer, code], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class TokenCache:
    """Find and keep the tables of one preparation's blocks. `fresh` finds none that an earlier run has kept."""

    def __init__(self, folder: Path, *, key: str, fresh: bool = False) -> None:
        self._store, self._full, self._key, self._fresh = _store(folder), folder / _FULL, key, fresh

    def name_of(self, block: Block, *, columns: Sequence[str]) -> str:
        """Return the name of a block's table: a digest of how it is tokenized, and of the bytes that are read for it."""
        key_text = f"{self._key} {block.format} {block.columns} {block.rows} {block.skip} "
        hasher = hashlib.blake2b(key_text.encode(), digest_size=20)
        if block.format.kind != "parquet":
            hasher.update(blocks.content(block))
        elif "://" in block.file.path:
            # Its name says which version it is; reading it twice would cost more than tokenizing.
            hasher.update(f"{block.file.path} {block.file.checksum} {block.begin}".encode())
        else:
            hasher.update(parquet_rows.digest(block.file, block.begin, columns=columns))
        return hasher.hexdigest()

    def find(self, name: str) -> pa.Table | None:
        """Return the table of that name, and mark it as used now; None if there is none."""
        name = _path(name)
        if not self._fresh and (content := self._store.get(name)) is not None:
            with contextlib.suppress(OSError, pa.ArrowInvalid):
                os.utime(self._store.path(name))
                table = pa.ipc.open_file(pa.py_buffer(content)).read_all()
                wide = [field.with_type(_WIDE) if field.type == _NARROW else field for field in table.schema]
                return table.cast(pa.schema(wide))
        return None

    def keep(self, name: str, table: pa.Table) -> None:
        """Keep a table, unless there is no room: then the run goes on without."""
        if self._full.exists():
            return
        table, sink = _narrowed(table), pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        with contextlib.suppress(OutputError):
            self._store.put(_path(name), sink.getvalue().to_pybytes())


def _store(folder: Path) -> Store:
    """Return the store of tables. They are not signed, but a disk that flips a bit must not make other tokens."""
    return Store(str(folder), ".arrow", signed_files.CHECKSUM)


def _path(name: str) -> str:
    return f"{name[:2]}/{name}"


def _narrowed(table: pa.Table) -> pa.Table:
    """Return the table with each column of ids as _NARROW, where all of its ids fit."""
    for index, field in enumerate(table.schema):
        if field.type != _WIDE:
            continue
        ids = [lists.values.to_numpy().view(np.uint32) for lists in table.column(index).chunks]
        if all(chunk_ids.max(initial=0) < 1 << 16 for chunk_ids in ids):  # known: Arrow would look at each id again
            table = table.set_column(index, field.name, table.column(index).cast(_NARROW, safe=False))
    return table


def bound(folder: Path, *, limit: int, began: float) -> float:
    """Remove blocks, the longest unused first, until they fit into `limit` bytes; return how many more bytes fit.

    Those used since `began` stay, for a run that begins again: where they alone are too many, no more are kept, and
    infinity is returned.
    """
    total, full = _store(folder).trim(limit, cutoff=began), folder / _FULL
    with contextlib.suppress(OSError):  # a folder that cannot be written keeps what it has
        if total <= limit:
            full.unlink(missing_ok=True)
        else:
            full.touch()
    return limit - total if total <= limit else math.inf

"""All choices of one preparation, in one frozen value that travels to every worker."""

import dataclasses
import functools
import hashlib
import importlib
import inspect
import json
from typing import Any

from t5prep.errors import UsageError
from t5prep.tasks import registry, task
from t5prep.tokens import newlines, span_corruption
from t5prep.tokens.truncation import MARKERS, POLICIES

LAYOUTS = ("padded", "ragged", "packed")
DEDUPS = ("none", "exact")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides a dataset's bytes, besides its source and its tokenizer.

    `splits` are shares to draw by the id's hash, or None where the source's files are splits themselves. `shards` are
    those of the largest split, or None to choose. `options` are the task's own. With `dedup` "exact" a text is placed by
    what it says instead of its id, so that the same text is found wherever it stands. With `keep_newlines` a newline is a
    token (newlines.SENTINEL) instead of a space.
    """

    task: str
    options: dict[str, Any]
    input_length: int
    target_length: int
    truncation: str = "head_tail"
    marker: str = "extra_id_1"
    layout: str = "padded"
    masks: bool = False
    dedup: str = "none"
    splits: dict[str, float] | None = None
    shards: int | None = None
    seed: int = 0
    limit: int | None = None
    format: str = ""
    encoding: str = "utf-8"
    keep_newlines: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for a value that cannot work."""
        for name, value, known in (
            ("truncation", self.truncation, POLICIES),
            ("marker", self.marker, MARKERS),
            ("layout", self.layout, LAYOUTS),
            ("dedup", self.dedup, DEDUPS),
        ):
            if value not in known:
                raise UsageError(f'--{name} "{value}": it is one of {", ".join(known)}')
        if self.input_length < 4:
            raise UsageError(f"--input-length {self.input_length}: an input needs at least 4 tokens")
        if self.target_length < 2:
            raise UsageError(f"--target-length {self.target_length}: a target needs a token and EOS, so at least 2")
        if registry.get(self.task).documents:
            self._check_documents()
        if self.masks and self.layout != "padded":
            raise UsageError(f"--masks goes with --layout padded, not with {self.layout}: other layouts need no masks")

    def _check_documents(self) -> None:
        if self.keep_newlines:
            raise UsageError(
                f"--keep-newlines: {self.task} hides spans behind {newlines.SENTINEL}, so it cannot stand for a newline. "
                "Leave the flag out"
            )
        if self.layout != "padded":
            raise UsageError(f"--layout {self.layout}: the rows of {self.task} are full already. Use --layout padded")
        options = task.make_options(registry.get(self.task), self.options)
        _, targets = span_corruption.lengths(self.input_length, density=options.density, mean_span=options.mean_span)
        if targets > self.target_length:
            raise UsageError(
                f"--target-length {self.target_length}: inputs of {self.input_length} tokens have targets of {targets}. "
                f"Ask for --target-length {targets}"
            )

    @property
    def newlines(self) -> newlines.Newlines:
        """What a newline becomes, as the manifest says it."""
        return newlines.SENTINEL if self.keep_newlines else newlines.SPACE

    @property
    def arranged(self) -> bool:
        """Whether records are made when a shard is gathered, of examples that were placed bare: without padding."""
        return self.layout == "packed" or registry.get(self.task).documents

    def tokenizing(self, tokenizer_sha256: str) -> str:
        """What decides the tokenized form of a row, as 32 hex digits: the key under which it is kept.

        Seed, splits, shards and layout are not in it: they only place what is tokenized.
        """
        said = [self.task, self.options, self.input_length, self.target_length, self.truncation, self.marker]
        said += [self.dedup, self.keep_newlines]
        text = json.dumps([*said, self.format, self.encoding, tokenizer_sha256, code_digest(self.task)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@functools.cache
def code_digest(name: str) -> str:
    """Digest of the code that makes rows of bytes, and features of a task's rows: what other code tokenized is not reused."""
    modules = (
        f"t5prep.tasks.corpora.{name}",
        "t5prep.tasks.html",
        "t5prep.prepare.block_tokenizer",
        *(f"t5prep.reading.{name}" for name in ("blocks", "csv_by_arrow", "csv_rows", "encodings", "line_rows")),
        *(f"t5prep.reading.{name}" for name in ("parallel_files", "parquet_rows", "row_ends", "text_block", "values")),
        *(f"t5prep.tokens.{name}" for name in ("encoder", "block_encoder", "newlines", "tokenizer", "truncation")),
    )
    digest = hashlib.blake2b(digest_size=16)
    for module in modules:
        digest.update(inspect.getsource(importlib.import_module(module)).encode())
    return digest.hexdigest()

"""A block of rows becomes a table of features: tokenized once, kept, and placed as often as one likes."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset.settings import Settings
from t5prep.errors import Reject, SourceError
from t5prep.prepare import code_digest, column_tokenizer, token_cache
from t5prep.prepare.column_tokenizer import ColumnTokenizer
from t5prep.prepare.feature_table import SCHEMA
from t5prep.prepare.filters.chain import Chain, Filtered
from t5prep.prepare.near_duplicates.shingles import shingles
from t5prep.reading import blocks, columns
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Row
from t5prep.tasks import registry, task
from t5prep.tasks.example import Example, text_of
from t5prep.tasks.html import folded
from t5prep.tokens.encoder import DocumentEncoder, Encoder, Features
from t5prep.tokens.tokenizer import Tokenizer


class BlockTokenizer:
    """Tokenizes blocks of one task. `folder` is where tables are kept for the next run; `fresh` looks for none there.

    `found` says whether the last block was found.
    """

    def __init__(
        self, settings: Settings, tokenizer: Tokenizer, *, folder: Path | None = None, fresh: bool = False
    ) -> None:
        self._task = registry.get(settings.task)
        self._options = task.make_options(self._task, settings.options)
        self._columns = tuple(self._task.columns(self._options))
        self._names = task.column_names(self._columns)
        self._id_column = self._task.id_column(self._options)
        self._encode: Callable[[Sequence[Example]], list[Features | Reject]] = (
            DocumentEncoder(tokenizer)
            if self._task.documents
            else Encoder(
                tokenizer,
                input_length=settings.input_length,
                target_length=settings.target_length,
                policy=settings.truncation,
                marker=settings.marker,
                keep_newlines=settings.keep_newlines,
            )
        )
        template = self._task.template(self._options)
        self._by_columns = None
        if template and column_tokenizer.usable(settings) and set(template.columns) == set(self._names):
            self._by_columns = ColumnTokenizer(template, settings, tokenizer)
        self._filters = Chain(settings.filter)
        self._dedup, self._near_words = settings.dedup, settings.near_words
        self._kept, self._fresh, self.found = folder, fresh, False
        if folder is not None:
            code = code_digest.of_task(f"t5prep.tasks.corpora.{settings.task}", *self._filters.modules)
            code += "".join(self._filters.files().values())
            self._key = token_cache.key(settings, tokenizer=tokenizer.sha256, code=code)

    def __call__(self, block: Block) -> pa.Table:
        """The table (SCHEMA) of a block; row numbers count from the block's first row, so that they can be reused."""
        self.found = False
        if self._kept is None:
            return self._tokenize(block)
        if block.format.kind != "parquet":
            block = dataclasses.replace(block, data=blocks.content(block))  # read once
        name = token_cache.digest(self._key, block, columns=self._names)
        if not self._fresh and (table := token_cache.find(self._kept, name)) is not None:
            self.found = True
            return table
        table = self._tokenize(block)
        token_cache.keep(self._kept, name, table)
        return table

    def _tokenize(self, block: Block) -> pa.Table:
        if block.columns and (missing := task.missing_column(self._columns, block.columns)):
            raise SourceError(f"{block.file.name} has no column {missing}")
        if self._by_columns is None:
            return self._by_rows(block, [row for row in blocks.read(block, columns=self._names) if not row.blank])
        read = columns.read(block, columns=self._names)
        table, described = self._by_columns(read.table, read.numbers - block.first_row)
        left = np.flatnonzero(~described)
        records = read.table.take(pa.array(left)).to_pylist()
        others = [*read.others, *map(Row, read.numbers[left].tolist(), records)]
        if not others:
            return table
        rest = self._by_rows(block, sorted(others, key=lambda row: row.number))
        both = pa.concat_tables([table, rest])
        return both.take(pc.sort_indices(both["row"])).combine_chunks()

    def _by_rows(self, block: Block, rows: list[Row]) -> pa.Table:
        """Return the table of some rows of a block, made one by one by the task's own function."""
        examples = [self._example(row) for row in rows]
        encoded = iter(self._encode([one.example for one in examples if isinstance(one, Filtered)]))
        made = [next(encoded) if isinstance(one, Filtered) else one for one in examples]
        return self._table(block, rows, examples, made)

    def _example(self, row: Row) -> Filtered | str:
        """Return the example of a row as filters left it, or why it makes none."""
        if row.record is None:
            return row.reason
        try:
            return self._filters(self._task.to_example(row.record, self._options))
        except Reject as reject:
            return str(reject)
        except KeyError as error:
            if error.args[0] not in self._names:
                raise
            return f"missing field: {error.args[0]}"

    def _id(self, row: Row) -> str | None:
        id = (row.record or {}).get(self._id_column)
        return None if id is None else str(id)

    def _table(
        self,
        block: Block,
        rows: list[Row],
        examples: list[Filtered | str],
        made: list[Features | Reject | str],
    ) -> pa.Table:
        """The table of a block's rows, column by column: a Python loop over rows and columns would cost as much as CSV."""
        kept = [features if isinstance(features, Features) else _NOTHING for features in made]
        filtered = [one if isinstance(one, Filtered) else _NO_EXAMPLE for one in examples]
        good = [one.example for one in filtered]
        ids = [example.id for example in good]
        reasons = [self._reason(one, features) for one, features in zip(filtered, made, strict=True)]
        for i in (i for i, reason in enumerate(reasons) if reason is not None):
            ids[i], kept[i] = self._id(rows[i]), _NOTHING._replace(tokens=kept[i].tokens)
        columns = {
            "row": np.fromiter((row.number for row in rows), np.int64, len(rows)) - block.first_row,
            "id": ids,
            "reason": reasons,
            "split": [example.split for example in good],
            "inputs": _lists([features.inputs for features in kept]),
            "labels": _lists([[features.labels] for features in kept]),
            "references": [example.references for example in good],
            "tokens": [features.tokens for features in kept],
            "target_tokens": [features.target_tokens for features in kept],
            "markup": [features.markup for features in kept],
            "same": [_digest(example) if self._dedup == "exact" else None for example in good],
            "shingles": self._shingles(good),
            "changed": [one.changed or None for one in filtered],
        }
        return pa.table(
            [
                column if isinstance(column, pa.Array) else pa.array(column, SCHEMA.field(name).type)
                for name, column in columns.items()
            ],
            schema=SCHEMA,
        )

    def _reason(self, filtered: Filtered, features: Features | Reject | str) -> str | None:
        """Return why a row makes no example, or None where it makes one."""
        if not isinstance(features, Features):
            return filtered.reason or str(features)
        return filtered.reason or self._filters.judge_tokens(features.tokens) or None

    def _shingles(self, examples: list[Example]) -> pa.Array:
        """Return the shingles of each example's input, as lists of uint64; nulls where no near-duplicates are looked for."""
        if self._dedup != "near":
            return pa.nulls(len(examples), SCHEMA.field("shingles").type)
        found = shingles([text_of(example.inputs) for example in examples], words=self._near_words)
        return pa.ListArray.from_arrays(pa.array(found.begins.astype(np.int32)), pa.array(found.hashes))


_NOTHING = Features([], np.zeros(0, np.int32), 0, 0, False)
_NO_EXAMPLE = Filtered(Example(None, "", ""))


def _lists(pieces: list[list[np.ndarray]]) -> pa.ListArray:
    """Lists of ids, each given in pieces, as one array: all pieces are joined once."""
    lengths = np.fromiter((sum(map(len, parts)) for parts in pieces), np.int32, len(pieces))
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    ids = np.concatenate([np.zeros(0, np.int32), *itertools.chain.from_iterable(pieces)])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(ids))


def _digest(example: Example) -> str:
    """What is the same for the same text, as 32 hex digits."""
    text = folded(text_of(example.inputs))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

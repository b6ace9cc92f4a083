"""Tokenize a block of rows into an Arrow table that can be cached across seeds, splits and layouts."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset import targets
from t5prep.dataset.settings import Settings
from t5prep.errors import Reject, SourceError, T5prepError, TaskError
from t5prep.prepare import column_tokenizer, earlier_texts
from t5prep.prepare.column_tokenizer import ColumnTokenizer
from t5prep.prepare.earlier_records import text_of_ids
from t5prep.prepare.earlier_texts import EarlierTexts
from t5prep.prepare.evaluation_leaks import Leaks
from t5prep.prepare.feature_table import SCHEMA
from t5prep.prepare.filters.chain import Chain, Filtered
from t5prep.prepare.near_duplicates.shingles import shingles
from t5prep.prepare.token_cache import TokenCache
from t5prep.reading import blocks, columns, values
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Row
from t5prep.tasks import columns as task_columns
from t5prep.tasks import task_file
from t5prep.tasks.chosen_task import ChosenTask
from t5prep.tasks.example import Example, not_utf8, problem, text_of
from t5prep.tokens.encoder import DocumentEncoder, Features
from t5prep.tokens.tokenizer import Tokenizer


class TokenizedBlock(NamedTuple):
    """Hold the table (SCHEMA) of a block, and whether an earlier run had tokenized it.

    Row numbers count from the block's first row, so that the table fits wherever the block stands.
    """

    table: pa.Table
    found: bool


class BlockTokenizer:
    """Tokenize blocks of one task; threads may share it. With a `cache`, tables are kept for the next run.

    `leaks` are the evaluation sets that no row may share a text with, `earlier` the texts that no row may repeat.
    """

    def __init__(
        self,
        settings: Settings,
        task: ChosenTask,
        tokenizer: Tokenizer,
        *,
        cache: TokenCache | None = None,
        leaks: Leaks | None = None,
        earlier: EarlierTexts | None = None,
    ) -> None:
        self._task, self._columns, self._cache = task, task.columns, cache
        self._encode: Callable[[Sequence[Example]], list[Features | Reject]] = (
            DocumentEncoder(tokenizer) if task.spans else targets.encoder_of(settings, tokenizer, classes=task.classes)
        )
        self._by_columns = None
        template = task.template
        if template and column_tokenizer.usable(settings) and set(template.columns) == set(self._columns.first_names):
            self._by_columns = ColumnTokenizer(template, settings, tokenizer, classes=task.classes)
        self._group = settings.group_column
        self._read = tuple(dict.fromkeys([*self._columns.names, *([self._group] if self._group else [])]))
        self._filters, self._leaks, self._earlier = Chain(settings.filter), leaks, earlier
        self._dedup, self._near_words = settings.dedup, settings.near_words
        # Earlier records are known as they were cut, so the new ones are compared as they are cut.
        self._cut_by = tokenizer if settings.dedup_against else None

    def __call__(self, block: Block) -> TokenizedBlock:
        """Return the table of a block. Raises SourceError for a missing column, TaskError where the task fails at a row."""
        if self._cache is None:
            return TokenizedBlock(self._tokenize(block), found=False)
        if block.format.kind != "parquet":
            block = dataclasses.replace(block, data=blocks.content(block))  # read once
        name = self._cache.name_of(block, columns=self._read)
        if (cached := self._cache.find(name)) is not None:
            return TokenizedBlock(cached, found=True)
        table = self._tokenize(block)
        self._cache.keep(name, table)
        return TokenizedBlock(table, found=False)

    def _tokenize(self, block: Block) -> pa.Table:
        wanted = [*self._columns.all, *([self._group] if self._group else [])]
        if block.columns and (lacks := task_columns.missing(wanted, block.columns)):
            raise SourceError(f"{block.file.name} has no column {lacks}")
        names = self._columns.names_in(block.columns)
        if self._by_columns is None or names is None:
            return self._by_rows(block, [row for row in blocks.read(block, columns=self._read) if not row.blank])
        read = columns.read(block, columns=names)
        renamed = read.table.select(list(names)).rename_columns(list(self._columns.first_names))
        table, described = self._by_columns(renamed, read.numbers - block.first_row)
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
        examples = self._without_evaluation_texts([self._example(row, block) for row in rows])
        try:
            return self._of_examples(block, rows, examples)
        except UnicodeEncodeError:  # a task or a filter of the user's made what is no text
            return self._of_examples(block, rows, [_text_or_reason(one) for one in examples])

    def _of_examples(self, block: Block, rows: list[Row], examples: list[Filtered | str]) -> pa.Table:
        """Return the table of rows with these examples, or reasons. Raises UnicodeEncodeError for half a surrogate pair."""
        encoded = iter(self._encode([one.example for one in examples if isinstance(one, Filtered)]))
        encoded_or_reason = [next(encoded) if isinstance(one, Filtered) else one for one in examples]
        return self._table(block, rows, examples, encoded_or_reason)

    def _example(self, row: Row, block: Block) -> Filtered | str:
        """Return the example of a row as filters left it, or why it makes none. Raises TaskError where the task fails."""
        if row.record is None:
            return row.reason
        try:
            example = self._task.to_example(row.record)
            if self._group:
                values.text(row.record, self._group, "")  # raises Reject for a list
        except Reject as reject:
            return str(reject)
        except KeyError as error:
            if error.args[0] in self._columns.names:
                return f"missing field: {error.args[0]}"
            raise self._failed(row, block, error) from error
        except T5prepError:
            raise
        except Exception as error:
            raise self._failed(row, block, error) from error
        if wrong := problem(example):
            raise self._failed(row, block, TypeError(wrong))
        return self._filters(example)

    def _failed(self, row: Row, block: Block, error: Exception) -> TaskError:
        """Return the error of a task that fails at a row, as a sentence that names the line of its code."""
        code = getattr(self._task.task.to_example, "__code__", None)
        where = task_file.line_of(error, code.co_filename) if code else ""
        return TaskError(
            f"the task {self._task.name} fails at {block.file.name}, row {row.number}: {task_file.said(error)}"
            f"{f' ({where})' if where else ''}. Mend its to_example, or let it raise Reject for such rows."
        )

    def _without_evaluation_texts(self, examples: list[Filtered | str]) -> list[Filtered | str]:
        """Return examples of which those that stand in an evaluation set have that as their reason."""
        if self._leaks is None:
            return examples
        texts = ["" if isinstance(one, str) else text_of(one.example.inputs) for one in examples]
        return [
            one if isinstance(one, str) or one.reason or not leak else Filtered(one.example, leak)
            for one, leak in zip(examples, self._leaks.find(texts), strict=True)
        ]

    def _id(self, row: Row) -> str | None:
        id = (row.record or {}).get(self._columns.id_name)
        return None if id is None else str(id)

    def _group_of(self, row: Row) -> str | None:
        """Return the group that a row belongs to, None where it has none."""
        group = (row.record or {}).get(self._group) if self._group else None
        return None if group in (None, "") else str(group)

    def _table(
        self,
        block: Block,
        rows: list[Row],
        examples: list[Filtered | str],
        made: list[Features | Reject | str],
    ) -> pa.Table:
        """Return the table of a block's rows, made column by column: a loop over all values would cost as much as CSV."""
        kept_features = [features if isinstance(features, Features) else _NOTHING for features in made]
        filtered = [one if isinstance(one, Filtered) else _NO_EXAMPLE for one in examples]
        good = [one.example for one in filtered]
        texts = self._compared(good, kept_features)
        ids = [example.id for example in good]
        reasons = [self._reason(one, features) for one, features in zip(filtered, made, strict=True)]
        if self._earlier:
            repeated = self._earlier.find([earlier_texts.digest(text) for text in texts])
            reasons = [reason or again or None for reason, again in zip(reasons, repeated, strict=True)]
        for i in (i for i, reason in enumerate(reasons) if reason is not None):
            ids[i], kept_features[i] = self._id(rows[i]), _NOTHING._replace(tokens=kept_features[i].tokens)
        columns = {
            "row": np.fromiter((row.number for row in rows), np.int64, len(rows)) - block.first_row,
            "id": ids,
            "reason": reasons,
            "split": [example.split for example in good],
            "inputs": _lists([features.inputs for features in kept_features]),
            "labels": _lists([[features.labels] for features in kept_features]),
            "references": [example.references for example in good],
            "tokens": [features.tokens for features in kept_features],
            "target_tokens": [features.target_tokens for features in kept_features],
            "markup": [features.markup for features in kept_features],
            "same": [text_digest(example) if self._dedup == "exact" else None for example in good],
            "group": [self._group_of(row) for row in rows],
            "shingles": self._shingles(texts),
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

    def _compared(self, examples: list[Example], features: list[Features]) -> list[str]:
        """Return the text of which each example's shingles are, and by which it is looked up among earlier ones."""
        if self._cut_by is None:
            return [text_of(example.inputs) if self._dedup == "near" else "" for example in examples]
        return [
            text_of_ids(np.concatenate([np.zeros(0, np.int32), *one.inputs]).tolist(), self._cut_by) for one in features
        ]

    def _shingles(self, texts: list[str]) -> pa.Array:
        """Return the shingles of each text, as lists of uint64; nulls where no near-duplicates are looked for."""
        if self._dedup != "near":
            return pa.nulls(len(texts), SCHEMA.field("shingles").type)
        hashed = shingles(texts, words=self._near_words)
        return pa.ListArray.from_arrays(pa.array(hashed.begins.astype(np.int32)), pa.array(hashed.hashes))


_NOTHING = Features([], np.zeros(0, np.int32), 0, 0, False)
_NO_EXAMPLE = Filtered(Example(None, "", ""))


def _text_or_reason(one: Filtered | str) -> Filtered | str:
    """Return an example whose texts are UTF-8, or why it makes none; a reason is written so that it is UTF-8 itself."""
    if isinstance(one, Filtered):
        return not_utf8(one.example) or one
    return one.encode(errors="backslashreplace").decode()


def _lists(pieces: list[list[np.ndarray]]) -> pa.ListArray:
    """Return lists of ids, each given in pieces, as one array; all pieces are joined at once."""
    lengths = np.fromiter((sum(map(len, parts)) for parts in pieces), np.int32, len(pieces))
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    ids = np.concatenate([np.zeros(0, np.int32), *itertools.chain.from_iterable(pieces)])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(ids))


def text_digest(example: Example) -> str:
    """Return a digest of the text of an example's input, as 32 hex digits."""
    return earlier_texts.digest(text_of(example.inputs))

"""Tokenize a block of rows into an Arrow table that can be cached across seeds, splits and layouts.

All rows of a block take the same way, for any task and options. They become one table of examples
(tasks/example_table.py), and each later step processes the table's columns for all rows at once. A template fills the
table from the block's columns (reading/columns.py). The task's own function makes the remaining examples one by one:
rows that the template does not describe, and all rows of a task without a template. It is the only loop over rows.
The steps after it:

1. Filters change texts, or return the reason why a row is rejected (tasks/filters/chain.py).
2. Rows that share a text with an evaluation set are rejected (evaluation_sets.py).
3. Texts become ids, cut to their maximum lengths. Targets become ids or class numbers (tokens/featurizer.py).
4. Examples that are too long and may not be cut are split (tokens/splitting.py) or rejected. Filters that count tokens,
   and texts of earlier datasets, reject more rows.
5. Digests and shingles are computed for the search for duplicates. The result is the table of features (SCHEMA).

A new option is a field of Settings and one step here.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset import conversion
from t5prep.dataset.settings import Settings
from t5prep.errors import Reject, SourceError, T5prepError, TaskError
from t5prep.preparation import earlier_datasets
from t5prep.preparation.earlier_datasets import EarlierTexts, text_of_ids
from t5prep.preparation.evaluation_sets import Leaks
from t5prep.preparation.memory_budget import LARGEST_BLOCK
from t5prep.preparation.near_duplicates.sketches import shingles
from t5prep.preparation.text_counts import UnknownTexts
from t5prep.preparation.token_cache import TokenCache
from t5prep.reading import blocks, columns, rows
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Row
from t5prep.sources import split_names
from t5prep.tasks import example_table, registry
from t5prep.tasks.example import Example, Trace, problem
from t5prep.tasks.example_table import Inputs
from t5prep.tasks.filters.chain import Chain
from t5prep.tasks.targets import target_of
from t5prep.tasks.task import ChosenTask
from t5prep.tokens.featurizer import Features
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.splitting import Splitter
from t5prep.tokens.tokenizer import Tokenizer


class BlockExamples:
    """Make the examples of blocks of one task. Threads may share the object. `columns` has the names of all columns to read."""

    def __init__(self, settings: Settings, task: ChosenTask) -> None:
        self._task, self._columns = task, task.columns
        self._template = template if (template := task.template) and example_table.can_fill(template) else None
        self._group = settings.group_column
        self._split = settings.split_column
        self._wanted = [*self._columns.all, *filter(None, (self._group, self._split))]
        self.columns = tuple(dict.fromkeys(rows.names_of(self._wanted)))

    def __call__(self, block: Block) -> pa.Table:
        """Return the examples of all rows but blank ones (example_table.SCHEMA). Column `row` counts from the block's first row.

        Rows that the template describes come first. Raises SourceError for a missing column, TaskError if the task
        fails for a row.
        """
        if block.columns and (lacks := rows.missing(self._wanted, block.columns)):
            raise SourceError(f"{block.file.name} has no column {lacks}", code="column.missing")
        read = columns.read(block, names=self.columns)
        tables, is_remaining = [], np.ones(len(read.numbers), bool)
        if self._template is not None:
            # Rows that Python had to read become columns again, so that the template describes them, too.
            read = columns.gathered(read, self.columns)
            names = self._columns.found_in(read.table.column_names)
            is_remaining = np.ones(len(read.numbers), bool)
            has_split = not self._split or self._split in read.table.column_names
            if names is not None and has_split and set(self._template.columns) <= names.keys():
                text = {name: columns.text_of(read.table[name]) for name in read.table.column_names}
                examples, described = example_table.fill(
                    self._template,
                    {first: text[name] for first, name in names.items()},
                    read.numbers - block.first_row,
                    record_id=text.get(self._columns.id_name),
                    group=text.get(self._group),
                    split=_splits(text[self._split]) if self._split else None,
                )
                tables, is_remaining = [examples], ~described
                empty = is_remaining & np.logical_and.reduce(
                    [pc.binary_length(column).to_numpy() == 0 for column in text.values()]
                )
                if empty.sum() > 1:  # rows with only empty columns get the same example
                    tables.append(
                        self._repeat_first(read._replace(other_rows=[]).rows(_first(empty)), read.numbers[empty], block)
                    )
                    is_remaining &= ~empty
        if not tables or is_remaining.any() or read.other_rows:
            tables.append(self._by_task(read.rows(is_remaining), block))
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()

    def _repeat_first(self, first: list[Row], numbers: np.ndarray, block: Block) -> pa.Table:
        """Return the table of equal rows, given the first row and the `numbers` of all."""
        table = self._by_task(first, block).take(pa.array(np.zeros(len(numbers), np.int64)))
        return table.set_column(0, SCHEMA.field("row"), pa.array(numbers - block.first_row))

    def _by_task(self, source_rows: list[Row], block: Block) -> pa.Table:
        """Return the examples of some rows, each made by the task's own function."""
        records = [row.record or {} for row in source_rows]
        ids, groups = ([record.get(name) for record in records] for name in (self._columns.id_name, self._group))
        return example_table.made_of(
            [row.number - block.first_row for row in source_rows],
            [self._example(row, block) for row in source_rows],
            record_id=[None if id is None else rows.as_text(id) for id in ids],
            group=[None if group in (None, "") else rows.as_text(group) for group in groups],
        )

    def _example(self, row: Row, block: Block) -> Example | str:
        """Return the example of a row, or the reason why the row makes none. Raises TaskError if the task fails."""
        if row.record is None:
            return row.reason
        try:
            example = self._task.to_example(row.record)
            if self._group:
                rows.text(row.record, self._group, "")  # raises Reject for a list
            split = _split(rows.text(row.record, self._split, ""), self._split) if self._split else ""
        except Reject as reject:
            return str(reject)
        except KeyError as error:
            if error.args[0] in self._columns.names:
                return f"missing field: {error.args[0]}"
            raise self._task_error(row, block, error) from error
        except T5prepError:
            raise
        except (Exception, SystemExit) as error:
            raise self._task_error(row, block, error) from error
        if wrong := problem(example):
            raise self._task_error(row, block, TypeError(wrong))
        return dataclasses.replace(example, split=split) if split else example

    def _task_error(self, row: Row, block: Block, error: BaseException) -> TaskError:
        """Return the TaskError for an exception of the task, with the row and the line of the task's code."""
        code = getattr(self._task.task.to_example, "__code__", None)
        code_line = registry.line_of(error, code.co_filename) if code else ""
        unread = " t5prep reads only the columns that its Columns name." if isinstance(error, KeyError) else ""
        file_indices, numbers = block.places(np.array([row.number]))
        name = block.files[int(file_indices[0])][0]
        return TaskError(
            f"The task {self._task.name} fails at {name}, row {numbers[0]}: "
            f"{registry.describe_error(error)}{f' ({code_line})' if code_line else ''}. Fix its "
            f"to_example, or raise Reject for such rows.{unread}",
            code="task.example-failure",
        )


def _split(text: str, column: str) -> str:
    """Return the split that a cell of the split column names. Raises Reject if it names none."""
    split = split_names.split_of_word(text)
    if not split_names.is_split_name(split):
        raise Reject(f"no split: {text!r:.60} in {column}")
    return split


def _splits(texts: pa.LargeStringArray) -> pa.StringArray:
    """Return the split that each text names, or null if it names none."""
    # Each distinct text is examined once, because a column of splits has few.
    coded = texts.dictionary_encode()
    words = [split_names.split_of_word(text) for text in coded.dictionary.to_pylist()]
    splits = pa.array([word if split_names.is_split_name(word) else None for word in words], pa.string())
    return splits.take(coded.indices)


def _first(mask: np.ndarray) -> np.ndarray:
    """Return a mask of only the first true row of `mask`, `bool[rows]`."""
    first = np.zeros(len(mask), bool)
    first[np.argmax(mask)] = True
    return first


# The features of a block, in the order of the source: one row for each example, and for each rejected row.
# * `reason`: why the row made no example; null for an example. * `same`: digest of the input's text, if equal texts
# are searched; `shingles`: for near-duplicates. * `group`: decides the split instead of the id, if it is set. *
# `part`: 1, 2, … for the parts of an example that was too long; 0 for a whole example. * `changed`: the filters that
# changed the text. * `tokens`: also set for rows that a filter rejected, to count what the dataset lost. * `unknown`:
# set in the first row of a batch, with the unknown characters of all of its rows (text_counts).
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.string()),
        ("reason", pa.string()),
        ("split", pa.string()),
        ("inputs", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int32())),
        ("references", pa.list_(pa.string())),
        ("tokens", pa.int32()),
        ("target_tokens", pa.int32()),
        ("markup", pa.bool_()),
        ("same", pa.string()),
        ("group", pa.string()),
        ("shingles", pa.list_(pa.uint64())),
        ("changed", pa.list_(pa.string())),
        ("part", pa.int32()),
        ("unknown", pa.string()),
    ]
)


class TokenizedBlock(NamedTuple):
    """The table (SCHEMA) of a block, and whether it was in the token cache (`is_cached`).

    Row numbers count from the block's first row, so that the cached table is valid wherever the same block occurs.
    """

    table: pa.Table
    is_cached: bool


class BlockTokenizer:
    """Tokenize blocks of one task. Threads may share the object.

    * `cache`: stores tables for later runs.
    * `leaks`: texts of evaluation sets, which no row may contain.
    * `earlier`: texts of earlier datasets, which no row may repeat.
    * `trace`: records what the steps do to one row.
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
        trace: Trace | None = None,
    ) -> None:
        self._examples, self._cache, self._trace = BlockExamples(settings, task), cache, trace
        self._featurize = conversion.featurizer_of(
            settings, tokenizer, classes=task.classes, documents=task.spans is not None, trace=trace
        )
        self._unknown = UnknownTexts(tokenizer)
        self._writes_texts = target_of(settings.target).is_text and task.spans is None
        self._filters, self._leaks, self._earlier = Chain(settings.filter), leaks, earlier
        self._dedup, self._near_words = settings.dedup, settings.near_words
        split = settings.long == "split" or (settings.long == "auto" and task.task.never_cut)
        lengths = (settings.input_length, settings.target_length)
        self._splitter = Splitter(tokenizer, *lengths, settings.keep_newlines) if split else None
        self._whole = settings.long == "reject" or split
        # Only the cut texts of earlier records are known, so new rows are compared by their cut texts, too.
        self._cut_by = tokenizer if settings.dedup_against else None

    def __call__(self, block: Block) -> TokenizedBlock:
        """Return the table of a block. Raises SourceError for a missing column, TaskError if the task fails for a row."""
        if self._cache is None:
            return TokenizedBlock(self._tokenized(block), is_cached=False)
        if block.format.kind != "parquet":
            block = dataclasses.replace(block, data=blocks.content(block))  # one read for both hash and rows
        name = self._cache.name_of(block, columns=self._examples.columns)
        if (cached := self._cache.find(name)) is not None:
            return TokenizedBlock(cached, is_cached=True)
        table = self._tokenized(block)
        self._cache.keep(name, table)
        return TokenizedBlock(table, is_cached=False)

    def _tokenized(self, block: Block) -> pa.Table:
        """Return the features of all rows of a block (SCHEMA), in order.

        The block is processed in parts, because a block of a Parquet file is larger than other blocks. Its size is
        the mean of its row group, so it is even larger if its own rows are long.
        """
        parts = self._parts(block)
        features, next_part = next(parts), next(parts, None)
        if next_part is not None:
            # The result of a part is copied to one buffer. Otherwise it would lie between freed memory, and the next
            # part would find no contiguous room there.
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, SCHEMA) as writer:
                for part in itertools.chain([features, next_part], parts):
                    writer.write_table(part)
            del features, next_part, part
            features = pa.ipc.open_stream(sink.getvalue()).read_all().combine_chunks()
        numbers = features["row"].to_numpy()
        if (numbers[1:] >= numbers[:-1]).all():
            return features
        return features.take(np.argsort(numbers, kind="stable")).combine_chunks()

    def _parts(self, block: Block) -> Iterator[pa.Table]:
        """Yield the features of a block in parts of LARGEST_BLOCK stored bytes, and at most twice as many bytes of text."""
        for piece in block.pieces(LARGEST_BLOCK):
            examples = self._examples(piece)
            max_examples = max(1, len(examples) // max(1, examples.nbytes // (2 * LARGEST_BLOCK)))
            for begin in range(0, max(1, len(examples)), max_examples):
                features = self.features(examples.slice(begin, max_examples))
                numbers = pc.add(features["row"], piece.first_row - block.first_row)
                yield features.set_column(0, SCHEMA.field("row"), numbers)

    def features(self, examples: pa.Table) -> pa.Table:
        """Return the features (SCHEMA) of a table of examples, in order."""
        # In `new | reasons` below, earlier reasons have precedence: a row is rejected by the first step that rejects
        # it.
        examples, reasons, changed = self._filters.of_table(examples, self._trace)
        inputs = example_table.inputs_of(examples)
        if self._leaks is not None:
            leaks = dict(enumerate(self._leaks.find(inputs.lines().to_pylist())))
            reasons = {row: leak for row, leak in leaks.items() if leak} | reasons
        token_features = self._featurize(inputs, examples["target"].combine_chunks())
        part = np.zeros(len(examples), np.int32)
        if (
            self._splitter is not None
            and (split := _in_parts(examples, token_features, reasons, self._splitter)) is not None
        ):
            examples, part = split.examples, split.part
            # `split.of` has the index of each part's example before splitting. The parts are tokenized again below.
            reasons = {new: reasons[old] for new, old in enumerate(split.of) if old in reasons} | split.reasons
            changed = changed and [changed[old] for old in split.of]
            inputs = example_table.inputs_of(examples)
            token_features = self._featurize(inputs, examples["target"].combine_chunks())
        reasons = token_features.reasons | reasons
        if self._whole:
            reasons = _too_long(token_features) | reasons
        if self._filters.judges_tokens:
            judged = dict(enumerate(map(self._filters.judge_tokens, token_features.tokens.tolist())))
            reasons = {row: reason for row, reason in judged.items() if reason} | reasons
        compared = self._compared(inputs, token_features.inputs)
        if self._earlier is not None and compared is not None:
            repeated = self._earlier.find([earlier_datasets.digest(text) for text in compared.to_pylist()])
            reasons = {row: reason for row, reason in enumerate(repeated) if reason} | reasons
        rejected = np.zeros(len(examples), bool)
        rejected[list(reasons)] = True
        ids = examples["id"]
        if reasons:
            token_features, ids = (
                token_features.without(rejected),
                pc.if_else(pa.array(rejected), examples["record_id"], ids),
            )
        labels = token_features.labels if self._writes_texts else None
        unknown = self._unknown(inputs, examples["target"].combine_chunks(), token_features.inputs, labels)
        table = {
            "row": examples["row"],
            "id": ids,
            "reason": [reasons.get(row) for row in range(len(examples))] if reasons else None,
            "split": examples["split"],
            "inputs": token_features.inputs.to_arrow(),
            "labels": token_features.labels.to_arrow(),
            "references": examples["references"],
            "tokens": token_features.tokens.astype(np.int32),
            "target_tokens": token_features.target_tokens.astype(np.int32),
            "markup": token_features.markup,
            "same": self._digests(inputs),
            "group": examples["group"],
            "shingles": self._shingles(compared),
            "changed": changed,
            "part": part,
            "unknown": _at_first(unknown, examples["row"].to_numpy()) if unknown else None,
        }
        return pa.table([_column(table[field.name], field, len(examples)) for field in SCHEMA], schema=SCHEMA)

    def _compared(self, inputs: Inputs, ids: Ragged) -> pa.LargeStringArray | None:
        """Return the text by which each example is compared with others: for shingles and with earlier datasets. None: no comparison.

        A cut text with <unk> is replaced by the full text: two different texts may have the same ids with <unk>.
        """
        if self._cut_by is not None:
            unk_id, full_texts = self._cut_by.unk_id, inputs.lines().to_pylist()
            texts = [
                text if unk_id in text_ids else text_of_ids(text_ids.tolist(), self._cut_by)
                for text, text_ids in zip(full_texts, ids.to_arrays(), strict=True)
            ]
            return pa.array(texts, pa.large_string())
        return inputs.lines() if self._dedup == "near" else None

    def _digests(self, inputs: Inputs) -> list[str] | None:
        """Return the digest of each text, or None if equal texts are not searched."""
        return list(map(earlier_datasets.digest, inputs.lines().to_pylist())) if self._dedup == "exact" else None

    def _shingles(self, texts: pa.LargeStringArray | None) -> pa.Array | None:
        """Return the shingles of each text as lists of uint64, or None if near-duplicates are not searched."""
        if self._dedup != "near" or texts is None:
            return None
        hashed = shingles(texts.to_pylist(), words=self._near_words)
        return pa.ListArray.from_arrays(pa.array(hashed.begins.astype(np.int32)), pa.array(hashed.hashes))


def _at_first(text: str, rows: np.ndarray) -> list[str | None]:
    """Return a column with `text` at the smallest of the row numbers `rows` (int64[n]), and None elsewhere."""
    column: list[str | None] = [None] * len(rows)
    column[int(np.argmin(rows))] = text
    return column


class _Split(NamedTuple):
    """Examples after splitting the long ones.

    `part` is the number of each part, `of` the index of each example before splitting, and `reasons` has new
    rejections.
    """

    examples: pa.Table
    part: np.ndarray
    of: list[int]
    reasons: dict[int, str]


def _in_parts(
    examples: pa.Table, token_features: Features, reasons: dict[int, str], splitter: Splitter
) -> _Split | None:
    """Return the examples with the long ones split into parts, or None if none is long. Rejected rows are not split."""
    left_out = reasons.keys() | token_features.reasons.keys()
    long = [row for row in np.flatnonzero(_cut(token_features)).tolist() if row not in left_out]
    if not long:
        return None
    rows = examples.take(pa.array(long))
    parts: list[list[Example | str]] = []
    for example in example_table.examples_of(rows):
        try:
            parts.append([*splitter(example)] if isinstance(example, Example) else [example])
        except Reject as reject:
            parts.append([str(reject)])
    counts = np.ones(len(examples), np.int64)
    counts[long] = [len(pieces) for pieces in parts]
    # For each row after splitting: `of` is the index of its example before, `number` counts 1, 2, … within that
    # example.
    of = np.repeat(np.arange(len(examples)), counts)
    number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    part = np.where(counts[of] > 1, number, 0).astype(np.int32)
    is_split = np.isin(of, long)
    split_examples = [example for pieces in parts for example in pieces]
    split_rows = examples.take(pa.array(of[is_split]))
    identity_columns = {name: split_rows[name].to_pylist() for name in ("record_id", "group")}
    pieces = example_table.made_of(split_rows["row"].to_pylist(), split_examples, **identity_columns)
    # The concatenation has unsplit examples first: this restores the order of the source.
    order = np.argsort(np.concatenate([np.flatnonzero(~is_split), np.flatnonzero(is_split)]), kind="stable")
    table = pa.concat_tables([examples.take(pa.array(of[~is_split])), pieces]).take(pa.array(order)).combine_chunks()
    new_reasons = {
        index: example
        for index, example in zip(np.flatnonzero(is_split).tolist(), split_examples, strict=True)
        if isinstance(example, str)
    }
    return _Split(table, part, of.tolist(), new_reasons)


def _cut(token_features: Features) -> np.ndarray:
    """Return which rows lost tokens on either side, `bool[rows]`."""
    cut: np.ndarray = (token_features.tokens > token_features.inputs.lengths) | (
        token_features.target_tokens > token_features.labels.lengths
    )
    return cut


def _too_long(token_features: Features) -> dict[int, str]:
    """Return the reason for rejecting each row that lost tokens on either side."""
    longest = np.maximum(token_features.tokens, token_features.target_tokens)
    return {
        row: f"too long: {longest[row]} tokens, and examples of this task are not cut"
        for row in np.flatnonzero(_cut(token_features)).tolist()
    }


def _column(values: object, field: pa.Field, rows: int) -> pa.Array | pa.ChunkedArray:
    """Return a column as an Arrow array of the type of `field`; None becomes nulls."""
    if values is None:
        return pa.nulls(rows, field.type)
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, field.type)

"""Tokenize a block of rows into an Arrow table that can be cached across seeds, splits and layouts.

All rows of a block go one way, whatever the task and the options: they become one table of examples (block_examples.py,
tasks/example_table.py), and what follows works on its columns, each step for all rows:

1. filters change texts, or give the reason why a row is rejected (filters/chain.py);
2. rows with a text of an evaluation set are rejected (evaluation_leaks.py);
3. texts become ids, cut to their lengths, and targets ids or numbers of classes (tokens/featurizer.py);
4. what is too long and not to be cut, filters that count tokens, and earlier datasets reject more rows;
5. digests and shingles are made of what is compared, and all of it is the table of features (feature_table.py).

A new option is a field of Settings and one step here.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset import targets
from t5prep.dataset.settings import Settings
from t5prep.prepare import earlier_texts
from t5prep.prepare.block_examples import BlockExamples
from t5prep.prepare.earlier_records import text_of_ids
from t5prep.prepare.earlier_texts import EarlierTexts
from t5prep.prepare.evaluation_leaks import Leaks
from t5prep.prepare.feature_table import SCHEMA
from t5prep.prepare.filters.chain import Chain
from t5prep.prepare.near_duplicates.shingles import shingles
from t5prep.prepare.token_cache import TokenCache
from t5prep.reading import blocks
from t5prep.reading.blocks import Block
from t5prep.tasks import example_table
from t5prep.tasks.example_table import Inputs
from t5prep.tasks.task import ChosenTask
from t5prep.tokens.featurizer import Features
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer


class TokenizedBlock(NamedTuple):
    """The table (SCHEMA) of a block, and whether an earlier run had tokenized it.

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
        self._examples, self._cache = BlockExamples(settings, task), cache
        self._featurize = targets.featurizer_of(
            settings, tokenizer, classes=task.classes, documents=task.spans is not None
        )
        self._filters, self._leaks, self._earlier = Chain(settings.filter), leaks, earlier
        self._dedup, self._near_words = settings.dedup, settings.near_words
        self._whole = settings.long == "reject" or (settings.long == "auto" and task.task.never_cut)
        # Earlier records are known as they were cut, so the new ones are compared as they are cut.
        self._cut_by = tokenizer if settings.dedup_against else None

    def __call__(self, block: Block) -> TokenizedBlock:
        """Return the table of a block. Raises SourceError for a missing column, TaskError where the task fails at a row."""
        if self._cache is None:
            return TokenizedBlock(self._features(self._examples(block)), found=False)
        if block.format.kind != "parquet":
            block = dataclasses.replace(block, data=blocks.content(block))  # read once
        name = self._cache.name_of(block, columns=self._examples.columns)
        if (cached := self._cache.find(name)) is not None:
            return TokenizedBlock(cached, found=True)
        table = self._features(self._examples(block))
        self._cache.keep(name, table)
        return TokenizedBlock(table, found=False)

    def _features(self, examples: pa.Table) -> pa.Table:
        """Return the table of features (SCHEMA) of a table of examples, in the order of the rows."""
        examples, reasons, changed = self._filters.of_table(examples)
        inputs = example_table.inputs_of(examples)
        if self._leaks is not None:
            leaks = dict(enumerate(self._leaks.find(inputs.lines().to_pylist())))
            reasons = {row: leak for row, leak in leaks.items() if leak} | reasons
        made = self._featurize(inputs, examples["target"].combine_chunks())
        reasons = made.reasons | reasons
        if self._whole:
            reasons = _too_long(made) | reasons
        if self._filters.judges_tokens:
            judged = dict(enumerate(map(self._filters.judge_tokens, made.tokens.tolist())))
            reasons = {row: why for row, why in judged.items() if why} | reasons
        compared = self._compared(inputs, made.inputs)
        if self._earlier is not None and compared is not None:
            repeated = self._earlier.find([earlier_texts.digest(text) for text in compared.to_pylist()])
            reasons = dict(filter(lambda one: one[1], enumerate(repeated))) | reasons
        rejected = np.zeros(len(examples), bool)
        rejected[list(reasons)] = True
        ids = examples["id"]
        if reasons:
            made, ids = made.without(rejected), pc.if_else(pa.array(rejected), examples["record_id"], ids)
        table = {
            "row": examples["row"],
            "id": ids,
            "reason": [reasons.get(row) for row in range(len(examples))] if reasons else None,
            "split": examples["split"],
            "inputs": made.inputs.to_arrow(),
            "labels": made.labels.to_arrow(),
            "references": examples["references"],
            "tokens": made.tokens.astype(np.int32),
            "target_tokens": made.target_tokens.astype(np.int32),
            "markup": made.markup,
            "same": self._digests(inputs),
            "group": examples["group"],
            "shingles": self._shingles(compared),
            "changed": changed,
        }
        features = pa.table([_column(table[field.name], field, len(examples)) for field in SCHEMA], schema=SCHEMA)
        numbers = features["row"].to_numpy()
        return features if (numbers[1:] > numbers[:-1]).all() else features.take(np.argsort(numbers)).combine_chunks()

    def _compared(self, inputs: Inputs, ids: Ragged) -> pa.LargeStringArray | None:
        """Return the text of which each example's shingles are, and by which it is looked up among earlier ones."""
        if self._cut_by is not None:
            texts = [text_of_ids(one.tolist(), self._cut_by) for one in ids.apart()]
            return pa.array(texts, pa.large_string())
        return inputs.lines() if self._dedup == "near" else None

    def _digests(self, inputs: Inputs) -> list[str] | None:
        """Return the digest of each text, None where no equal texts are looked for."""
        return list(map(earlier_texts.digest, inputs.lines().to_pylist())) if self._dedup == "exact" else None

    def _shingles(self, texts: pa.LargeStringArray | None) -> pa.Array | None:
        """Return the shingles of each text, as lists of uint64; None where no near-duplicates are looked for."""
        if self._dedup != "near" or texts is None:
            return None
        hashed = shingles(texts.to_pylist(), words=self._near_words)
        return pa.ListArray.from_arrays(pa.array(hashed.begins.astype(np.int32)), pa.array(hashed.hashes))


def _too_long(made: Features) -> dict[int, str]:
    """Return the reason of each row that was cut, on either side."""
    cut = (made.tokens > made.inputs.lengths) | (made.target_tokens > made.labels.lengths)
    longest = np.maximum(made.tokens, made.target_tokens)
    return {
        row: f"too long: {longest[row]} tokens, and examples of this task are not cut"
        for row in np.flatnonzero(cut).tolist()
    }


def _column(values: Any, field: pa.Field, rows: int) -> pa.Array | pa.ChunkedArray:
    if values is None:
        return pa.nulls(rows, field.type)
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, field.type)

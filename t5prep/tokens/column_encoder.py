"""Encode columns of text into the features of all their rows at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from t5prep.tokens import ragged, truncation
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer


class ColumnFeatures(NamedTuple):
    """Hold the ids of many examples, and how many tokens each had before it was cut, int64[rows].

    All counts include EOS.
    """

    inputs: Ragged
    labels: Ragged
    tokens: np.ndarray
    target_tokens: np.ndarray


class ColumnEncoder:
    """Encode columns into the same features as encoder.Encoder makes of examples. Threads may share it."""

    def __init__(
        self, tokenizer: Tokenizer, *, input_length: int, target_length: int, policy: str, marker: str
    ) -> None:
        self._tokenizer = tokenizer
        self._input_length, self._target_length = input_length, target_length
        marked = policy == "head_tail" and marker == "extra_id_1"
        self._middle = tokenizer.sentinel(1) if marked else None
        self._keep = truncation.ends(input_length, policy=policy, marked=marked)

    def pairs(self, fields: Sequence[pa.LargeStringArray], targets: Ragged) -> ColumnFeatures:
        """Return the features of rows whose inputs are these fields, joined by EOS; `targets` are ids without EOS."""
        inputs = self._inputs(fields)
        labels = ragged.joined([targets], after=self._tokenizer.eos_id)
        return ColumnFeatures(
            ragged.cut(inputs, self._input_length, keep=self._keep, middle=self._middle),
            ragged.cut(labels, self._target_length, keep=(self._target_length - 1, 1), middle=None),
            inputs.lengths,
            labels.lengths,
        )

    def documents(self, texts: pa.LargeStringArray) -> ColumnFeatures:
        """Return the features of texts that are not cut and have no targets."""
        inputs, nothing = self._inputs([texts]), np.zeros(len(texts), np.int64)
        return ColumnFeatures(inputs, Ragged(np.zeros(0, np.int32), ragged.begins(nothing)), inputs.lengths, nothing)

    def _inputs(self, fields: Sequence[pa.LargeStringArray]) -> Ragged:
        return ragged.joined([self._tokenizer.encode_block(field) for field in fields], after=self._tokenizer.eos_id)

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


class ClassColumnEncoder:
    """Encode columns into the same features as class_encoder.ClassEncoder makes of examples. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer, *, input_length: int, policy: str) -> None:
        self._tokenizer, self._frame, self._input_length = tokenizer, tokenizer.frame, input_length
        room = input_length - self._frame.tokens(1)
        head = {"head_tail": room // 2, "head": room, "tail": 0}[policy]  # as in frame.cut_text
        self._room, self._keep = room, (head, room - head)

    def rows(self, fields: Sequence[pa.LargeStringArray], numbers: np.ndarray) -> tuple[ColumnFeatures, np.ndarray]:
        """Return the features of rows whose classes are `numbers`, int32[rows], and which of them are right: bool[rows].

        The others have no tokens in their texts, or several texts that are too long together: cut those row by row.
        """
        encoded = [self._tokenizer.encode_block(field) for field in fields]
        in_frame = self._frame.tokens(len(fields))
        tokens = np.sum([one.lengths for one in encoded], axis=0) + in_frame
        right = tokens > in_frame
        if len(fields) > 1 or self._room < 1:
            right &= tokens <= self._input_length
        else:
            encoded = [ragged.cut(encoded[0], self._room, keep=self._keep, middle=None)]
        frame = self._frame
        inputs = ragged.framed(encoded, first=frame.first, between=frame.between, last=frame.last)
        ones = np.ones(len(numbers), np.int64)
        return ColumnFeatures(inputs, Ragged(numbers, ragged.begins(ones)), tokens, ones), right


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

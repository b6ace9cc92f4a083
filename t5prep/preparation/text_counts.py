"""Count unknown characters, repeated rows and HTML in texts. The counts can be added over blocks.

Memory is bounded for any number of rows. Repeated rows are counted among the rows with the smallest digests. All
copies of a row have the same digest, so each sampled row is counted with all of its copies, and the sample's shares
are those of all rows. Up to MOST_DIGESTS distinct rows, the counts are exact.
"""

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import pyarrow as pa

from t5prep import _native
from t5prep.dataset.manifest import Repeats
from t5prep.preparation.record_counts import MOST_LABELS
from t5prep.tasks.example_table import Inputs, byte_edges
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer

MOST_DIGESTS = 1 << 18
# Number of characters that are counted at a time.
_AT_ONCE = 1 << 20


class _UnknownCounts(TypedDict):
    """The counts of some rows: how often each unknown character and each target with one occurs. None: too many targets."""

    characters: dict[str, int]
    targets: dict[str, int] | None


class UnknownTexts:
    """Count the characters that a tokenizer does not know, and the targets with such characters. Threads may share the object."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_unknown: dict[str, bool] = {}
        self._known = b""  # the known ASCII characters, set on first use

    def __call__(self, inputs: Inputs, targets: pa.LargeStringArray, ids: Ragged, labels: Ragged | None) -> str:
        """Return the counts of some rows as JSON, "" if no row has an unknown token. `labels` is None if targets are not texts."""
        in_inputs = np.flatnonzero(ids.occurrences(self._tokenizer.unk_id))
        in_targets = (
            np.zeros(0, np.int64) if labels is None else np.flatnonzero(labels.occurrences(self._tokenizer.unk_id))
        )
        if not len(in_inputs) and not len(in_targets):
            return ""
        texts = targets.take(pa.array(in_targets))
        counts = self._characters(inputs.documents().take(pa.array(in_inputs))) + self._characters(texts)
        target_counts = None if len(texts.unique()) > MOST_LABELS else collections.Counter(texts.to_pylist())
        unknown: _UnknownCounts = {"characters": counts, "targets": target_counts}
        return json.dumps(unknown, sort_keys=True)

    def _characters(self, texts: pa.LargeStringArray) -> collections.Counter[str]:
        """Return the number of occurrences of each unknown character in some texts."""
        if not self._known:
            self._known = bytes(code for code in range(0x80) if not self._unknown(chr(code)))
        edges, data = byte_edges(texts)
        content = memoryview(data)[edges[0] : edges[-1]].tobytes() if len(texts) else b""
        # Known ASCII characters are deleted first, so that only few characters are counted.
        remaining_text = content.translate(None, self._known).decode()
        counts: collections.Counter[str] = collections.Counter()
        for begin in range(0, len(remaining_text), _AT_ONCE):
            codes = np.frombuffer(remaining_text[begin : begin + _AT_ONCE].encode("utf-32-le"), np.uint32)
            numbers = np.bincount(codes)
            counts.update({chr(code): int(numbers[code]) for code in np.flatnonzero(numbers).tolist()})
        return collections.Counter({text: count for text, count in counts.items() if self._unknown(text)})

    def _unknown(self, character: str) -> bool:
        """Check whether the tokenizer does not know a character."""
        if character not in self._is_unknown:
            self._is_unknown[character] = self._tokenizer.unk_id in self._tokenizer.encode(character)
        return self._is_unknown[character]


def digests(inputs: Ragged, labels: Ragged) -> np.ndarray:
    """Return a digest of the ids of each row, `uint64[rows]`, which is equal for equal rows."""
    row_digests = np.zeros(len(inputs.starts) - 1, np.uint64)
    for lists in (inputs, labels):
        _native.list_digests(
            np.ascontiguousarray(lists.ids, np.int32), np.ascontiguousarray(lists.starts, np.int64), row_digests
        )
    return row_digests


@dataclasses.dataclass
class RepeatCounts:
    """Counts of equal rows, by digests of their ids: only those with the smallest digests, each with all of its rows.

    * `rows`: all rows.
    * `bound`: the smallest digest that is not counted, 2^64 if all are.
    * `counts_by_split`: for each split, sorted digests and the number of rows of each.
    * `pending`: digests and numbers that are not yet combined with `counts_by_split`; `waiting` is their number.
    """

    rows: int = 0
    bound: int = 1 << 64
    counts_by_split: dict[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)
    pending: dict[str, list[tuple[np.ndarray, np.ndarray]]] = dataclasses.field(default_factory=dict)
    waiting: int = 0

    def add(self, split: str, row_digests: np.ndarray) -> None:
        """Count the rows of a split, given their digests, `uint64[rows]`."""
        self.rows += len(row_digests)
        self._append(split, *np.unique(row_digests, return_counts=True))

    def merge(self, other: "RepeatCounts") -> None:
        """Add the counts of `other` to this object."""
        self.rows += other.rows
        self.bound = min(self.bound, other.bound)
        for split, arrays in other.counts_by_split.items():
            self._append(split, *arrays)
        for split, several in other.pending.items():
            for arrays in several:
                self._append(split, *arrays)

    def _append(self, split: str, row_digests: np.ndarray, counts: np.ndarray) -> None:
        """Add digests with their number of rows, and combine if too many are pending."""
        if self.bound < 1 << 64:
            below = row_digests < np.uint64(self.bound)
            row_digests, counts = row_digests[below], counts[below]
        self.pending.setdefault(split, []).append((row_digests, counts))
        self.waiting += len(row_digests)
        if self.waiting > MOST_DIGESTS:
            self.combine()

    def combine(self) -> None:
        """Combine pending counts, and lower the bound if there are too many distinct digests."""
        for split, several in self.pending.items():
            arrays = [self.counts_by_split[split], *several] if split in self.counts_by_split else several
            row_digests, index = np.unique(np.concatenate([digest for digest, _ in arrays]), return_inverse=True)
            weights = np.concatenate([counts for _, counts in arrays])
            self.counts_by_split[split] = (
                row_digests,
                np.bincount(index, weights, minlength=len(row_digests)).astype(np.int64),
            )
        self.pending, self.waiting = {}, 0
        different = np.unique(
            np.concatenate([np.zeros(0, np.uint64), *(row_digests for row_digests, _ in self.counts_by_split.values())])
        )
        if len(different) > MOST_DIGESTS:
            self.bound = int(different[MOST_DIGESTS])
        if self.bound < 1 << 64:
            for split, (row_digests, counts) in self.counts_by_split.items():
                below = row_digests < np.uint64(self.bound)
                self.counts_by_split[split] = row_digests[below], counts[below]

    def repeated(self) -> Repeats:
        """Return the number of rows that repeat another one, for the manifest."""
        self.combine()
        splits = sorted(self.counts_by_split, key=lambda split: (split != "train", split))
        if not splits:
            return Repeats(0, 0, True)
        row_digests = np.concatenate([self.counts_by_split[split][0] for split in splits])
        counts = np.concatenate([self.counts_by_split[split][1] for split in splits])
        different, first = np.unique(row_digests, return_index=True)
        repeat_mask = np.ones(len(row_digests), bool)
        repeat_mask[first] = False  # np.unique returns the first occurrence: train's, if it has one
        sample = int(counts.sum())
        # All rows but one of each digest repeat another. Rows in a later split than the first one repeat it across
        # splits.
        repeats, across = sample - len(different), int(counts[repeat_mask].sum())
        is_exact = self.bound == 1 << 64
        scale = 1.0 if is_exact or not sample else self.rows / sample
        return Repeats(round(repeats * scale), round(across * scale), is_exact)


@dataclasses.dataclass
class TextCounts:
    """The counts of rows that made examples, of one block or several.

    `targets` counts the target texts with an unknown token, None if there are too many for classes. `several_answers`
    is the number of rows whose correct answers differ.
    """

    rows: int = 0
    markup: int = 0
    inputs_unknown: int = 0
    targets_unknown: int = 0
    several_answers: int = 0
    characters: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    targets: collections.Counter[str] | None = dataclasses.field(default_factory=collections.Counter)
    repeats: RepeatCounts = dataclasses.field(default_factory=RepeatCounts)

    def add_unknown(self, documents: Sequence[str]) -> None:
        """Add results of UnknownTexts."""
        for document in documents:
            counts: _UnknownCounts = json.loads(document)
            self.characters.update(counts["characters"])
            self._add_targets(counts["targets"])

    def _add_targets(self, targets: Mapping[str, int] | None) -> None:
        """Add counts of target texts with an unknown token; None, or too many, discards them all."""
        if self.targets is None or targets is None:
            self.targets = None
            return
        self.targets.update(targets)
        if len(self.targets) > MOST_LABELS:
            self.targets = None

    def merge(self, other: "TextCounts") -> None:
        """Add the counts of `other` to this object."""
        for name in ("rows", "markup", "inputs_unknown", "targets_unknown", "several_answers"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.characters.update(other.characters)
        self._add_targets(other.targets)
        self.repeats.merge(other.repeats)

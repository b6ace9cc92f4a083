"""Keep what an evaluation needs of each scored record, and decode targets of one token."""

import heapq
from collections.abc import Mapping

import numpy as np

from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.tokens.tokenizer import Tokenizer


class ScoredRows:
    """Hold what is kept of every scored record, in the split's order."""

    def __init__(self, worst: int) -> None:
        self._worst = worst
        self.ids: list[str] = []
        self.references: list[list[str]] = []
        self.labels: list[np.ndarray] = []
        self.predicted: list[np.ndarray] = []
        self.losses: list[float] = []
        self.highest: list[tuple[float, int, list[int]]] = []  # (loss, row, inputs) of wrong rows; a heap

    def add(self, batch: Mapping[str, np.ndarray], scored: Mapping[str, np.ndarray]) -> None:
        """Add the records of a batch with their scores: `ids` and `loss`, each with a row for each row of the batch."""
        mask = is_record(batch)
        labels, predicted = batch["labels"][mask], scored["ids"][mask]
        first = len(self.losses)
        self.labels.append(labels)
        self.predicted.append(predicted)
        self.losses += [float(loss) for loss in scored["loss"][mask]]
        if batch["id"].ndim == 1:
            self.ids += [id.decode() for id in batch["id"][mask]]
        texts = batch["references"][mask] if "references" in batch else [[]] * len(labels)
        self.references += [[text.decode() for text in own if text] for own in texts]
        if not self._worst:
            return
        wrong = ((predicted != labels) & (labels != IGNORED_LABEL)).any(axis=1)
        inputs = batch["input_ids"][mask]
        for row in np.flatnonzero(wrong):
            entry = (self.losses[first + row], first + int(row), [int(token) for token in inputs[row] if token])
            (heapq.heappush if len(self.highest) < self._worst else heapq.heappushpop)(self.highest, entry)


class OneToken:
    """Decode single tokens: a label to its word, and any other token to a text that equals no label."""

    def __init__(self, tokenizer: Tokenizer, labels: np.ndarray) -> None:
        self._tokenizer = tokenizer
        self._words = {int(token): tokenizer.decode([int(token)]) for token in np.unique(labels[:, 0])}

    def text(self, token: int) -> str:
        """Return the word of a token."""
        token = int(token)
        if token in self._words:
            return self._words[token]
        word = self._tokenizer.decode([token])
        return self._tokenizer.piece(token) if word in self._words.values() or not word else word


def is_record(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return bool[batch]: true for records, false for the rows without labels that fill up the last batch."""
    mask: np.ndarray = (batch["labels"] != IGNORED_LABEL).any(axis=1)
    return mask

"""Define the special tokens that a model expects around its texts, and put texts of one row between them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t5prep.tokens import truncation


def cut_text(ids: np.ndarray, room: int, *, policy: str) -> np.ndarray:
    """Return the ids of a text without special tokens, int32[length], cut to `room`; no marker stands at the cut.

    >>> [cut_text(np.arange(9), 3, policy=policy).tolist() for policy in truncation.POLICIES]
    [[0, 7, 8], [0, 1, 2], [6, 7, 8]]
    """
    if len(ids) <= room:
        return ids
    head = {"head_tail": room // 2, "head": room, "tail": 0}[policy]
    return np.concatenate([ids[:head], ids[len(ids) - (room - head) :]])


class Frame(NamedTuple):
    """Hold the ids before the first text of a row, between two texts, and after the last one.

    T5 has `</s>` between and after, BERT `[CLS]`, `[SEP]` and `[SEP]`, RoBERTa `<s>`, `</s></s>` and `</s>`.
    """

    first: tuple[int, ...]
    between: tuple[int, ...]
    last: tuple[int, ...]

    def tokens(self, texts: int) -> int:
        """Return how many special tokens a row of so many texts has.

        >>> Frame((101,), (102,), (102,)).tokens(2)
        3
        """
        return len(self.first) + len(self.between) * (texts - 1) + len(self.last)

    def around(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the ids of the texts, int32[length] each, with the special tokens between them: pieces to concatenate."""
        first, between, last = (np.array(ids, np.int32) for ids in self)
        pieces = [first]
        for number, ids in enumerate(texts):
            pieces += [between, ids] if number else [ids]
        return [*pieces, last]

    def cut(self, texts: Sequence[np.ndarray], length: int, *, policy: str) -> list[np.ndarray]:
        """Return what `around` returns of texts that are cut, so that all of it is at most `length` ids.

        Texts share the room as `truncation.allot` says; the special tokens always stay.
        """
        rooms = truncation.allot([len(ids) for ids in texts], length - self.tokens(len(texts)))
        return self.around([cut_text(ids, room, policy=policy) for ids, room in zip(texts, rooms, strict=True)])

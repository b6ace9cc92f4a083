"""Cut token ids to a length.

head_tail keeps both ends: `ids[:255] + [marker] + ids[-256:]` for 512, as the tutorial of so_quality does (Sun et al.
2019, arXiv 1905.05583, found both ends best for long documents). An input is cut as a whole, and keeps its final EOS.
Where some of its texts are protected, or a model wants its special tokens between them, each of the other texts is cut
by itself, and they share the room that is left.
"""

from typing import NamedTuple

import numpy as np

from t5prep.tokens import ragged
from t5prep.tokens.ragged import Frame, Ragged


def ends(length: int, *, policy: str, marked: bool, closed: bool = True) -> tuple[int, int]:
    """Return how many ids of the head and of the tail are kept in `length` (with head_tail, a marker takes one place).

    `closed`: the last id is EOS, and is kept by every policy.

    >>> ends(512, policy="head_tail", marked=True), ends(512, policy="head_tail", marked=False)
    ((255, 256), (256, 256))
    >>> ends(512, policy="head", marked=False), ends(512, policy="tail", marked=False)
    ((511, 1), (0, 512))
    >>> ends(512, policy="head", marked=False, closed=False)
    (512, 0)
    """
    if policy == "tail" or not length:
        return 0, length
    if policy == "head":
        return length - closed, int(closed)
    head = (length - 1) // 2 if marked else length // 2
    return head, length - head - marked


class Truncation(NamedTuple):
    """How inputs are cut: by a policy, to `length` ids, with the id `marker` at the cut, or None."""

    policy: str
    length: int
    marker: int | None = None

    def whole(self, rows: Ragged) -> Ragged:
        """Return rows, which end in EOS, each cut as a whole."""
        return self._cut(rows, np.full(len(rows.starts) - 1, self.length), closed=True)

    def apart(
        self, texts: Ragged, *, protected: np.ndarray, fields: np.ndarray, rows: np.ndarray, frame: Frame
    ) -> tuple[Ragged, np.ndarray]:
        """Return rows whose texts are cut apart, and how many ids of each cannot be cut: int64[rows].

        Field i has the texts from `fields[i]` on, row i the fields from `rows[i]` on, both with one number more; special
        tokens stand around fields. `protected`, bool[texts], are whole; where they leave no room, the row is too long.
        """
        texts_of_rows = fields[rows]
        row = np.repeat(np.arange(len(rows) - 1), np.diff(texts_of_rows))
        lengths = texts.lengths
        kept = np.bincount(row[protected], weights=lengths[protected], minlength=len(rows) - 1).astype(np.int64)
        fixed = frame.tokens(np.diff(rows)) + kept
        room = lengths.copy()
        room[~protected] = allot(lengths[~protected], row[~protected], np.maximum(self.length - fixed, 0))
        return ragged.framed(self._cut(texts, room, closed=False).joined(fields), rows, frame), fixed

    def _cut(self, lists: Ragged, room: np.ndarray, *, closed: bool) -> Ragged:
        """Return lists of at most `room` ids each, int64[lists]."""
        lengths = lists.lengths
        long = lengths > room
        if not long.any():
            return lists
        marks = (
            long & (room > 0) if self.marker is not None and self.policy == "head_tail" else np.zeros(len(long), bool)
        )
        heads, tails = lengths.copy(), np.zeros(len(lengths), np.int64)
        rooms, which = np.unique(room[long], return_inverse=True)
        kept = [ends(one, policy=self.policy, marked=bool(marks.any()), closed=closed) for one in rooms.tolist()]
        heads[long], tails[long] = np.array(kept, np.int64)[which].T
        return ragged.ends_kept(lists, heads, tails, marked=marks, middle=self.marker or 0)


def allot(wants: np.ndarray, rows: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return how many places of its row each text gets: short texts what they need, long ones equal shares of the rest.

    wants: int64[texts], how long each is. rows: int64[texts], sorted, the row of each. room: int64[rows].

    >>> allot(np.array([10, 300, 400, 9]), np.array([0, 0, 0, 1]), np.array([410, 5])).tolist()
    [10, 200, 200, 5]
    """
    given, left = np.zeros(len(wants), np.int64), room.astype(np.int64)
    counts = np.bincount(rows, minlength=len(room))
    shortest_first, begins = np.lexsort((wants, rows)), ragged.begins(counts)[:-1]
    for rank in range(int(counts.max(initial=0))):
        having = np.flatnonzero(counts > rank)
        texts = shortest_first[begins[having] + rank]
        given[texts] = np.minimum(wants[texts], left[having] // (counts[having] - rank))
        left[having] -= given[texts]
    return given

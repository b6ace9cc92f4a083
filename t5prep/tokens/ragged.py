"""Compute on many lists of token ids, or many short texts, which are stored contiguously in one array."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from t5prep import _native


class Ragged(NamedTuple):
    """Lists of ids in one array, int32[ids]. List i is `ids[starts[i] : starts[i + 1]]`, with int64[lists + 1] starts."""

    ids: np.ndarray
    starts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Return the length of each list: int64[lists]."""
        return np.diff(self.starts)

    def to_arrays(self) -> list[np.ndarray]:
        """Return each list as an array, int32[length]."""
        edges = self.starts.tolist()
        return [self.ids[start:end] for start, end in itertools.pairwise(edges)]

    def occurrences(self, token: int) -> np.ndarray:
        """Return the number of occurrences of `token` in each list: int64[lists]."""
        counts = np.zeros(len(self.starts) - 1, np.int64)
        ids, starts = np.ascontiguousarray(self.ids, np.int32), np.ascontiguousarray(self.starts, np.int64)
        _native.list_counts(ids, starts, token, counts)
        return counts

    def joined(self, edges: np.ndarray) -> "Ragged":
        """Return lists that each join the lists from `edges[i]` to `edges[i + 1]`. edges: int64[joined lists + 1]."""
        return Ragged(self.ids, self.starts[edges])

    def to_arrow(self) -> pa.ListArray:
        """Return the lists as an Arrow array."""
        return pa.ListArray.from_arrays(self.starts.astype(np.int32), self.ids)


class Frame(NamedTuple):
    """The ids that a model expects before the first text of a row, between two texts, and after the last one.

    T5 has `</s>` between and after, BERT `[CLS]`, `[SEP]` and `[SEP]`, RoBERTa `<s>`, `</s></s>` and `</s>`.
    """

    first: tuple[int, ...]
    between: tuple[int, ...]
    last: tuple[int, ...]

    def tokens(self, texts: np.ndarray) -> np.ndarray:
        """Return the number of special tokens of rows, int64[rows], from their numbers of texts, int64[rows].

        A row without texts has no special tokens.

        >>> Frame((101,), (102,), (102,)).tokens(np.array([0, 1, 2]))
        array([0, 2, 3])
        """
        ends = len(self.first) + len(self.last)
        return np.where(texts > 0, ends + len(self.between) * (texts - 1), 0)

    def strip(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the ids of a row without the special tokens before and after its texts, if the row has them.

        >>> Frame((101,), (102,), (102,)).strip([101, 7, 102, 8, 102]), Frame((101,), (102,), (102,)).strip([7, 8])
        ([7, 102, 8], [7, 8])
        """
        begin = len(self.first) if tuple(ids[: len(self.first)]) == self.first else 0
        end = len(ids) - len(self.last)
        return ids[begin:end] if tuple(ids[end:]) == self.last else ids[begin:]


def run_starts(values: np.ndarray) -> np.ndarray:
    """Return the index of the first element of each run of equal neighbours. Of sorted values, the first of each value.

    >>> run_starts(np.array([7, 7, 3, 3, 3, 9])).tolist()
    [0, 2, 5]
    """
    return np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])


def full(rows: np.ndarray) -> Ragged:
    """Return rows of one length, int32[n, length], as a Ragged."""
    return Ragged(rows.ravel(), np.arange(len(rows) + 1) * rows.shape[1])


def of(lists: list[np.ndarray]) -> Ragged:
    """Return lists of ids, int32[length] each, as a Ragged.

    >>> of([np.array([5, 6], np.int32), np.array([], np.int32)]).starts.tolist()
    [0, 2, 2]
    """
    return Ragged(np.concatenate([np.zeros(0, np.int32), *lists]), begins([len(ids) for ids in lists]))


def begins(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return the starts of concatenated lists with `lengths`, and the end of the last one: int64[lists + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def framed(texts: Ragged, rows: np.ndarray, frame: Frame) -> Ragged:
    """Return rows of framed texts. Row i has the texts from `rows[i]` to `rows[i + 1]`, with special tokens around and between.

    >>> three = of([np.array([5], np.int32), np.array([6, 7], np.int32), np.array([8], np.int32)])
    >>> [row.tolist() for row in framed(three, np.array([0, 2, 2, 3]), Frame((101,), (102,), (103,))).to_arrays()]
    [[101, 5, 102, 6, 7, 103], [], [101, 8, 103]]
    """
    filled = rows[1:] > rows[:-1]
    firsts, lasts = rows[:-1][filled], rows[1:][filled] - 1
    prefix_lengths, suffix_lengths = (
        np.zeros(len(texts.starts) - 1, np.int64),
        np.full(len(texts.starts) - 1, len(frame.between)),
    )
    prefix_lengths[firsts], suffix_lengths[lasts] = len(frame.first), len(frame.last)
    lengths = texts.lengths
    edges = begins(prefix_lengths + lengths + suffix_lengths)
    ids = np.empty(int(edges[-1]), np.int32)
    places = edges[:-1] + prefix_lengths
    _copy(texts.ids, texts.starts[:-1], ids, places, lengths)
    for number, token in enumerate(frame.first):
        ids[edges[firsts] + number] = token
    inner = np.ones(len(lengths), bool)
    inner[lasts] = False
    for special, texts_before in ((frame.between, inner), (frame.last, ~inner)):
        for number, token in enumerate(special):
            ids[(places + lengths)[texts_before] + number] = token
    return Ragged(ids, edges[rows])


def take(lists: Ragged, rows: np.ndarray) -> Ragged:
    """Return the lists with the indices `rows`, int64[n], in this order.

    >>> take(of([np.array([5, 6], np.int32), np.array([7], np.int32)]), np.array([1, 0, 1])).ids.tolist()
    [7, 5, 6, 7]
    """
    lengths = lists.lengths[rows]
    starts = begins(lengths)
    ids = np.empty(int(starts[-1]), np.int32)
    _copy(lists.ids, lists.starts[:-1][rows], ids, starts[:-1], lengths)
    return Ragged(ids, starts)


def replaced(lists: Ragged, rows: np.ndarray, replacements: Ragged) -> Ragged:
    """Return `lists` with the lists at the indices `rows`, int64[n], replaced by the n lists in `replacements`.

    >>> one = of([np.array([5, 6], np.int32), np.array([7], np.int32)])
    >>> replaced(one, np.array([0]), of([np.array([8], np.int32)])).ids.tolist()
    [8, 7]
    """
    if not len(rows):
        return lists
    both = Ragged(
        np.concatenate([lists.ids, replacements.ids]),
        np.concatenate([lists.starts, replacements.starts + len(lists.ids)]),
    )
    order = np.arange(len(lists.starts) - 1)
    order[rows] = len(lists.starts) + np.arange(len(rows))
    return take(both, order)


def ends_kept(lists: Ragged, heads: np.ndarray, tails: np.ndarray, *, marked: np.ndarray, middle: int) -> Ragged:
    """Return the first `heads[i]` and the last `tails[i]` ids of each list i, int64[lists] each.

    The id `middle` is put between the two ends of the lists that are `marked`, bool[lists].

    >>> whole, marked = of([np.arange(9, dtype=np.int32), np.arange(3, dtype=np.int32)]), np.array([True, False])
    >>> ends_kept(whole, np.array([1, 3]), np.array([2, 0]), marked=marked, middle=77).ids.tolist()
    [0, 77, 7, 8, 0, 1, 2]
    """
    starts = begins(heads + marked + tails)
    ids = np.empty(int(starts[-1]), np.int32)
    _copy(lists.ids, lists.starts[:-1], ids, starts[:-1], heads)
    ids[(starts[:-1] + heads)[marked]] = middle
    _copy(lists.ids, lists.starts[1:] - tails, ids, starts[1:] - tails, tails)
    return Ragged(ids, starts)


def _copy(source: np.ndarray, begin: np.ndarray, target: np.ndarray, offsets: np.ndarray, lengths: np.ndarray) -> None:
    """Copy `lengths[i]` ids from `source[begin[i]:]` to `target[offsets[i]:]`, for every i."""
    begin, offsets, lengths = (np.ascontiguousarray(array, np.int64) for array in (begin, offsets, lengths))
    _native.copy_lists(np.ascontiguousarray(source), begin, target, offsets, lengths)


class Names(Sequence[str]):
    """A sequence of texts, stored contiguously in UTF-8. Text i is `data[starts[i] : starts[i + 1]]`, int64[texts + 1]."""

    def __init__(self, data: bytes | bytearray, starts: np.ndarray) -> None:
        self.data, self.starts = data, starts

    @staticmethod
    def of(texts: Sequence[str]) -> "Names":
        """Return `texts` as Names. Lone surrogates are preserved.

        >>> list(Names.of(["a", "bc"]))
        ['a', 'bc']
        """
        return Names.joined([text.encode("utf-8", "surrogatepass") for text in texts])

    @staticmethod
    def joined(encoded: Sequence[bytes]) -> "Names":
        """Return texts from their bytes in UTF-8."""
        return Names(b"".join(encoded), begins(list(map(len, encoded))))

    def encoded(self, index: int) -> bytes:
        """Return text `index` in UTF-8."""
        return bytes(self.data[self.starts[index] : self.starts[index + 1]])

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.data[self.starts[index] : self.starts[index + 1]].decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        for begin, end in itertools.pairwise(self.starts.tolist()):
            yield self.data[begin:end].decode("utf-8", "surrogatepass")


# Packing puts several examples into one row, so that a batch holds tokens instead of padding, as when T5 was trained.
#
# Segment ids tell the examples of a row apart (1, 2, …; 0 is padding). Attention stays inside a segment, and positions start
# again at 0 in each. An example goes as a whole into the first row with room for both its sides (first-fit), so rows depend only
# on the order of the examples. preparation/records.py writes them. Positions are part of the data contract for models that embed
# positions; T5 uses distances, and reads only ids and segment ids.


def first_fit(sizes: NDArray[np.int64], *, room: tuple[int, int]) -> NDArray[np.int64]:
    """Return the row of each example, int64[n]. Rows are numbered in the order in which they are opened.

    sizes: int64[n, 2], the tokens of inputs and of targets. room: the tokens of the two sides of a row. Raises ValueError if an
    example does not fit into an empty row.

    >>> first_fit(np.array([[5, 1], [4, 1], [3, 1], [2, 1]]), room=(8, 2))
    array([0, 1, 0, 1])
    """
    too_long = (sizes > room).any(axis=1)
    if too_long.any():
        index = int(too_long.argmax())
        raise ValueError(f"example {index} has {sizes[index].tolist()} tokens, a row has room for {list(room)}")
    rows = np.empty(len(sizes), np.int64)
    _native.first_fit(np.ascontiguousarray(sizes, np.int64), room, rows)
    return rows

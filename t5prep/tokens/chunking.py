"""Concatenate documents and cut them into rows of one length, so that every row of a pretraining batch is full.

A row is named after its first token, `document@offset`. The name depends only on the documents before it, and not on
batches, blocks or workers. No token is dropped; only the very last row is shorter.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from t5prep.tokens.ragged import Ragged

ROWS = 1024  # rows that are given out at once: some MB of tokens


class Chunks(NamedTuple):
    """Hold some rows of one length, `int32[n, length]`, and their names."""

    ids: list[str]
    tokens: NDArray[np.int32]


def chunks(documents: Iterable[tuple[Sequence[str], Ragged]], *, length: int) -> Iterator[Chunks]:
    """Yield documents (some at a time: their names, and their ids, which end in EOS), concatenated, in rows of `length`.

    The last row holds the rest.

    >>> two = Ragged(np.array([5, 6, 7, 1, 8, 1], np.int32), np.array([0, 4, 6]))
    >>> [(ids, tokens.tolist()) for ids, tokens in chunks([(["a", "b"], two)], length=4)]
    [(['a@0'], [[5, 6, 7, 1]]), (['b@0'], [[8, 1]])]
    """
    rest, name = np.zeros(0, np.int32), ""  # tokens that do not fill a row yet, and the name of the first of them
    for names, (ids, starts) in documents:
        tokens = np.concatenate([rest, ids])
        # Where rows begin, counted from the first of these documents: the first row may begin before it.
        begins = np.arange(-len(rest), len(ids), length)
        holding = np.searchsorted(starts[1:], begins, side="right")
        into = begins - starts[np.minimum(holding, len(starts) - 1)]
        rows = [f"{names[at]}@{ahead}" for at, ahead in zip(holding.tolist(), into.tolist(), strict=True) if ahead >= 0]
        rows = [name, *rows] if len(rest) else rows
        whole = len(tokens) // length
        for at in range(0, whole, ROWS):
            part = slice(at, min(at + ROWS, whole))
            yield Chunks(rows[part], tokens[part.start * length : part.stop * length].reshape(-1, length))
        rest, name = tokens[whole * length :], rows[whole] if len(rows) > whole else ""
    if len(rest):
        yield Chunks([name], rest.reshape(1, -1))

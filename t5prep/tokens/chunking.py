"""Concatenate documents and cut them into rows of one length, so that every row of a pretraining batch is full.

A row is named after its first token, `document@offset`. The name depends only on the documents before it, and not on
batches, blocks or workers. No token is dropped; only the very last row is shorter.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ROWS = 1024  # rows that are cut at once: some MB of tokens


class Chunks(NamedTuple):
    """Hold some rows of one length, `int32[n, length]`, and their names."""

    ids: list[str]
    tokens: NDArray[np.int32]


def chunks(documents: Iterable[tuple[str, Sequence[int] | NDArray[np.int32]]], *, length: int) -> Iterator[Chunks]:
    """Yield the ids of documents (each ends in EOS), concatenated, in rows of `length`; the last row holds the rest.

    >>> [(ids, tokens.tolist()) for ids, tokens in chunks([("a", [5, 6, 7, 1]), ("b", [8, 1])], length=4)]
    [(['a@0'], [[5, 6, 7, 1]]), (['b@0'], [[8, 1]])]
    """
    waiting: list[_Piece] = []
    held = 0
    for name, ids in documents:
        waiting.append(_Piece(name, 0, np.asarray(ids, np.int32)))
        held += len(ids)
        if held >= ROWS * length:
            left = held % length  # these tokens are all from the end of this document
            yield _rows(waiting, slice(0, held - left), length=length)
            name, offset, tokens = waiting[-1]
            waiting = [_Piece(name, offset + len(tokens) - left, tokens[len(tokens) - left :])]
            held = left
    whole = held - held % length
    if whole:
        yield _rows(waiting, slice(0, whole), length=length)
    if held > whole:
        yield _rows(waiting, slice(whole, held), length=held - whole)


class _Piece(NamedTuple):
    name: str
    offset: int
    tokens: NDArray[np.int32]


def _rows(pieces: Sequence[_Piece], part: slice, *, length: int) -> Chunks:
    """Return a slice of the pieces' tokens as rows of `length`; the slice is a multiple of `length`."""
    sizes = np.array([len(piece.tokens) for piece in pieces])
    starts = np.arange(part.start, part.stop, length)
    holding = np.searchsorted(sizes.cumsum(), starts, side="right")
    into = starts - (sizes.cumsum() - sizes)[holding]
    ids = [f"{pieces[at].name}@{pieces[at].offset + ahead}" for at, ahead in zip(holding, into.tolist(), strict=True)]
    return Chunks(ids, np.concatenate([piece.tokens for piece in pieces])[part].reshape(-1, length))

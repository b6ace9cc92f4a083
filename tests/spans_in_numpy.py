"""Hide spans as the definition says it, in numpy: what is in C is compared with it."""

import numpy as np
from numpy.typing import NDArray

from t5prep.tokens.noise_spans import DENSITY, MEAN_SPAN, spans


def corrupt(
    tokens: NDArray[np.int32],
    *,
    keys: NDArray[np.uint64],
    first_sentinel: int,
    eos_id: int,
    density: float,
    mean_span: float,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The inputs and targets of rows, with EOS."""
    mask = noise_mask(tokens.shape[1], keys=keys, density=density, mean_span=mean_span)
    sides = (_replace(tokens, side_mask, first_sentinel=first_sentinel) for side_mask in (mask, ~mask))
    inputs, targets = (np.pad(side, [(0, 0), (0, 1)], constant_values=eos_id) for side in sides)
    return inputs, targets


def noise_mask(
    length: int, *, keys: NDArray[np.uint64], density: float = DENSITY, mean_span: float = MEAN_SPAN
) -> NDArray[np.bool_]:
    """Return which tokens are hidden: `bool[n, length]`, one row for each key.

    Kept and hidden spans alternate, and a kept one is first. All masks with these numbers are equally likely.

    >>> noise_mask(12, keys=np.array([7], np.uint64), density=0.25).sum()
    np.int64(3)
    """
    hidden, count = spans(length, density=density, mean_span=mean_span)
    visible = max(length, 2) - hidden
    draws = _draw(keys, hidden - 1 + visible - 1)
    runs = np.empty((len(keys), 2 * count), np.int64)
    runs[:, 0::2] = _segments(draws[:, hidden - 1 :], visible, count)
    runs[:, 1::2] = _segments(draws[:, : hidden - 1], hidden, count)
    starts = np.zeros((len(keys), visible + hidden), np.int8)
    np.put_along_axis(starts, runs.cumsum(axis=1)[:, :-1], 1, axis=1)
    return (np.bitwise_xor.accumulate(starts, axis=1) == 1)[:, :length]


def _replace(tokens: NDArray[np.int32], mask: NDArray[np.bool_], *, first_sentinel: int) -> NDArray[np.int32]:
    """Replace each run of the mask by one sentinel, ids descending from the first: `int32[n, remaining tokens]`."""
    starts = mask.copy()
    starts[:, 1:] &= ~mask[:, :-1]
    sentinels = np.int32(first_sentinel + 1) - np.cumsum(starts, axis=1, dtype=np.int32)
    return np.where(starts, sentinels, tokens)[starts | ~mask].reshape(len(tokens), -1)


def _draw(keys: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """Return `count` 64-bit numbers for each key: SplitMix64 (Steele et al. 2014) with the column as its counter."""
    state = keys[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _segments(draws: NDArray[np.uint64], items: int, parts: int) -> NDArray[np.int64]:
    """Return the lengths of `parts` non-empty runs of `items`: `uint64[n, items - 1]` → `int64[n, parts]`.

    All ways to cut are equally likely. The runs are cut at the positions of the smallest draws. The low bits of each
    draw are replaced by its position: so no two draws are equal, and a partial sort gives the positions directly.
    """
    low = np.uint64((1 << items.bit_length()) - 1)
    tagged = (draws & ~low) | np.arange(items - 1, dtype=np.uint64)
    if 0 < parts - 1 < items - 1:
        tagged = np.partition(tagged, parts - 2, axis=1)
    cuts = np.sort((tagged[:, : parts - 1] & low).astype(np.int64), axis=1) + 1
    return np.diff(cuts, axis=1, prepend=0, append=items)

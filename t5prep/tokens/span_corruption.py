"""Corrupt spans, T5's pretraining task: replace short spans of a text by sentinels; the targets are the hidden tokens.

Raffel et al. 2020, section 3.3.4, with the arithmetic of T5's own code: lengths, the number of spans and the
distribution of their positions agree with it. The random numbers are our own: they come from a 64-bit key for each row
and integer arithmetic alone, so a key gives the same spans on every machine. All rows of one length hide the same
number of tokens in the same number of spans, so many rows are corrupted at once.

    tokens   Thank you for inviting me to your party last week
    inputs   Thank you <extra_id_0> me to your party <extra_id_1> week </s>
    targets  <extra_id_0> for inviting <extra_id_1> last </s>
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from t5prep.errors import UsageError
from t5prep.tokens.tokenizer import SENTINELS

try:
    from t5prep.tokens._native import hide_spans
except ImportError:  # no compiler
    hide_spans = None  # type: ignore[assignment]

DENSITY = 0.15  # Raffel et al. 2020, table 6
MEAN_SPAN = 3.0  # Raffel et al. 2020, table 7
ROWS_AT_ONCE = 256  # rows of 512 tokens that fit into the cache of a core


def spans(length: int, *, density: float = DENSITY, mean_span: float = MEAN_SPAN) -> tuple[int, int]:
    """Return how many tokens of `length` are hidden, and in how many spans. Halves are rounded to even, as in T5.

    >>> spans(568)
    (85, 28)
    """
    length = max(length, 2)
    hidden = min(max(round(length * density), 1), length - 1)
    return hidden, min(max(round(hidden / mean_span), 1), length - hidden)


def lengths(inputs_length: int, *, density: float = DENSITY, mean_span: float = MEAN_SPAN) -> tuple[int, int]:
    """Return how many raw tokens fill inputs of `inputs_length`, and the length of the targets; both include EOS.

    Raises UsageError when not even two tokens fit, or when there are more spans than sentinels.

    >>> lengths(512)
    (568, 114)
    """

    def sides(raw: int) -> tuple[int, int]:
        hidden, count = spans(raw, density=density, mean_span=mean_span)
        return raw - hidden + count + 1, hidden + count + 1

    if not (0 < density < 1 and mean_span >= 1):
        raise UsageError(
            f"a noise density of {density} with spans of {mean_span} hides nothing; "
            "the density lies between 0 and 1, the mean span is 1 or more: T5 has 0.15 and 3."
        )
    if inputs_length < sides(2)[0]:
        raise UsageError(f"inputs of {inputs_length} tokens are too short to corrupt; ask for {sides(2)[0]} or more.")
    raw = max(inputs_length - 1, 2)
    while sides(raw + 1)[0] <= inputs_length:
        raw += 1
    if density == 0.5 and sides(raw)[1] > inputs_length:
        raw -= 1  # as in T5: with half of the tokens hidden, targets must fit the length of the inputs too
    count = spans(raw, density=density, mean_span=mean_span)[1]
    if count > SENTINELS:
        raise UsageError(
            f"inputs of {inputs_length} tokens hide {count} spans, and T5 has {SENTINELS} sentinels; "
            "ask for shorter inputs, a lower density or a longer mean span."
        )
    return raw, sides(raw)[1]


def keys(ids: Iterable[str], *, seed: int = 0) -> NDArray[np.uint64]:
    """Return one 64-bit key for each id (BLAKE2b keyed with the seed): `uint64[n]`, the same on every machine.

    >>> keys(["a"], seed=0) == keys(["a"], seed=1)
    array([False])
    """
    secret = str(seed).encode()
    digests = (hashlib.blake2b(one.encode(), digest_size=8, key=secret).digest() for one in ids)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def noise_mask(
    length: int, *, keys: NDArray[np.uint64], density: float = DENSITY, mean_span: float = MEAN_SPAN
) -> NDArray[np.bool_]:
    """Return which tokens are hidden: `bool[n, length]`, one row for each key.

    Kept and hidden spans alternate, and a kept one is first. All masks with these numbers are equally likely.

    >>> noise_mask(12, keys=keys(["a"]), density=0.25).sum()
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


def corrupt(
    tokens: NDArray[np.int32],
    *,
    keys: NDArray[np.uint64],
    first_sentinel: int,
    eos_id: int = 1,
    density: float = DENSITY,
    mean_span: float = MEAN_SPAN,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the inputs and targets of rows, with EOS: `int32[n, length]` → `int32[n, inputs]`, `int32[n, targets]`.

    `first_sentinel` is the id of `<extra_id_0>` (32,099 for T5); the ids of the following sentinels descend.
    """
    rows, length = tokens.shape
    hidden, count = spans(length, density=density, mean_span=mean_span)
    hidden = hidden if length > 1 else 0
    inputs = np.full((rows, length - hidden + count + 1 if hidden else length + 1), eos_id, np.int32)
    targets = np.full((rows, hidden + count + 1), eos_id, np.int32)
    if hide_spans is not None and hidden:
        order = np.ascontiguousarray(tokens, np.int32), np.ascontiguousarray(keys, np.uint64)
        hide_spans(*order, (length, hidden, count), first_sentinel, eos_id, inputs, targets)
        return inputs, targets
    for at in range(0, rows, ROWS_AT_ONCE):
        part = slice(at, at + ROWS_AT_ONCE)
        mask = noise_mask(length, keys=keys[part], density=density, mean_span=mean_span)
        inputs[part, :-1] = _replace(tokens[part], mask, first_sentinel=first_sentinel)
        targets[part, :-1] = _replace(tokens[part], ~mask, first_sentinel=first_sentinel)
    return inputs, targets


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

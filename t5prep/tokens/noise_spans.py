"""Corrupt spans, T5's pretraining task: replace short spans of a text by sentinels; the targets are the hidden tokens.

The method is that of Raffel et al. 2020, section 3.3.4. Lengths, the number of spans and the distribution of their positions
agree with T5's code. Random numbers differ: they come from a 64-bit key for each row by integer arithmetic, so a key gives the
same spans on every machine. All rows of one length hide the same number of tokens in the same number of spans, so many rows are
corrupted at once.

    tokens   Thank you for inviting me to your party last week
    inputs   Thank you <extra_id_0> me to your party <extra_id_1> week </s>
    targets  <extra_id_0> for inviting <extra_id_1> last </s>

First, documents are concatenated and cut into rows of one length, so that every row of a pretraining batch is full. A row is named
after its first token, `document@offset`. The name depends only on the documents before it, and not on batches, blocks or
workers. No token is dropped; only the very last row is shorter.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from t5prep import _native
from t5prep.errors import UsageError
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import SENTINELS

DENSITY = 0.15  # Raffel et al. 2020, table 6
MEAN_SPAN = 3.0  # Raffel et al. 2020, table 7


def spans(length: int, *, density: float = DENSITY, mean_span: float = MEAN_SPAN) -> tuple[int, int]:
    """Return the number of hidden tokens in a row of `length` tokens, and the number of spans. As in T5, halves round to even.

    >>> spans(568)
    (85, 28)
    """
    length = max(length, 2)
    hidden = min(max(round(length * density), 1), length - 1)
    return hidden, min(max(round(hidden / mean_span), 1), length - hidden)


def lengths(
    inputs_length: int, *, density: float = DENSITY, mean_span: float = MEAN_SPAN, fewer: bool = False
) -> tuple[int, int]:
    """Return the number of raw tokens that fill inputs of `inputs_length` ids, and the length of their targets.

    Lengths of inputs and targets include EOS. Raises UsageError if not even two tokens fit, or if there are more spans than
    sentinels. With `fewer`, the number of raw tokens is reduced until the sentinels suffice.

    >>> lengths(512)
    (568, 114)
    """

    def sides(raw: int) -> tuple[int, int]:
        hidden, count = spans(raw, density=density, mean_span=mean_span)
        return raw - hidden + count + 1, hidden + count + 1

    if not (0 < density < 1 and mean_span >= 1):
        raise UsageError(
            f"A noise density of {density} with a mean span of {mean_span} hides nothing. Choose a "
            "density between 0 and 1, and a mean span of at least 1. T5 uses 0.15 and 3.",
            code="option.out-of-range",
        )
    if inputs_length < sides(2)[0]:
        raise UsageError(
            f"Inputs of {inputs_length} tokens are too short to corrupt. Use an input length of {sides(2)[0]} or more.",
            code="option.out-of-range",
        )
    raw = max(inputs_length - 1, 2)
    while sides(raw + 1)[0] <= inputs_length:
        raw += 1
    if density == 0.5 and sides(raw)[1] > inputs_length:
        raw -= 1  # as in T5: with half of the tokens hidden, targets must fit the length of the inputs too
    while fewer and spans(raw, density=density, mean_span=mean_span)[1] > SENTINELS:
        raw -= 1
    count = spans(raw, density=density, mean_span=mean_span)[1]
    if count > SENTINELS:
        raise UsageError(
            f"Inputs of {inputs_length} tokens hide {count} spans, but T5 has only {SENTINELS} sentinels. "
            "Choose shorter inputs, a lower density or a longer mean span.",
            code="option.excess-spans",
        )
    return raw, sides(raw)[1]


def keys(ids: Iterable[str], *, seed: int = 0) -> NDArray[np.uint64]:
    """Return a 64-bit key for each id, `uint64[n]`: BLAKE2b keyed with the seed, the same on every machine.

    >>> keys(["a"], seed=0) == keys(["a"], seed=1)
    array([False])
    """
    secret = str(seed).encode()
    digests = (hashlib.blake2b(row_id.encode(), digest_size=8, key=secret).digest() for row_id in ids)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def corrupt(
    tokens: NDArray[np.int32],
    *,
    keys: NDArray[np.uint64],
    first_sentinel: int,
    eos_id: int = 1,
    density: float = DENSITY,
    mean_span: float = MEAN_SPAN,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the inputs, `int32[n, inputs]`, and the targets, `int32[n, targets]`, of corrupted rows; both end in EOS.

    tokens: `int32[n, length]`. keys: `uint64[n]`, one for each row. first_sentinel: the id of `<extra_id_0>` (32,099 for T5); the
    ids of the following sentinels descend.
    """
    rows, length = tokens.shape
    hidden, count = spans(length, density=density, mean_span=mean_span)
    hidden = hidden if length > 1 else 0
    inputs = np.full((rows, length - hidden + count + 1 if hidden else length + 1), eos_id, np.int32)
    targets = np.full((rows, hidden + count + 1), eos_id, np.int32)
    if hidden:
        order = np.ascontiguousarray(tokens, np.int32), np.ascontiguousarray(keys, np.uint64)
        _native.hide_spans(*order, (length, hidden, count), first_sentinel, eos_id, inputs, targets)
    else:  # a single token is not hidden
        inputs[:, :-1], targets[:, :-1] = tokens, first_sentinel
    return inputs, targets


ROWS = 1024  # the maximum rows that are yielded at once: some MB of tokens


def chunks(
    documents: Iterable[tuple[Sequence[str], Ragged]], *, length: int
) -> Iterator[tuple[list[str], NDArray[np.int32]]]:
    """Yield concatenated documents in rows of `length` ids, several rows at a time: their names, and int32[n, length].

    documents: several at a time, their names and their ids, which end in EOS. The last row holds the remaining ids.

    >>> two = Ragged(np.array([5, 6, 7, 1, 8, 1], np.int32), np.array([0, 4, 6]))
    >>> [(ids, tokens.tolist()) for ids, tokens in chunks([(["a", "b"], two)], length=4)]
    [(['a@0'], [[5, 6, 7, 1]]), (['b@0'], [[8, 1]])]
    """
    remainder, name = np.zeros(0, np.int32), ""  # tokens that do not fill a row yet, and the name of their row
    for names, (ids, starts) in documents:
        tokens, every = np.concatenate([remainder, ids]), list(names)  # a list, because it may be indexed many times
        # The positions where rows begin, counted from the first of these documents; the first row may begin before it.
        begins = np.arange(-len(remainder), len(ids), length)
        holding = np.searchsorted(starts[1:], begins, side="right")
        into = begins - starts[np.minimum(holding, len(starts) - 1)]
        rows = [
            f"{every[index]}@{ahead}"
            for index, ahead in zip(holding.tolist(), into.tolist(), strict=True)
            if ahead >= 0
        ]
        rows = [name, *rows] if len(remainder) else rows
        row_count = len(tokens) // length
        for index in range(0, row_count, ROWS):
            part = slice(index, min(index + ROWS, row_count))
            yield rows[part], tokens[part.start * length : part.stop * length].reshape(-1, length)
        remainder, name = tokens[row_count * length :], rows[row_count] if len(rows) > row_count else ""
    if len(remainder):
        yield [name], remainder.reshape(1, -1)

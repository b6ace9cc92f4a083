"""Hide single tokens, the pre-training of encoders (Devlin et al. 2019, section 3.1): the targets are the hidden tokens.

Of the hidden tokens, 80 % become the mask, 10 % a token drawn from the vocabulary, and 10 % stay. A target has the position of
its token; all other positions have no target (-100).

    tokens   the film is gorgeous and sad
    inputs   [CLS] the [MASK] is gorgeous and happy [SEP]
    targets    ·    ·   film   ·     ·      ·   sad    ·

As for span corruption, documents, each with its last token (`[SEP]`), are concatenated and cut into rows of one length, so that
every row is full. All rows of a length hide the same number of tokens. SplitMix64 (Steele et al. 2014) draws them from a key for
each row, so they are the same on every machine.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from t5prep.errors import TokenizerError, UsageError
from t5prep.tokens import noise_spans, ragged
from t5prep.tokens.denoisers import Hidden
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer

NO_TARGET = -100  # the label that PyTorch's cross-entropy ignores, and that `dataset.tfrecord` writes
# Of ten hidden tokens, the number that become the mask, and the number that become the mask or another token.
MASKED, CHANGED = 8, 9


def check(rate: float, tokenizer: Tokenizer) -> None:
    """Raise UsageError if `rate` is not between 0 and 1, and TokenizerError if the tokenizer has no mask."""
    if not 0 < rate < 1:
        raise UsageError(
            f"The masking rate {rate} is not between 0 and 1. Choose another rate, such as BERT's 0.15.",
            code="option.out-of-range",
        )
    if tokenizer.mask_id is None:
        raise TokenizerError(
            f"The tokenizer {tokenizer.name} has no [MASK] or <mask> token. Choose a tokenizer that has one.",
            code="tokenizer.missing-token",
        )


class Mask:
    """Cut concatenated documents into rows, and hide tokens in each row, depending only on the row's name and the seed.

    `rate` is the share of hidden tokens, `inputs_length` the ids of a row with special tokens.
    """

    def __init__(self, rate: float, tokenizer: Tokenizer, *, inputs_length: int, seed: int) -> None:
        assert tokenizer.mask_id is not None
        self._rate, self._seed, self._mask_id = rate, seed, tokenizer.mask_id
        self._first, self._last = (np.array(ids, np.int32) for ids in (tokenizer.frame.first, tokenizer.frame.last))
        self._eos_id, self._ids = tokenizer.eos_id, tokenizer.size
        self._length = inputs_length - len(self._first) - len(self._last)

    def __call__(self, documents: Iterable[tuple[Sequence[str], Ragged]]) -> Iterator[Hidden]:
        """Yield the rows of `documents` in order, several at a time. documents: see `noise_spans.chunks`."""
        for ids, tokens in noise_spans.chunks(documents, length=self._length):
            inputs, labels = self.hide(tokens, noise_spans.keys(ids, seed=self._seed))
            edge = np.full((len(tokens), 1), NO_TARGET, np.int32)
            first, last = (np.tile(frame_ids, (len(tokens), 1)) for frame_ids in (self._first, self._last))
            inputs = np.hstack([first, inputs, last])
            labels = np.hstack([edge.repeat(first.shape[1], 1), labels, edge.repeat(last.shape[1], 1)])
            yield Hidden(ids, [tokens.shape[1]] * len(ids), ragged.full(inputs), ragged.full(labels))

    def hide(self, tokens: NDArray[np.int32], keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return rows with hidden tokens, and their targets: int32[n, length] each. The last tokens of documents stay.

        tokens: int32[n, length]; keys: uint64[n], see `noise_spans.keys`.
        """
        length = tokens.shape[1]
        order, way, random_numbers = (_draw(keys, length, part) for part in range(3))
        may = tokens != self._eos_id
        order[~may] = np.iinfo(np.uint64).max
        count = max(1, round(length * self._rate))
        chosen = np.zeros(tokens.shape, bool)
        np.put_along_axis(chosen, np.argsort(order, axis=1, kind="stable")[:, :count], True, axis=1)
        chosen &= may
        way %= np.uint64(10)
        inputs = np.where(chosen & (way < MASKED), np.int32(self._mask_id), tokens)
        random_ids = (random_numbers % np.uint64(self._ids)).astype(np.int32)
        inputs = np.where(chosen & (way >= MASKED) & (way < CHANGED), random_ids, inputs)
        return inputs, np.where(chosen, tokens, np.int32(NO_TARGET))


def _draw(keys: NDArray[np.uint64], count: int, part: int) -> NDArray[np.uint64]:
    """Return `count` 64-bit random numbers for each key, uint64[n, count]; each `part` gives different numbers."""
    places = np.arange(part * count + 1, (part + 1) * count + 1, dtype=np.uint64)
    state = keys[:, None] + places * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))

"""Hide spans in several ways, one for each row: UL2's mixture of denoisers (Tay et al. 2022).

A denoiser hides short or long spans, few tokens or half of them, by `noise_spans`. Or it hides the end of the text, which the
model continues; this needs no sentinels. A text before the input, the mode, tells the model which denoiser was used.

    tokens   Thank you for inviting me to your party last week
    inputs   [NLU] Thank you <extra_id_0> me to your party <extra_id_1> week </s>   targets as those of span corruption
    inputs   [S2S] Thank you for inviting me to your </s>                           targets   party last week </s>

A row has as many tokens as its denoiser needs to fill the inputs. The denoiser and the spans depend only on the row's name and
the seed, so rows do not depend on batches, blocks or workers.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from t5prep.errors import UsageError
from t5prep.tasks.task import Denoiser
from t5prep.tokens import noise_spans, ragged
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer


class Hidden(NamedTuple):
    """Rows with hidden tokens: their names (`ids`), their numbers of document tokens (`sizes`), their inputs and labels."""

    ids: list[str]
    sizes: list[int]
    inputs: Ragged
    labels: Ragged


def lengths(inputs_length: int, denoiser: Denoiser, *, mode_length: int = 0) -> tuple[int, int]:
    """Return the number of raw tokens that fill inputs of `inputs_length` ids, and the length of their targets.

    `mode_length` ids of the inputs are the mode. If there are fewer sentinels than spans, the number of raw tokens is reduced.
    Raises UsageError if the inputs are too short.

    >>> lengths(512, Denoiser("[S2S]", 0.25, 0)), lengths(512, Denoiser("[NLG]", 0.5, 3.0))
    ((681, 171), (602, 402))
    """
    room = inputs_length - mode_length
    if denoiser.mean_span:
        hide = {"density": denoiser.density, "mean_span": denoiser.mean_span}
        return noise_spans.lengths(room, **hide, fewer=True)
    if room < 2:
        raise UsageError(
            f"Inputs of {inputs_length} tokens are too short to corrupt. Use an input length of "
            f"{mode_length + 2} or more.",
            code="option.out-of-range",
        )
    raw = int((room - 1) / (1 - denoiser.density))
    while raw + 1 - _end(raw + 1, denoiser) < room:
        raw += 1
    while raw - _end(raw, denoiser) >= room:
        raw -= 1
    return raw, _end(raw, denoiser) + 1


def _end(length: int, denoiser: Denoiser) -> int:
    """Return the number of the last tokens of a row of `length` tokens that `denoiser` hides."""
    return max(1, round(length * denoiser.density))


class Denoise:
    """Cut concatenated documents into rows, and hide spans in each row by the denoiser that is drawn for the row."""

    def __init__(self, denoisers: Sequence[Denoiser], *, tokenizer: Tokenizer, inputs_length: int, seed: int) -> None:
        self._denoisers, self._seed = denoisers, seed
        self._special = {"first_sentinel": tokenizer.sentinel(0), "eos_id": tokenizer.eos_id}
        self._modes = [np.array(tokenizer.encode(denoiser.mode), np.int32) for denoiser in denoisers]
        modes = zip(denoisers, self._modes, strict=True)
        self._lengths = [lengths(inputs_length, denoiser, mode_length=len(mode))[0] for denoiser, mode in modes]

    def __call__(self, documents: Iterable[tuple[Sequence[str], Ragged]]) -> Iterator[Hidden]:
        """Yield the rows of `documents` in order, several at a time. documents: see `noise_spans.chunks`."""
        ids: list[str] = []
        rows: list[NDArray[np.int32]] = []
        for id, tokens in self._rows(documents):
            ids.append(id)
            rows.append(tokens)
            if len(ids) == noise_spans.ROWS:
                yield self._hidden(ids, rows)
                ids, rows = [], []
        if ids:
            yield self._hidden(ids, rows)

    def number_of(self, id: str) -> int:
        """Return the number of the denoiser of the row named `id`."""
        key = hashlib.blake2b(id.encode(), digest_size=8, key=str(self._seed).encode(), person=b"denoiser").digest()
        return int.from_bytes(key, "little") % len(self._denoisers)

    def _rows(self, documents: Iterable[tuple[Sequence[str], Ragged]]) -> Iterator[tuple[str, NDArray[np.int32]]]:
        """Yield the name and the tokens of each row; the last row holds the remaining tokens."""
        remainder, name = np.zeros(0, np.int32), ""  # tokens that do not fill a row yet, and the name of their row
        for names, (ids, starts) in documents:
            tokens, ahead, offset = np.concatenate([remainder, ids]), len(remainder), 0
            while offset < len(tokens):
                if offset >= ahead:
                    document = int(np.searchsorted(starts[1:], offset - ahead, side="right"))
                    name = f"{names[document]}@{offset - ahead - int(starts[document])}"
                length = self._lengths[self.number_of(name)]
                if offset + length > len(tokens):
                    break
                yield name, tokens[offset : offset + length]
                offset += length
            remainder = tokens[offset:]
        if len(remainder):
            yield name, remainder

    def _hidden(self, ids: list[str], rows: Sequence[NDArray[np.int32]]) -> Hidden:
        """Return rows with their spans hidden. Rows with the same denoiser and length are corrupted at once."""
        groups: dict[tuple[int, int], list[int]] = {}
        for index, (id, row) in enumerate(zip(ids, rows, strict=True)):
            groups.setdefault((self.number_of(id), len(row)), []).append(index)
        inputs, labels = [rows[0]] * len(ids), [rows[0]] * len(ids)
        for (number, _), places in groups.items():
            sides = self._corrupted(
                number, np.stack([rows[index] for index in places]), [ids[index] for index in places]
            )
            for index, input, label in zip(places, *sides, strict=True):
                inputs[index], labels[index] = np.concatenate([self._modes[number], input]), label
        return Hidden(ids, [len(row) for row in rows], ragged.of(inputs), ragged.of(labels))

    def _corrupted(
        self, number: int, tokens: NDArray[np.int32], ids: list[str]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        denoiser = self._denoisers[number]
        if denoiser.mean_span:
            keys = noise_spans.keys(ids, seed=self._seed)
            density, mean = denoiser.density, denoiser.mean_span
            return noise_spans.corrupt(tokens, keys=keys, density=density, mean_span=mean, **self._special)
        ends = np.full((len(tokens), 1), self._special["eos_id"], np.int32)
        prefix_length = tokens.shape[1] - _end(tokens.shape[1], denoiser)
        return np.hstack([tokens[:, :prefix_length], ends]), np.hstack([tokens[:, prefix_length:], ends])

"""Turn examples of a classification into features: ids between a model's special tokens, and the number of a class."""

import itertools
from collections.abc import Sequence

import numpy as np

from t5prep.errors import Reject
from t5prep.tasks.example import Example, Part, Protected
from t5prep.tokens import truncation
from t5prep.tokens.encoder import MARKUP, Features, fields_of, text_of_part
from t5prep.tokens.frame import cut_text
from t5prep.tokens.tokenizer import Tokenizer


class ClassEncoder:
    """Turn examples into features as `encoder.Encoder` does, with `labels` that hold one number, int32[1].

    The number is the target's place among `classes`. Special tokens always stay; the texts of an input that is too long
    share the room that is left. Threads may share an encoder.
    """

    def __init__(self, tokenizer: Tokenizer, *, classes: Sequence[str], input_length: int, policy: str) -> None:
        self._tokenizer, self._frame = tokenizer, tokenizer.frame
        self._numbers = {word: np.array([number], np.int32) for number, word in enumerate(classes)}
        self._input_length, self._policy = input_length, policy

    def __call__(self, examples: Sequence[Example]) -> list[Features | Reject]:
        """Return the features of each example, or a Reject for an empty input, an unknown class, or no room."""
        rows = [fields_of(example.inputs) for example in examples]
        encoded = iter(self._tokenizer.encode_all([text for row in rows for text in row.texts]))
        features: list[Features | Reject] = []
        for example, row in zip(examples, rows, strict=True):
            ids = list(itertools.islice(encoded, len(row.texts)))
            markup = any("<" in text and MARKUP.search(text) is not None for text in row.texts)
            try:
                if not any(map(str.strip, row.texts)):  # spaces are tokens for RoBERTa
                    raise Reject("empty input")
                cut = self._cut_around(row.parts) if row.protected else ids
                inputs = self._inputs(ids, cut)
                features.append(Features(inputs, self._number(example.targets), self._tokens(ids), 1, markup))
            except Reject as reject:
                features.append(reject)
        return features

    def _tokens(self, ids: Sequence[np.ndarray]) -> int:
        return sum(map(len, ids)) + self._frame.tokens(len(ids))

    def _number(self, target: str) -> np.ndarray:
        if target not in self._numbers:
            raise Reject(f"unknown class: {target[:40]!r} is not one of {', '.join(list(self._numbers)[:8])}")
        return self._numbers[target]

    def _inputs(self, ids: list[np.ndarray], cut: list[np.ndarray]) -> list[np.ndarray]:
        """Return the pieces of an input. `cut`: its fields, already cut where they are too long and have protected parts."""
        if not any(map(len, ids)):
            raise Reject("empty input")
        if self._tokens(ids) <= self._input_length:
            return self._frame.around(ids)
        return self._frame.cut(cut, self._input_length, policy=self._policy)

    def _cut_around(self, fields: Sequence[Sequence[Part]]) -> list[np.ndarray]:
        """Return the ids of fields in which protected texts are whole, and the others share the rest of the room."""
        parts = [(field, part) for field, own in enumerate(fields) for part in own]
        ids = self._tokenizer.encode_all([text_of_part(part) for _, part in parts])
        kept = [isinstance(part, Protected) for _, part in parts]
        room = self._input_length - self._frame.tokens(len(fields))
        fixed = sum(len(one) for one, whole in zip(ids, kept, strict=True) if whole)
        if fixed > room:
            raise Reject(f"protected text too long: {fixed} tokens, and the limit leaves {room}")
        wants = [len(one) for one, whole in zip(ids, kept, strict=True) if not whole]
        rooms = iter(truncation.allot(wants, room - fixed))
        pieces: list[list[np.ndarray]] = [[] for _ in fields]
        for (field, _), one, whole in zip(parts, ids, kept, strict=True):
            pieces[field].append(one if whole else cut_text(one, next(rooms), policy=self._policy))
        return [np.concatenate([np.zeros(0, np.int32), *own]) for own in pieces]

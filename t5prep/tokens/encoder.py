"""Turn examples into features: token ids cut to their lengths, and the number of tokens before cutting."""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t5prep.errors import Reject
from t5prep.tasks.example import EOS, Example, Part, Protected
from t5prep.tokens import newlines, truncation
from t5prep.tokens.newlines import NUMBER
from t5prep.tokens.tokenizer import Tokenizer

MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>")


class Features(NamedTuple):
    """Hold the ids of one example, and what the manifest counts of it.

    `inputs` are int32 arrays to be concatenated, together at most the input length; `labels` are int32[<= target
    length]. Both end in EOS. `tokens` and `target_tokens` are counted before cutting.
    """

    inputs: list[np.ndarray]
    labels: np.ndarray
    tokens: int
    target_tokens: int
    markup: bool


class Inputs(NamedTuple):
    """Hold the input side of Features."""

    ids: list[np.ndarray]
    tokens: int


class Encoder:
    """Turn examples into features with one tokenizer, two lengths and one truncation policy.

    Many examples are encoded at a time: their texts are tokenized in one call, and ids never become Python integers.
    Threads may share an encoder: it never changes after it is made.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        input_length: int,
        target_length: int,
        policy: str,
        marker: str,
        keep_newlines: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._eos = np.array([tokenizer.eos_id], np.int32)
        # The token between two lines of a text; None where a newline is encoded as a space.
        self._newline = np.array([tokenizer.sentinel(NUMBER)], np.int32) if keep_newlines else None
        self._input_length, self._target_length = input_length, target_length
        self._policy = policy
        # The second sentinel marks the cut, as in the tutorial of so_quality: the first would look like a span to
        # fill in.
        self._marker = tokenizer.sentinel(1) if policy == "head_tail" and marker == "extra_id_1" else None
        self._middle = [] if self._marker is None else [np.array([self._marker], np.int32)]
        self._keep = truncation.ends(input_length, policy=policy, marked=bool(self._middle))

    def __call__(self, examples: Sequence[Example]) -> list[Features | Reject]:
        """Return the features of each example, or a Reject where a side is empty or protected text is too long."""
        rows = [self._apart(example.inputs) for example in examples]
        encoded = iter(self._tokenizer.encode_all([text for row in rows for text in row.texts]))
        targets = self._encode_targets([example.targets for example in examples])
        features: list[Features | Reject] = []
        for row, target in zip(rows, targets, strict=True):
            ids = list(itertools.islice(encoded, len(row.texts)))
            try:
                features.append(self._features(row, ids, target))
            except Reject as reject:
                features.append(reject)
        return features

    def _apart(self, inputs: str | tuple[Part, ...]) -> "_Apart":
        """Split an input into its fields, or the lines of these, each with the token that follows it."""
        fields = fields_of(inputs)
        markup = any("<" in text and MARKUP.search(text) is not None for text in fields.texts)
        if self._newline is None:
            return _Apart(fields.texts, [self._eos] * len(fields.texts), fields.parts, fields.protected, markup)
        texts: list[str] = []
        after: list[np.ndarray] = []
        for field in fields.texts:
            own = newlines.lines(field)
            texts += own
            after += [*[self._newline] * (len(own) - 1), self._eos]
        return _Apart(texts, after, fields.parts, fields.protected, markup)

    def _features(self, row: "_Apart", ids: list[np.ndarray], whole: np.ndarray) -> Features:
        inputs = self._cut(row, ids)
        if inputs.tokens == len(ids):
            raise Reject("empty input")
        if len(whole) == 1:
            raise Reject("empty target")
        labels = whole
        if len(whole) > self._target_length:
            labels = np.concatenate([whole[: self._target_length - 1], self._eos])
        return Features(inputs.ids, labels, inputs.tokens, len(whole), row.markup)

    def _encode_targets(self, texts: list[str]) -> list[np.ndarray]:
        """Return the ids of targets with EOS, int32[length] each.

        Each different target is tokenized once: targets often repeat.
        """
        different = list(dict.fromkeys(texts))
        known: dict[str, np.ndarray] = {}
        for text, ids in zip(different, self._encode_texts(different), strict=True):
            empty = self._newline is not None and (ids == self._newline).all()  # newlines alone count as empty
            known[text] = self._eos if empty else np.concatenate([ids, self._eos])
        return [known[text] for text in texts]

    def _encode_texts(self, texts: list[str]) -> list[np.ndarray]:
        """Return the ids of texts without EOS, int32[length] each, with their newlines where these are kept."""
        if self._newline is None:
            return self._tokenizer.encode_all(texts)
        apart = [newlines.lines(text) for text in texts]
        encoded = iter(self._tokenizer.encode_all([line for own in apart for line in own]))
        return [np.concatenate([piece for _ in own for piece in (self._newline, next(encoded))][1:]) for own in apart]

    def _cut(self, row: "_Apart", ids: list[np.ndarray]) -> Inputs:
        """Return the texts of an input, concatenated and cut to the input length."""
        joined = [piece for pair in zip(ids, row.after, strict=True) for piece in pair]
        tokens = len(ids) + sum(map(len, ids))
        if tokens <= self._input_length:
            return Inputs(joined, tokens)
        if row.protected:
            return Inputs([np.array(self._cut_around(row.parts), np.int32)], tokens)
        return Inputs(self._both_ends(np.concatenate(joined)), tokens)

    def _both_ends(self, ids: np.ndarray) -> list[np.ndarray]:
        head, tail = self._keep
        return [ids[:head], *self._middle, ids[len(ids) - tail :]]

    def _cut_around(self, fields: Sequence[Sequence[Part]]) -> list[int]:
        """Return the ids of fields: protected texts stay whole, and the others share the rest, cut by the policy."""
        eos = self._tokenizer.eos_id
        pieces: list[tuple[list[int], bool]] = []
        for field in fields:
            texts = self._encode_texts([text_of_part(part) for part in field])
            pieces += [(ids.tolist(), isinstance(part, Protected)) for ids, part in zip(texts, field, strict=True)]
            pieces.append(([eos], True))
        fixed = sum(len(ids) for ids, protected in pieces if protected)
        if fixed > self._input_length:
            raise Reject(f"protected text too long: {fixed} tokens with EOS, the limit is {self._input_length}")
        rooms = iter(
            truncation.allot([len(ids) for ids, protected in pieces if not protected], self._input_length - fixed)
        )
        return [
            token for ids, protected in pieces for token in (ids if protected else self._cut_text(ids, next(rooms)))
        ]

    def _cut_text(self, ids: list[int], room: int) -> list[int]:
        """Return the ids of a text without EOS, cut to `room`."""
        if len(ids) <= room:
            return ids
        if self._policy == "head":
            return ids[:room]
        if not room:
            return []
        return truncation.truncate(ids, room, policy=self._policy, marker=self._marker)


class DocumentEncoder:
    """Tokenize plain texts whole, each with its EOS; a later stage cuts them into rows."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._eos = np.array([tokenizer.eos_id], np.int32)

    def __call__(self, examples: Sequence[Example]) -> list[Features | Reject]:
        """Return the features of each text, or a Reject for a text of spaces only."""
        encoded = self._tokenizer.encode_all(["".join(fields_of(example.inputs).texts) for example in examples])
        nothing = self._eos[:0]
        return [
            Features([ids, self._eos], nothing, len(ids) + 1, 0, markup=False) if len(ids) else Reject("empty text")
            for ids in encoded
        ]


class _Apart(NamedTuple):
    """Hold an input split for the tokenizer: texts, the token after each (int32[1]), and the rest of Fields."""

    texts: list[str]
    after: list[np.ndarray]
    parts: Sequence[Sequence[Part]]
    protected: bool
    markup: bool


class Fields(NamedTuple):
    """Hold an input split at its EOS: the text and the parts of each field, and whether any part is protected."""

    texts: list[str]
    parts: Sequence[Sequence[Part]]
    protected: bool


def fields_of(inputs: str | tuple[Part, ...]) -> Fields:
    """Return an input split at its EOS."""
    if isinstance(inputs, str):
        return Fields([inputs], [[inputs]], False)
    parts: list[list[Part]] = [[]]
    for part in inputs:
        if part is EOS:
            parts.append([])
        else:
            parts[-1].append(part)
    texts = [
        field[0] if len(field) == 1 and type(field[0]) is str else "".join(map(text_of_part, field)) for field in parts
    ]
    return Fields(texts, parts, Protected in map(type, inputs))


def text_of_part(part: Part) -> str:
    """Return the text of a part, "" for EOS."""
    if isinstance(part, Protected):
        return part.text
    return part if isinstance(part, str) else ""

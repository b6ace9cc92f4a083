"""An example becomes features: token ids cut to their lengths, and what the cutting cost."""

import re
from typing import NamedTuple

from t5prep import truncation
from t5prep.ends import EndsEncoder
from t5prep.errors import Reject
from t5prep.tokenizer import Tokenizer
from t5prep.types import EOS, Example, Part, Protected

_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>")
# Targets are often a few words again and again.
_REMEMBERED_TARGETS = 1 << 12


class Features(NamedTuple):
    """Ids of one example, and what a manifest counts of it.

    `inputs` and `labels` are int32[<= length] and end in EOS. `tokens` and `target_tokens` count before cutting; where
    `exact` is False the middle was never tokenized and `tokens` is an estimate.
    """

    inputs: list[int]
    labels: list[int]
    tokens: int
    target_tokens: int
    exact: bool
    markup: bool


class Encoder:
    """Turns examples into features with one tokenizer, two lengths and one way to truncate."""

    def __init__(
        self, tokenizer: Tokenizer, *, input_length: int, target_length: int, policy: str, marker: str
    ) -> None:
        self._tokenizer = tokenizer
        self._ends = EndsEncoder(tokenizer)
        self._input_length, self._target_length = input_length, target_length
        self._policy = policy
        # The second sentinel stands for what was cut (seed 000): the first would look like a span to fill in.
        self._marker = tokenizer.sentinel(1) if policy == "head_tail" and marker == "extra_id_1" else None
        self._targets: dict[str, list[int]] = {}

    def __call__(self, example: Example) -> Features:
        """Raises Reject when there is nothing to learn from, or protected text alone is too long."""
        parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
        inputs, tokens, exact = self._encode_inputs(parts)
        if tokens == sum(part is EOS for part in parts) + 1:
            raise Reject("empty input")
        whole = self._encode_target(example.targets)
        labels = truncation.truncate(whole, self._target_length, policy="head", marker=None)
        markup = any("<" in text and _MARKUP.search(text) for text in map(_text, parts))
        return Features(inputs, labels, tokens, len(whole), exact, markup)

    def _encode_target(self, text: str) -> list[int]:
        ids = self._targets.get(text)
        if ids is None:
            ids = [*self._tokenizer.encode(text), self._tokenizer.eos_id]
            if len(ids) == 1:
                raise Reject("empty target")
            if len(self._targets) < _REMEMBERED_TARGETS:
                self._targets[text] = ids
        return ids

    def _encode_inputs(self, parts: tuple[Part, ...]) -> tuple[list[int], int, bool]:
        """Ids cut to the input length, how many there were, and whether that is exact."""
        fields: list[list[Part]] = [[]]
        for part in parts:
            if part is EOS:
                fields.append([])
            else:
                fields[-1].append(part)
        texts = ["".join(map(_text, field)) for field in fields]
        if not any(isinstance(part, Protected) for part in parts):
            return self._cut_anywhere(texts)
        ids = [token for text in texts for token in (*self._tokenizer.encode(text), self._tokenizer.eos_id)]
        if len(ids) <= self._input_length:
            return ids, len(ids), True
        return self._cut_around(fields), len(ids), True

    def _cut_anywhere(self, texts: list[str]) -> tuple[list[int], int, bool]:
        """Fields joined by EOS, cut as one sequence. Of the longest field only the ends that survive are tokenized."""
        encode, eos = self._tokenizer.encode, self._tokenizer.eos_id
        longest = max(range(len(texts)), key=lambda field: len(texts[field]))
        before = [token for text in texts[:longest] for token in (*encode(text), eos)]
        after = [eos, *(token for text in texts[longest + 1 :] for token in (*encode(text), eos))]
        head, tail = truncation.ends(self._input_length, policy=self._policy, marked=self._marker is not None)
        ends = self._ends.encode(texts[longest], head=max(0, head - len(before)), tail=max(0, tail - len(after)))
        if not ends.skipped:
            ids = [*before, *ends.head, *after]
            cut = truncation.truncate(ids, self._input_length, policy=self._policy, marker=self._marker)
            return cut, len(ids), True
        middle = [] if self._marker is None else [self._marker]
        first, last = [*before, *ends.head], [*ends.tail, *after]
        kept = [*first[:head], *middle, *last[len(last) - tail :]]
        return kept, len(before) + ends.tokens + len(after), False

    def _cut_around(self, fields: list[list[Part]]) -> list[int]:
        """Fields whose protected texts stay whole: the others share what room is left, each cut by the policy."""
        encode, eos = self._tokenizer.encode, self._tokenizer.eos_id
        pieces: list[tuple[list[int], bool]] = []
        for field in fields:
            pieces += [(encode(_text(part)), isinstance(part, Protected)) for part in field]
            pieces.append(([eos], True))
        fixed = sum(len(ids) for ids, kept in pieces if kept)
        if fixed > self._input_length:
            raise Reject(f"protected text too long: {fixed} tokens with EOS, the limit is {self._input_length}")
        rooms = iter(truncation.allot([len(ids) for ids, kept in pieces if not kept], self._input_length - fixed))
        return [token for ids, kept in pieces for token in (ids if kept else self._cut_text(ids, next(rooms)))]

    def _cut_text(self, ids: list[int], room: int) -> list[int]:
        """A text without EOS, cut to `room`."""
        if len(ids) <= room:
            return ids
        if self._policy == "head":
            return ids[:room]
        if not room:
            return []
        return truncation.truncate(ids, room, policy=self._policy, marker=self._marker)


class DocumentEncoder:
    """Tokenizes plain texts whole, each with its EOS: what is done with their length is decided later."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, example: Example) -> Features:
        """Raises Reject for a text of nothing but spaces."""
        parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
        ids = [*self._tokenizer.encode("".join(map(_text, parts))), self._tokenizer.eos_id]
        if len(ids) == 1:
            raise Reject("empty text")
        return Features(ids, [], len(ids), 0, exact=True, markup=False)


def _text(part: Part) -> str:
    if isinstance(part, Protected):
        return part.text
    return part if isinstance(part, str) else ""

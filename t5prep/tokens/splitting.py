"""Split an example whose target follows the input word by word, so that each part has the same words on both sides."""

import dataclasses
import itertools
import re

import numpy as np

from t5prep.errors import Reject
from t5prep.tasks.example import Example, Part, Protected
from t5prep.tokens.tokenizer import Tokenizer

BETWEEN_WORDS = re.compile(r"\s+")
# Words are counted one by one, but tokenized together a part may have more tokens; this many are left free for them.
MARGIN = 2
_ENDS_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]]?$")


def split_text(text: str, between: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return the texts between the matches of `between`, each with the match after it ("" after the last).

    Empty matches are ignored.

    >>> split_text("Da.  Nu știu", BETWEEN_WORDS)
    [('Da.', '  '), ('Nu', ' '), ('știu', '')]
    """
    pieces, begin = [], 0
    for gap in between.finditer(text):
        if gap.end() > gap.start():
            pieces.append((text[begin : gap.start()], gap.group()))
            begin = gap.end()
    return [*pieces, (text[begin:], "")]


@dataclasses.dataclass(frozen=True)
class Splitter:
    """Split examples into parts that fit into the lengths of both sides, at the ends of sentences if possible."""

    tokenizer: Tokenizer
    input_length: int
    target_length: int
    keep_newlines: bool

    def __call__(self, example: Example) -> list[Example]:
        """Return the parts of an example in order; each repeats the protected texts of the input.

        Raises Reject if input and target differ in their number of words, if a single word does not fit, or if the input has not
        exactly one text that may be split.
        """
        parts: tuple[Part, ...] = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
        places = [index for index, part in enumerate(parts) if isinstance(part, str)]
        if len(places) != 1:
            raise Reject(f"too long to split: its input has {len(places)} texts that could be taken apart")
        (index,) = places
        fixed = sum(
            len(self.tokenizer.encode(part.text)) if isinstance(part, Protected) else not isinstance(part, str)
            for part in parts
        )
        texts = [str(parts[index]), example.targets, *example.references]
        sides = [split_text(text.strip(), BETWEEN_WORDS) for text in texts]
        if different := {len(side) for side in sides} - {len(sides[0])}:
            raise Reject(f"too long to split: its input has {len(sides[0])} words, and its target {max(different)}")
        rooms = (self.input_length - fixed - 1 - MARGIN, self.target_length - 1 - MARGIN)
        bounds = self._bounds(sides[0], sides[1], rooms)
        return [
            dataclasses.replace(
                example,
                inputs=(*parts[:index], _joined(sides[0][begin:end]), *parts[index + 1 :]),
                targets=_joined(sides[1][begin:end]),
                references=tuple(_joined(side[begin:end]) for side in sides[2:]),
            )
            for begin, end in itertools.pairwise(bounds)
        ]

    def _bounds(
        self, words: list[tuple[str, str]], targets: list[tuple[str, str]], rooms: tuple[int, int]
    ) -> list[int]:
        """Return the index of the first word of each part, and at last the number of words. Raises Reject.

        words, targets: the words of both sides, each with the spaces after it. rooms: the tokens that fit on each side.
        """
        totals = [np.cumsum([0, *self._tokens(side)]) for side in (words, targets)]
        ends = [
            number + 1
            for number, (word, gap) in enumerate(targets)
            if _ENDS_SENTENCE.search(word) or "\n" in gap or number + 1 == len(targets)
        ]
        bounds = [0]
        while (begin := bounds[-1]) < len(words):
            fits = min(
                int(np.searchsorted(total, total[begin] + room, side="right")) - 1
                for total, room in zip(totals, rooms, strict=True)
            )
            if fits <= begin:
                raise Reject(f'too long to split: "{targets[begin][0][:40]}" alone does not fit')
            sentence = int(np.searchsorted(ends, fits, side="right")) - 1
            bounds.append(ends[sentence] if sentence >= 0 and ends[sentence] > begin else fits)
        return bounds

    def _tokens(self, words: list[tuple[str, str]]) -> list[int]:
        """Return the number of tokens of each word; with `keep_newlines`, each newline after it is one more."""
        ids = self.tokenizer.encode_all([word for word, _ in words])
        return [
            len(word_ids) + self.keep_newlines * gap.count("\n") for word_ids, (_, gap) in zip(ids, words, strict=True)
        ]


def _joined(words: list[tuple[str, str]]) -> str:
    """Return the text of words with the spaces between them."""
    return "".join(word + gap for word, gap in words[:-1]) + words[-1][0]

"""Split long texts at the ends of sentences, so that each part is answered without a cut, and join the answers."""

import collections
import dataclasses
import re
from collections.abc import Sequence

from t5prep.errors import Reject
from t5prep.tasks.example import Example, Part, Protected
from t5prep.tokens.splitting import BETWEEN_WORDS, MARGIN, split_text
from t5prep.tokens.tokenizer import Tokenizer

# The gap between two sentences: spaces after a full stop (and a closing quote or bracket), or a newline.
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?…])\s+|(?<=[.!?…][\"'”’»)\]])\s+|\s*\n\s*")


@dataclasses.dataclass(frozen=True)
class Parts:
    """A long input as `examples` to answer, and the texts before, between and after them (`separators`)."""

    examples: tuple[Example, ...]
    separators: tuple[str, ...]

    def join(self, answers: Sequence[str]) -> str:
        """Return the answers of the parts as one text, with the original text between the parts."""
        between = zip(answers, self.separators[1:], strict=True)
        return self.separators[0] + "".join(answer + separator for answer, separator in between)


def split(example: Example, *, tokenizer: Tokenizer, room: int, limit: int) -> Parts:
    """Return an input in parts of at most `room` tokens; only a single longer sentence may have up to `limit` tokens.

    The input must have exactly one text that truncation may cut. This text is divided, and every part repeats the protected
    texts. Raises Reject otherwise, or if the protected texts leave no room.
    """
    parts: tuple[Part, ...] = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    texts = [index for index, part in enumerate(parts) if isinstance(part, str)]
    if len(texts) != 1:
        raise Reject(f"too long to split: its input has {len(texts)} texts that could be taken apart")
    (index,) = texts
    fixed = sum(
        len(tokenizer.encode(part.text)) if isinstance(part, Protected) else not isinstance(part, str) for part in parts
    )
    fixed += 1 + MARGIN  # EOS, and tokens that appear when pieces are tokenized together
    if limit - fixed < 1:
        raise Reject(f"protected text too long: {fixed} tokens with EOS, the limit is {limit}")
    pieces = _divided(str(parts[index]), tokenizer=tokenizer, room=max(1, room - fixed), limit=limit - fixed)
    separators, examples, separator = [], [], ""
    for text, gap in pieces:
        if not text.strip():
            separator += text + gap
            continue
        separators.append(separator)
        examples.append(dataclasses.replace(example, inputs=(*parts[:index], text, *parts[index + 1 :])))
        separator = gap
    return Parts(tuple(examples), (*separators, separator))


def _divided(text: str, *, tokenizer: Tokenizer, room: int, limit: int) -> list[tuple[str, str]]:
    """Return groups of sentences of at most `room` tokens, each with the spaces after it. Joined, they equal `text`.

    A sentence of more than `room` tokens is a group by itself; one of more than `limit` tokens is divided between words.
    """
    sentences = split_text(text, _BETWEEN_SENTENCES)
    small: list[tuple[str, str, int]] = []
    for (sentence, gap), tokens in zip(sentences, _counts(sentences, tokenizer), strict=True):
        if tokens <= limit:
            small.append((sentence, gap, tokens + gap.count("\n")))  # with `keep_newlines` each newline is a token
            continue
        words = _words(sentence, tokenizer=tokenizer, limit=limit)
        small += [*words[:-1], (words[-1][0], words[-1][1] + gap, words[-1][2])]
    groups: list[tuple[str, str]] = []
    group_tokens = 0
    for piece, gap, tokens in small:
        if groups and group_tokens + tokens <= room:
            text_so_far, between = groups[-1]
            groups[-1] = (text_so_far + between + piece, gap)
            group_tokens += tokens
        else:
            groups.append((piece, gap))
            group_tokens = tokens
    return groups


def _words(sentence: str, *, tokenizer: Tokenizer, limit: int) -> list[tuple[str, str, int]]:
    """Return the words of a sentence, each with the spaces after it and its tokens.

    A word of more than `limit` tokens is halved repeatedly.
    """
    words = split_text(sentence, BETWEEN_WORDS)
    queue = collections.deque(zip(words, _counts(words, tokenizer), strict=True))
    divided: list[tuple[str, str, int]] = []
    while queue:
        (word, gap), tokens = queue.popleft()
        if tokens <= limit or len(word) < 2:
            divided.append((word, gap, tokens))
            continue
        middle = len(word) // 2
        halves = [(word[:middle], ""), (word[middle:], gap)]
        queue.extendleft(reversed(list(zip(halves, _counts(halves, tokenizer), strict=True))))
    return divided


def _counts(pieces: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> list[int]:
    return [len(ids) for ids in tokenizer.encode_all([piece for piece, _ in pieces])]

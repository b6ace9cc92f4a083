"""Keep newlines as tokens: T5's normalization turns each into a space, so lines of code, verse or a dialogue are lost.

Where newlines are kept, `<extra_id_2>` stands for one, because nothing else uses it in a task with targets of its own:
head_tail marks a cut with `<extra_id_1>`, and span corruption uses `<extra_id_0>` and the following ones (tasks of
documents keep no newlines). Every line is tokenized by itself, so spaces at the ends of a line are still lost.
"""

from collections.abc import Sequence
from typing import Final

from t5prep.tokens.tokenizer import Tokenizer

NUMBER: Final = 2
SENTINEL: Final = "<extra_id_2>"
# What ends a line, as a pattern of RE2.
PATTERN: Final = r"\r\n?|\n"


def decode(ids: Sequence[int], *, tokenizer: Tokenizer, keep_newlines: bool) -> str:
    """Return the text of ids as `Tokenizer.decode` does, with its newlines where they were kept."""
    if not keep_newlines:
        return tokenizer.decode(ids)
    lines: list[list[int]] = [[]]
    for token in ids:
        if token == tokenizer.sentinel(NUMBER):
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(map(tokenizer.decode, lines))

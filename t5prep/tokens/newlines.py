"""Keep newlines as tokens. T5's normalization turns a newline into a space, which loses the lines of code, verse or dialogue.

The sentinel `<extra_id_2>` stands for a newline, because no task with targets uses it otherwise: `head_tail` marks a cut with
`<extra_id_1>`, and span corruption, which uses all sentinels, keeps no newlines. Each line is tokenized separately, so spaces at
the ends of a line are still lost.
"""

from collections.abc import Sequence
from typing import Final

from t5prep.tokens.tokenizer import Tokenizer

SENTINEL_NUMBER: Final = 2
SENTINEL: Final = "<extra_id_2>"
# A regular expression of RE2 that matches a line end.
PATTERN: Final = r"\r\n?|\n"


def decode(ids: Sequence[int], *, tokenizer: Tokenizer, keep_newlines: bool) -> str:
    """Return the text of `ids` as `Tokenizer.decode` does; with `keep_newlines`, tokens for newlines become newlines."""
    if not keep_newlines:
        return tokenizer.decode(ids)
    lines: list[list[int]] = [[]]
    for token in ids:
        if token == tokenizer.sentinel(SENTINEL_NUMBER):
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(map(tokenizer.decode, lines))


def decode_input(ids: Sequence[int], *, tokenizer: Tokenizer, keep_newlines: bool) -> str:
    """Return the readable text of an input, without padding, special tokens around it, and traces of tokenizing."""
    tokens = tokenizer.frame.strip([token for token in ids if token != tokenizer.pad_id])
    return tokenizer.to_read(decode(tokens, tokenizer=tokenizer, keep_newlines=keep_newlines))

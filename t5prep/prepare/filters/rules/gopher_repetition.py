"""Gopher's rules against repetition inside a document.

Rae et al. 2021, appendix A.1.1 and table A1 (https://arxiv.org/abs/2112.11446). Shares are of the document's characters.
"""

import collections
import dataclasses
import re
from collections.abc import Sequence

from t5prep.errors import Reject
from t5prep.tasks.options import option

# Table A1: the share that the most frequent n-gram may have, and that all repeated n-grams may have.
TOP = {2: 0.20, 3: 0.18, 4: 0.16}
REPEATED = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
_PARAGRAPHS = re.compile(r"\n\s*\n")


@dataclasses.dataclass(frozen=True)
class Filter:
    """Reject documents that say the same again and again: lines, paragraphs, or runs of words."""

    lines: float = option(0.3, "largest share of lines, or of paragraphs, that stood there before")
    characters: float = option(0.2, "the same, as a share of characters")
    factor: float = option(1.0, "by how much the shares of n-grams of table A1 may be larger")

    def __call__(self, text: str) -> str:
        """Return the text. Raises Reject."""
        if not text.strip():
            return text
        paragraphs = [part.strip() for part in _PARAGRAPHS.split(text.strip())]
        self._parts("paragraphs", paragraphs, len(text))
        self._parts("lines", [line.strip() for line in text.splitlines() if line.strip()], len(text))
        words = text.split()
        for n, most in TOP.items():
            share = _top(words, n) / len(text)
            if share > most * self.factor:
                raise Reject(f"top {n}-gram: {share:.0%} of the characters, at most {most * self.factor:.0%}")
        for n, most in REPEATED.items():
            grams = _grams(words, n)
            if len(set(grams)) == len(grams):
                break  # what repeats no n words repeats no longer run either
            share = _repeated(words, grams, n) / len(text)
            if share > most * self.factor:
                raise Reject(f"repeated {n}-grams: {share:.0%} of the characters, at most {most * self.factor:.0%}")
        return text

    def _parts(self, name: str, parts: list[str], characters: int) -> None:
        known = collections.Counter(parts)
        again = len(parts) - len(known)
        size = sum(len(part) * (count - 1) for part, count in known.items())
        if again > self.lines * len(parts):
            raise Reject(f"repeated {name}: {again} of {len(parts)}, at most {self.lines:.0%}")
        if size > self.characters * characters:
            raise Reject(f"repeated {name}: {size / characters:.0%} of the characters, at most {self.characters:.0%}")


def _grams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[i:] for i in range(n)), strict=False))


def _top(words: Sequence[str], n: int) -> int:
    """Return the characters of the most frequent n-gram, of all its occurrences; 0 where none stands twice."""
    counts = collections.Counter(_grams(words, n))
    most = max(counts.values(), default=0)
    return (
        max((sum(map(len, gram)) + n - 1) * most for gram, count in counts.items() if count == most) if most > 1 else 0
    )


def _repeated(words: Sequence[str], grams: list[tuple[str, ...]], n: int) -> int:
    """Return the characters of n-grams that stood there before; overlapping ones count once."""
    known: set[tuple[str, ...]] = set()
    characters = at = 0
    while at < len(grams):
        if grams[at] in known:
            characters += sum(map(len, grams[at])) + n - 1
            at += n
        else:
            known.add(grams[at])
            at += 1
    return characters

"""Gopher's rules for the quality of a document.

Rae et al. 2021, Scaling Language Models: Methods, Analysis & Insights from Training Gopher, appendix A.1.1
(https://arxiv.org/abs/2112.11446). Words are what stands between spaces, without the marks at their ends.
"""

import dataclasses
import string

from t5prep.errors import Reject
from t5prep.tasks.options import option

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_BULLETS = ("•", "●", "‣", "◦", "- ", "* ")
_ELLIPSES = ("...", "…")
_MARKS = string.punctuation + "…“”‘’«»–—•●‣◦"


@dataclasses.dataclass(frozen=True)
class Filter:
    """Reject documents that do not read as prose."""

    least_words: int = option(50, "fewest words")
    most_words: int = option(100_000, "most words")
    least_length: float = option(3.0, "smallest mean length of words, in characters")
    most_length: float = option(10.0, "largest mean length of words")
    symbols: float = option(0.1, "most # or ellipses a word")
    bullets: float = option(0.9, "largest share of lines that begin with a bullet")
    ellipses: float = option(0.3, "largest share of lines that end with an ellipsis")
    letters: float = option(0.8, "smallest share of words with a letter")
    stop_words: int = option(
        2, "fewest English stop words (the, be, to, of, and, that, have, with); 0 for other languages"
    )

    def __call__(self, text: str) -> str:
        """Return the text. Raises Reject."""
        words = [word for word in (part.strip(_MARKS) for part in text.split()) if word]
        count = len(words)
        if count < self.least_words:
            raise Reject(f"few words: {count}, at least {self.least_words}")
        if count > self.most_words:
            raise Reject(f"many words: {count}, at most {self.most_words}")
        mean = sum(map(len, words)) / max(1, count)
        if not self.least_length <= mean <= self.most_length:
            raise Reject(f"word length: {mean:.1f} on average, {self.least_length:g} to {self.most_length:g}")
        for name, symbols in (("#", text.count("#")), ("...", sum(map(text.count, _ELLIPSES)))):
            if symbols / max(1, count) > self.symbols:
                raise Reject(f"symbols: {symbols} {name} in {count} words, at most {self.symbols:g} a word")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self._share(
            lines, sum(line.startswith(_BULLETS) for line in lines), self.bullets, "bullets: {} of lines begin with one"
        )
        self._share(
            lines, sum(line.endswith(_ELLIPSES) for line in lines), self.ellipses, "ellipses: {} of lines end with one"
        )
        lettered = sum(any(map(str.isalpha, word)) for word in words) / max(1, count)
        if lettered < self.letters:
            raise Reject(f"letters: {lettered:.0%} of words have one, at least {self.letters:.0%}")
        stops = sum(word.lower() in STOP_WORDS for word in words)
        if stops < self.stop_words:
            raise Reject(f"stop words: {stops}, at least {self.stop_words}")
        return text

    @staticmethod
    def _share(lines: list[str], count: int, most: float, reason: str) -> None:
        if count > most * max(1, len(lines)):
            raise Reject(f"{reason.format(f'{count / len(lines):.0%}')}, at most {most:.0%}")

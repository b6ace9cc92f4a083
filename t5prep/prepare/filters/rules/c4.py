"""C4's rules for web pages.

Raffel et al. 2020, Exploring the Limits of Transfer Learning, section 2.2 (https://jmlr.org/papers/v21/20-074.html).
Numbers and the lines about cookies are those of its released code (tensorflow_datasets, c4_utils.py). Two things differ:
sentences are counted by their end marks instead of NLTK's model, and repeated lines are not looked for in other pages.
"""

import dataclasses
import functools
import re

from t5prep.errors import Reject, UsageError
from t5prep.prepare.filters import user_files
from t5prep.tasks.options import option

_ENDS = (".", "?", "!", '"')
_POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
_SENTENCE = re.compile(r"[.?!][\"')\]]*(?=\s|$)")


@dataclasses.dataclass(frozen=True)
class Filter:
    """Keep the lines of a page that are sentences, and reject pages with too few of them."""

    sentences: int = option(3, "fewest sentences of a page")
    line_words: int = option(5, "fewest words of a line; shorter lines are taken out")
    word_length: int = option(1000, "most characters of a word; lines with a longer one are taken out")
    bad_words: str = option("", "a file with a word or phrase in each line; pages with one of them are rejected")

    def __post_init__(self) -> None:
        """Read the list of words. Raises UsageError where it cannot be read."""
        _ = self._bad

    @functools.cached_property
    def _bad(self) -> re.Pattern[str] | None:
        """Return an expression that finds each bad word; None where there are none."""
        return _bad_words(self.bad_words) if self.bad_words else None

    @property
    def files(self) -> tuple[str, ...]:
        """Return the file of the user's that is read."""
        return (self.bad_words,) if self.bad_words else ()

    def __call__(self, text: str) -> str:
        """Return the lines that stay. Raises Reject."""
        kept = list(filter(None, map(self._line, map(str.strip, text.splitlines()))))
        count = sum(len(_SENTENCE.findall(line)) or 1 for line in kept)
        if count < self.sentences:
            raise Reject(f"few sentences: {count} in lines that end as sentences do, at least {self.sentences}")
        return "\n".join(kept)

    def _line(self, line: str) -> str:
        """Return a line without marks of citations, or "" where it is taken out."""
        words = line.split()
        if any(len(word) > self.word_length for word in words):
            return ""
        line = _CITATION.sub("", line)
        if not line.endswith(_ENDS) or line.endswith("...") or len(line.split()) < self.line_words:
            return ""
        lower = line.lower()
        if "lorem ipsum" in lower:
            raise Reject("lorem ipsum: the page is a draft")
        if "javascript" in lower:
            return ""
        if "{" in line:
            raise Reject("curly bracket: the page holds code")
        if any(phrase in lower for phrase in _POLICY):
            return ""
        if self._bad and (found := self._bad.search(lower)):
            raise Reject(f"bad word: {found[0]}")
        return line


def _bad_words(path: str) -> re.Pattern[str] | None:
    """Return an expression that finds each word of a file, standing alone; None for a file without words. Raises UsageError."""
    try:
        lines = user_files.read(path).decode().splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--filter c4: bad_words={path} cannot be read ({error})") from None
    phrases = sorted({line.strip().lower() for line in lines} - {""})
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, phrases))})(?!\w)") if phrases else None

"""Define the filters of `--filter`. An object of each class is called with a text, and returns a text or raises Reject.

The functions at the top read the users' files: from this machine, or as they were sent to a worker on another machine.
"""

import collections
import contextlib
import contextvars
import dataclasses
import errno
import functools
import ipaddress
import os
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from t5prep.errors import Reject, UsageError, did_you_mean
from t5prep.io import paths
from t5prep.io.installation import install_command
from t5prep.options.fields import option

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# The user's path of a file → its content, on a worker of another machine.
_INSTALLED_FILES: dict[str, bytes] = {}
# The same for the copies in a run, which replace the machine's files inside of `reading`; None outside.
_RUN_FILES: contextvars.ContextVar[Mapping[str, bytes] | None] = contextvars.ContextVar("filter_files", default=None)


def read(path: str) -> bytes:
    """Return the content of the file at `path`: of this machine, or if it has none, of the files of `install`. Raises OSError."""
    if (run_files := _RUN_FILES.get()) is not None:
        if path not in run_files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return run_files[path]
    try:
        return paths.read(path)
    except FileNotFoundError:
        if path in _INSTALLED_FILES:
            return _INSTALLED_FILES[path]
        raise


def install(files: Mapping[str, bytes]) -> None:
    """Set the contents, by path, of files that `read` returns if this machine has no such file."""
    _INSTALLED_FILES.clear()
    _INSTALLED_FILES.update(files)


@contextlib.contextmanager
def reading(files: Mapping[str, bytes]) -> Iterator[None]:
    """Let `read` return the contents in `files`, by path, instead of this machine's files, during a `with`."""
    token = _RUN_FILES.set(files)
    try:
        yield
    finally:
        _RUN_FILES.reset(token)


EMAIL, IP = "email@example.com", "192.0.2.1"
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
_IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")


@dataclasses.dataclass(frozen=True)
class Addresses:
    """E-mail addresses and public IP numbers: the row is rejected, or they are masked in inputs and targets.

    A mask is what the standards reserve for examples (RFC 2606 and RFC 5737), which nobody owns. IP numbers of private
    networks stay: they name nobody.
    """

    masks = True

    do: str = option("mask", "what happens to them", choices=("mask", "drop"))

    @property
    def changes_texts(self) -> bool:
        """Check whether the filter can change a text."""
        return self.do == "mask"

    def __call__(self, text: str) -> str:
        """Return the text with each address masked. Raises Reject if addresses are to be dropped."""
        masked = _EMAIL.sub(EMAIL, text) if "@" in text else text
        masked = _IP.sub(_mask, masked)
        if masked != text and self.do == "drop":
            raise Reject("found: an e-mail address or IP number")
        return masked


def _mask(match: re.Match[str]) -> str:
    try:
        return IP if ipaddress.IPv4Address(match[0]).is_global else match[0]
    except ValueError:  # 300.1.1.1 and 01.2.3.4 are not addresses
        return match[0]


_ENDS = (".", "?", "!", '"')
_POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
_SENTENCE = re.compile(r"[.?!][\"')\]]*(?=\s|$)")


@dataclasses.dataclass(frozen=True)
class C4:
    """C4's rules for web pages.

    Raffel et al. 2020, Exploring the Limits of Transfer Learning, section 2.2
    (https://jmlr.org/papers/v21/20-074.html). Numbers and the lines about cookies are those of its released code
    (tensorflow_datasets, c4_utils.py). Two things differ: sentences are counted by their end marks instead of NLTK's
    model, and repeated lines are not looked for in other pages.
    """

    changes_texts = True

    sentences: int = option(3, "fewest sentences of a page")
    line_words: int = option(5, "fewest words of a line; shorter lines are taken out")
    word_length: int = option(1000, "most characters of a word; lines with a longer one are taken out")
    bad_words: str = option("", "a file with a word or phrase in each line; pages with one of them are rejected")

    def __post_init__(self) -> None:
        """Read the list of words. Raises UsageError if it cannot be read."""
        _ = self._bad

    @functools.cached_property
    def _bad(self) -> re.Pattern[str] | None:
        """Return the compiled expression that finds each bad word; None if there are none."""
        return _bad_words(self.bad_words) if self.bad_words else None

    @property
    def files(self) -> tuple[str, ...]:
        """Return the paths of the user's files that the filter reads."""
        return (self.bad_words,) if self.bad_words else ()

    def __call__(self, text: str) -> str:
        """Return the lines of a page that pass the rules. Raises Reject."""
        lines = list(filter(None, map(self._line, map(str.strip, text.splitlines()))))
        count = sum(len(_SENTENCE.findall(line)) or 1 for line in lines)
        if count < self.sentences:
            raise Reject(f"few sentences: {count} in lines that end as sentences do, at least {self.sentences}")
        return "\n".join(lines)

    def _line(self, line: str) -> str:
        """Return a line without marks of citations; "" if it is removed. Raises Reject if the line rejects the page."""
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
        if self._bad and (match := self._bad.search(lower)):
            raise Reject(f"bad word: {match[0]}")
        return line


def _bad_words(path: str) -> re.Pattern[str] | None:
    """Return the expression that finds each phrase of the file at `path` as whole words; None if the file is empty.

    Raises UsageError if it cannot be read.
    """
    try:
        lines = read(path).decode().splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--filter c4: bad_words={path} cannot be read ({error})", code="filter.unreadable") from None
    phrases = sorted({line.strip().lower() for line in lines} - {""})
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, phrases))})(?!\w)") if phrases else None


STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_BULLETS = ("•", "●", "‣", "◦", "- ", "* ")
_ELLIPSES = ("...", "…")
_MARKS = string.punctuation + "…“”‘’«»–—•●‣◦"


@dataclasses.dataclass(frozen=True)
class Gopher:
    """Gopher's rules for the quality of a document.

    Rae et al. 2021, Scaling Language Models: Methods, Analysis & Insights from Training Gopher, appendix A.1.1
    (https://arxiv.org/abs/2112.11446). Words are what stands between spaces, without the marks at their ends.
    """

    least_words: int = option(50, "fewest words")
    most_words: int = option(100_000, "most words")
    least_length: float = option(3.0, "smallest mean length of words, in characters")
    most_length: float = option(10.0, "largest mean length of words")
    symbols: float = option(0.1, "most # or ellipses a word")
    bullets: float = option(0.9, "largest share of lines that begin with a bullet")
    ellipses: float = option(0.3, "largest share of lines that end with an ellipsis")
    letters: float = option(0.8, "smallest share of words with a letter")
    stop_words: int = option(
        2, "fewest different English stop words (the, be, to, of, and, that, have, with); 0 for other languages"
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
        stops = len(STOP_WORDS.intersection(word.lower() for word in words))
        if stops < self.stop_words:
            raise Reject(f"stop words: {stops} different ones, at least {self.stop_words}")
        return text

    @staticmethod
    def _share(lines: list[str], count: int, max_share: float, reason: str) -> None:
        if count > max_share * max(1, len(lines)):
            raise Reject(f"{reason.format(f'{count / len(lines):.0%}')}, at most {max_share:.0%}")


# n → the largest share of characters in the most frequent n-gram, and in all repeated n-grams (Rae et al. 2021, table A1).
TOP = {2: 0.20, 3: 0.18, 4: 0.16}
REPEATED = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
_PARAGRAPHS = re.compile(r"\n\s*\n")


@dataclasses.dataclass(frozen=True)
class GopherRepetition:
    """Gopher's rules against repetition inside a document.

    Rae et al. 2021, appendix A.1.1 and table A1 (https://arxiv.org/abs/2112.11446). Shares are of the document's
    characters.
    """

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
        for n, max_share in TOP.items():
            share = _top(words, n) / len(text)
            if share > max_share * self.factor:
                raise Reject(f"top {n}-gram: {share:.0%} of the characters, at most {max_share * self.factor:.0%}")
        for n, max_share in REPEATED.items():
            grams = _grams(words, n)
            if len(set(grams)) == len(grams):
                break  # without a repeated n-gram there is no longer one either
            share = _repeated(grams, n) / len(text)
            if share > max_share * self.factor:
                raise Reject(
                    f"repeated {n}-grams: {share:.0%} of the characters, at most {max_share * self.factor:.0%}"
                )
        return text

    def _parts(self, name: str, parts: list[str], characters: int) -> None:
        counts = collections.Counter(parts)
        repeat_count = len(parts) - len(counts)
        size = sum(len(part) * (count - 1) for part, count in counts.items())
        if repeat_count > self.lines * len(parts):
            raise Reject(f"repeated {name}: {repeat_count} of {len(parts)}, at most {self.lines:.0%}")
        if size > self.characters * characters:
            raise Reject(f"repeated {name}: {size / characters:.0%} of the characters, at most {self.characters:.0%}")


def _grams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[i:] for i in range(n)), strict=False))


def _top(words: Sequence[str], n: int) -> int:
    """Return the number of characters in all occurrences of the most frequent n-gram; 0 if none occurs twice."""
    counts = collections.Counter(_grams(words, n))
    max_count = max(counts.values(), default=0)
    return (
        max((sum(map(len, gram)) + n - 1) * max_count for gram, count in counts.items() if count == max_count)
        if max_count > 1
        else 0
    )


def _repeated(grams: list[tuple[str, ...]], n: int) -> int:
    """Return the number of characters in n-grams that occurred before; overlapping ones count once."""
    seen_grams: set[tuple[str, ...]] = set()
    characters = index = 0
    while index < len(grams):
        if grams[index] in seen_grams:
            characters += sum(map(len, grams[index])) + n - 1
            index += n
        else:
            seen_grams.add(grams[index])
            index += 1
    return characters


# Characters at the beginning of a text that decide its language. A whole text would take many times as long as tokenizing it.
CHARACTERS = 1000


@dataclasses.dataclass(frozen=True)
class Language:
    """Language, found by py3langid: 139 languages, its model inside the package (BSD licence, 4.6 MB).

    It comes with the extra `language`. Lui and Baldwin 2012, https://aclanthology.org/P12-3005
    """

    keep: str = option("en", "codes of the languages that stay, as en or en+ro (ISO 639-1)")
    least: float = option(0.5, "how sure it must be, from 0 to 1")

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown language, or if the library is not installed."""
        languages = _identifier().labels
        for code in self.keep.split("+"):
            if code not in languages:
                raise UsageError(
                    f'--filter language does not know the language "{code}".{did_you_mean(code, languages)} Use a '
                    "two-letter code, such as en.",
                    code="filter.invalid-value",
                )

    def __call__(self, text: str) -> str:
        """Return the text. Raises Reject."""
        language, sure = _identifier().classify(text[:CHARACTERS])
        if language not in self.keep.split("+"):
            raise Reject(f"other: {language}, {sure:.2f}")
        # Rounded, because sums on another processor may differ in the last digits, and the decision must not.
        if round(sure, 2) < self.least:
            raise Reject(f"unsure: {language}, {sure:.2f}")
        return text


@functools.cache
def _identifier() -> "LanguageIdentifier":
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise UsageError(
            f"--filter language needs py3langid, which is not installed. Install it: {install_command('language')}",
            code="install.extra-missing",
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A regular expression of Python's that a text must have, or must not have."""

    drop: str = option("", "reject a text in which this is found")
    keep: str = option("", "reject a text in which this is not found")

    def __post_init__(self) -> None:
        """Raise UsageError for an invalid regular expression, or if none is given."""
        if not self.drop and not self.keep:
            raise UsageError(
                "--filter pattern needs a regular expression. Example: --filter 'pattern:drop=(?i)lorem ipsum'",
                code="filter.missing-setting",
            )
        for expression in (self.drop, self.keep):
            try:
                _compiled(expression)
            except re.error as error:
                raise UsageError(
                    f'--filter pattern: "{expression}" is not a regular expression ({error})',
                    code="filter.invalid-expression",
                ) from None

    def __call__(self, text: str) -> str:
        """Return the text. Raises Reject."""
        if self.drop and (match := _compiled(self.drop).search(text)):
            raise Reject(f"found: {match[0][:60]!r}")
        if self.keep and not _compiled(self.keep).search(text):
            raise Reject(f"not found: {self.keep}")
        return text


@functools.lru_cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Length in tokens of the dataset's own tokenizer, before anything is cut (EOS counts)."""

    least: int = option(1, "fewest tokens")
    most: int = option(1_000_000_000, "most tokens")

    def __call__(self, text: str) -> str:
        """Return the text unchanged. `judge_tokens` decides when the number of tokens is known."""
        return text

    def judge_tokens(self, count: int) -> None:
        """Raise Reject if an input of `count` tokens is too short or too long."""
        if count < self.least:
            raise Reject(f"too few: {count} tokens, at least {self.least}")
        if count > self.most:
            raise Reject(f"too many: {count} tokens, at most {self.most}")


@dataclasses.dataclass(frozen=True)
class Words:
    """Length in words.

    Words are what stands between spaces.
    """

    least: int = option(1, "fewest words")
    most: int = option(100_000, "most words")

    def __call__(self, text: str) -> str:
        """Return the text. Raises Reject."""
        count = len(text.split())
        if count < self.least:
            raise Reject(f"too few: {count} words, at least {self.least}")
        if count > self.most:
            raise Reject(f"too many: {count} words, at most {self.most}")
        return text


# Name in `--filter` → the filter's class.
FILTERS: dict[str, type] = {
    "addresses": Addresses,
    "c4": C4,
    "gopher": Gopher,
    "gopher_repetition": GopherRepetition,
    "language": Language,
    "pattern": Pattern,
    "tokens": Tokens,
    "words": Words,
}

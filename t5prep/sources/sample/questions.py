"""Write one question of a given quality, with the fields of the Kaggle set of Stack Overflow questions.

Length, layout, markup, tags and code are drawn first, and do not depend on the class: only the sentences show it.
"""

import functools
import html
import re

from t5prep.sources.sample.chooser import Chooser
from t5prep.sources.sample.moves import ASIDES, CARELESS, CLASSES, MOVES, SLIPS, TITLES, Move
from t5prep.sources.sample.snippets import ERRORS, LONG, SHORT
from t5prep.sources.sample.words import WORDS

_SLOT = re.compile(r"\$(\$|[A-Za-z][a-z]*\d?)")
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_ARTICLE = re.compile(r"\b([Aa])(?= [aeiou])")
_KINDS = sorted([*WORDS, "lib", "module", "version", "number", "digit", "hex", "date"], key=len, reverse=True)
_SLIP = re.compile(r"\b(" + "|".join(sorted(SLIPS, key=len, reverse=True)) + r")\b")


class Question:
    """Write one question. A slot with a digit keeps its word from the title to the last line of code."""

    def __init__(self, chooser: Chooser, *, quality: str) -> None:
        self._choose = chooser
        self._class = CLASSES.index(quality)
        self._kept: dict[str, str] = {}

    def title(self) -> str:
        """Return the title: plain text, as the real titles are."""
        return self._sentence(self._choose.pick(self._move(TITLES).templates))

    def body(self) -> str:
        """Return the body as HTML: paragraphs of sentences, with code, lists, links and emphasis in between."""
        choose = self._choose
        sentences = self._sentences(choose.between(5, 8))
        paragraphs = [choose.pick(("", "", "", "<strong>", "<em>")) for _ in range(choose.between(1, 4))]
        blocks = [self._code() for _ in range(choose.weighted((0, 1, 2), (35, 55, 10)))]
        if choose.chance(0.035):
            blocks.append(self._long_code())
        if choose.chance(0.12):
            blocks.append(self._list())
        parts = []
        for at, tag in enumerate(paragraphs):
            told = sentences[at * len(sentences) // len(paragraphs) : (at + 1) * len(sentences) // len(paragraphs)]
            aside = [self._fill(choose.pick(ASIDES))] if choose.chance(0.35) else []
            parts.append(f"<p>{_emphasised(' '.join(told + aside), tag)}</p>")
        if choose.chance(0.15):
            link = self._fill("https://$module.example/$noun/$number")
            parts.append(f'<p><a href="{link}" rel="nofollow">{self._fill("$noun $adjective")}</a></p>')
        for block in blocks:
            parts.insert(choose.between(1, len(parts)), block)
        return "\n\n".join(parts) + "\n"

    def tags(self) -> str:
        """Return one to four tags, `<python><arrays>`."""
        return "".join(f"<{tag}>" for tag in self._choose.shuffled(WORDS["tag"])[: self._choose.between(1, 4)])

    def _move(self, moves: tuple[Move, ...]) -> Move:
        return self._choose.weighted(moves, [move.weights[self._class] for move in moves])

    def _sentences(self, n: int) -> list[str]:
        """Return n sentences, each from another template, in the order of MOVES."""
        told: dict[str, str] = {}
        while len(told) < n:
            template = self._choose.pick(self._move(MOVES).templates)
            if template not in told:
                told[template] = html.escape(self._sentence(template), quote=False)
        return [told[template] for move in MOVES for template in move.templates if template in told]

    def _sentence(self, text: str) -> str:
        while choice := _CHOICE.search(text):
            text = text[: choice.start()] + self._choose.pick(choice[1].split("|")) + text[choice.end() :]
        text = _ARTICLE.sub(r"\1n", self._fill(text))
        return self._careless(text) if self._choose.chance(CARELESS[self._class]) else text

    def _careless(self, text: str) -> str:
        if self._choose.chance(0.6):
            text = text[0].lower() + text[1:].replace(" I ", " i ")
        if self._choose.chance(0.4):
            text = text.rstrip(".?").replace(",", " ,")
        return _SLIP.sub(lambda word: SLIPS[word[1]] if self._choose.chance(0.5) else word[1], text)

    def _code(self) -> str:
        lines = self._choose.pick(SHORT) if self._choose.chance(0.65) else self._choose.pick(ERRORS) + "\n"
        text = html.escape(self._fill(lines), quote=False)
        return f"<blockquote>\n  <p>{text}</p>\n</blockquote>" if self._choose.chance(0.12) else _pre(text)

    def _long_code(self) -> str:
        line = self._choose.pick(LONG)
        lines = [self._fill(line) for _ in range(self._choose.between(28, 75))]
        return _pre(html.escape("\n".join(lines) + "\n", quote=False))

    def _list(self) -> str:
        items = [self._fill("  <li>$verb the $adjective $noun</li>") for _ in range(self._choose.between(2, 4))]
        return "<ul>\n" + "\n".join(items) + "\n</ul>"

    def _fill(self, text: str) -> str:
        return _SLOT.sub(lambda slot: self._slot(slot[1]), text)

    def _slot(self, name: str) -> str:
        if name == "$":
            return "$"
        kind, digit, rest, capital = _parts(name)
        if digit:
            if kind + digit not in self._kept:
                self._kept[kind + digit] = self._word(kind)
            value = self._kept[kind + digit]
        else:
            value = self._word(kind)
        return (value[0].upper() + value[1:] if capital else value) + rest

    def _word(self, kind: str) -> str:
        choose = self._choose
        match kind:
            case "lib":
                return self._word("module").capitalize()
            case "module":
                return choose.pick(WORDS["first"]) + choose.pick(WORDS["last"])
            case "version":
                return f"{choose.between(0, 12)}.{choose.between(0, 30)}.{choose.between(0, 9)}"
            case "number":
                return str(choose.below(10 ** choose.between(1, 5)))
            case "digit":
                return str(choose.between(1, 9))
            case "hex":
                return f"{choose.below(16**8):08x}"
            case "date":
                return timestamp(choose)
            case _:
                return choose.pick(WORDS[kind])


@functools.cache
def _parts(name: str) -> tuple[str, str, str, bool]:
    """Return a slot's kind of word, its digit or "", what is put behind the word, and whether it begins with a capital.

    >>> _parts("Nouns2")
    ('noun', '2', 's', True)
    """
    digit = name[-1] if name[-1].isdigit() else ""
    word = name.removesuffix(digit)
    kind = next(kind for kind in _KINDS if word.lower().startswith(kind))
    return kind, digit, word[len(kind) :], word[0].isupper()


def timestamp(choose: Chooser) -> str:
    """Return a time in the years 2016 to 2020, to the second, in the Kaggle set's format."""
    day = f"{choose.between(2016, 2020)}-{choose.between(1, 12):02d}-{choose.between(1, 28):02d}"
    return f"{day} {choose.below(24):02d}:{choose.below(60):02d}:{choose.below(60):02d}"


def _pre(code: str) -> str:
    return f"<pre><code>{code}</code></pre>"


def _emphasised(text: str, tag: str) -> str:
    """Return the text with its first words inside `tag`, and text in backquotes as inline code."""
    if tag:
        head, space, tail = text.partition(" ")
        text = f"{tag}{head}{tag.replace('<', '</')}{space}{tail}"
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text)

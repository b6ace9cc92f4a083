"""Texts on which a tokenizer may go wrong: any characters, marks, ties, controls, long words, blanks of every kind."""

import random
import unicodedata
from collections.abc import Iterator

BLANKS = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2002\u2009\u200b\u2028\u202f\u3000\ufeff"
MARKS = [chr(code) for code in range(0x300, 0x370)] + ["\u0f71", "\u0f72", "\u3099", "\u309a", "\u0338", "\u20d0"]
ODD = [
    "----",
    "--",
    "-",
    "---- --",
    "====",
    "##",
    "...",
    "<unk>",
    "</s>",
    "<pad>",
    "<0x41>",
    "<extra_id_0>",
    "▁",
    "▁▁",
    "ﷺ",
    "ﬁ",
    "Å",
    "가",
    "é",
]
WORDS = [
    "the",
    "a",
    "of",
    "error",
    "line",
    "why",
    "return",
    "None",
    "__init__",
    "x=1",
    "http://a.b/c?d=e",
    "don't",
    "1,000",
    "café",
]


def fuzzed(chooser: random.Random, count: int) -> Iterator[str]:
    """So many texts, every one of some kind."""
    kinds = (_characters, _plain, _ties, _marked, _long_word, _odd, _words, _blanks)
    for _ in range(count):
        yield chooser.choice(kinds)(chooser)


def _character(chooser: random.Random) -> str:
    top = chooser.choice((0x80, 0x80, 0x250, 0x3000, 0x10000, 0x110000))
    while unicodedata.category(character := chr(chooser.randrange(top))) == "Cs":
        pass
    return character


def _characters(chooser: random.Random) -> str:
    return "".join(_character(chooser) for _ in range(chooser.randrange(40)))


def _plain(chooser: random.Random) -> str:
    return "".join(chr(chooser.randrange(0x20, 0x7F)) for _ in range(chooser.randrange(120)))


def _ties(chooser: random.Random) -> str:
    sign = chooser.choice("-=#.*_~0x")
    return " ".join(sign * chooser.randrange(1, 30) for _ in range(chooser.randrange(1, 60)))


def _marked(chooser: random.Random) -> str:
    letters = "abeinouAEOU가ねか1 \u0f40"
    return "".join(chooser.choice(letters) + "".join(chooser.choices(MARKS, k=chooser.randrange(4))) for _ in range(20))


def _long_word(chooser: random.Random) -> str:
    return chooser.choice(("ab", "z", "-", "漢", "é", "Ab1_", "🙂")) * chooser.choice((3, 5, 17, 100, 400))


def _odd(chooser: random.Random) -> str:
    return "".join(chooser.choice(ODD) + chooser.choice(("", " ", "  ", "a")) for _ in range(chooser.randrange(12)))


def _words(chooser: random.Random) -> str:
    return "".join(chooser.choice(WORDS) + chooser.choice((" ", " ", " ", "\n", "  ", ", ")) for _ in range(40))


def _blanks(chooser: random.Random) -> str:
    return "".join(chooser.choices(BLANKS + "\x00\x01\x1f\x7fa", k=chooser.randrange(12)))

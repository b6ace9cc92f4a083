"""Find the label for a value of a table, in spite of differences in spelling between programs that write tables."""

import re
from collections.abc import Iterable, Mapping

_WHOLE_NUMBER = re.compile(r"(-?\d+)\.0*")
_TRUTH = {"true": "1", "false": "0"}


def find(value: str, labels: Mapping[str, str]) -> str | None:
    """Return the label of `value` in `labels` (value → label); None if there is none.

    Three differences are ignored, unless two values in `labels` differ only by them: surrounding spaces; whole numbers with
    decimals ("1.0", as pandas writes 1 in a column with empty cells); and the spelling of truth values.

    >>> labels = {"0": "ham", "1": "spam"}
    >>> find("1", labels), find(" 1.0", labels), find("False", labels), find("2", labels)
    ('spam', 'spam', 'ham', None)
    """
    for spelling in (value, value.strip()):
        if spelling in labels:
            return labels[spelling]
    matches = {labels[name] for name in labels if plain(name) == plain(value)}
    return matches.pop() if len(matches) == 1 else None


def plain(value: str) -> str:
    """Return the common spelling of all values that `find` treats as equal.

    >>> plain(" 1.0 "), plain("TRUE"), plain("-2"), plain("1.5"), plain("spam ")
    ('1', '1', '-2', '1.5', 'spam')
    """
    value = value.strip()
    if match := _WHOLE_NUMBER.fullmatch(value):
        return match[1]
    return _TRUTH.get(value.lower(), value)


def distinct(values: Iterable[str]) -> set[str]:
    """Return one name for each group of `values` that `find` treats as the same label.

    >>> sorted(distinct(["0", "1.0", "0.0", " a", "a"])), sorted(distinct(["True", "False"]))
    (['0', '1', 'a'], ['False', 'True'])
    """
    names: dict[str, str] = {}
    for value in sorted(values):
        name = value.strip()
        names.setdefault(plain(value), plain(value) if _WHOLE_NUMBER.fullmatch(name) else name)
    return set(names.values())

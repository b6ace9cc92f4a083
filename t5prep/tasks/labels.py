"""Find which label a value of a table stands for, however the table's writer spelled it."""

import re
from collections.abc import Iterable, Mapping

_WHOLE_NUMBER = re.compile(r"(-?\d+)\.0*")
_TRUTH = {"true": "1", "false": "0"}


def find(value: str, labels: Mapping[str, str]) -> str | None:
    """Return the label that a value stands for; None if it is none of them.

    Spaces around it, a whole number written as a fraction (pandas writes 1 beside empty cells so), and truth values written
    in another way make no difference, unless two labels differ in nothing else.

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
    """Return one spelling for all values that `find` takes for the same.

    >>> plain(" 1.0 "), plain("TRUE"), plain("-2"), plain("1.5"), plain("spam ")
    ('1', '1', '-2', '1.5', 'spam')
    """
    value = value.strip()
    if match := _WHOLE_NUMBER.fullmatch(value):
        return match[1]
    return _TRUTH.get(value.lower(), value)


def distinct(values: Iterable[str]) -> set[str]:
    """Return one name for all values that stand for the same label.

    >>> sorted(distinct(["0", "1.0", "0.0", " a", "a"])), sorted(distinct(["True", "False"]))
    (['0', '1', 'a'], ['False', 'True'])
    """
    names: dict[str, str] = {}
    for value in sorted(values):
        name = value.strip()
        names.setdefault(plain(value), plain(value) if _WHOLE_NUMBER.fullmatch(name) else name)
    return set(names.values())

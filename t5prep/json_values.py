"""Define the types of JSON values, and read numbers, in text that t5prep reads from files and from other programs."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
JSONObject: TypeAlias = Mapping[str, JSON]
# What reading the JSON of a stranger raises, whose values may be of any type: 10^400 overflows, deep nesting recurses.
MALFORMED_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def whole_number(text: str) -> int | None:
    """Return the number that a text of at most 18 digits has, or None for any other text.

    `int` does not read all that `str.isdigit` accepts, nor more than 4,300 digits.

    >>> whole_number("12"), whole_number("²"), whole_number("-1"), whole_number("9" * 19)
    (12, None, None, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None

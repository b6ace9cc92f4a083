"""Define the types of JSON values, for text that t5prep reads from files and from other programs."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
JSONObject: TypeAlias = Mapping[str, JSON]
# What reading the JSON of a stranger raises, whose values may be of any type: 10^400 overflows, deep nesting recurses.
MALFORMED_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

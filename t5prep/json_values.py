"""Define the types of JSON values, for text that t5prep reads from files and from other programs."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
JSONObject: TypeAlias = Mapping[str, JSON]

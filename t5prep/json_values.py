"""Name the types of JSON values, which files and other programs give to t5prep."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
JSONObject: TypeAlias = Mapping[str, JSON]

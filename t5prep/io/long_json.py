"""Write JSON that is too long to be a text in memory: in pieces, of objects that become dicts one at a time."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

# So many of the encoder's own pieces, a name or a number each, are joined into one.
_TOGETHER = 4096


def fields_of(described: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, their values as they are."""
    return {field.name: getattr(described, field.name) for field in dataclasses.fields(described)}


def pieces(facts: Any, *, fields: Callable[[Any], Any] = fields_of, **how: Any) -> Iterator[bytes]:
    """Yield the JSON of `facts` in UTF-8, some tens of kilobytes at a time.

    `fields` returns the dict of an object that JSON does not know, when its turn comes. `how` are options of json.dumps.

    >>> b"".join(pieces([1, {2}], fields=list, separators=(",", ":")))
    b'[1,[2]]'
    """
    # In pieces, the encoder asks for each object when it reaches it.
    encoded = json.JSONEncoder(default=fields, **how).iterencode(facts)
    while part := "".join(itertools.islice(encoded, _TOGETHER)):
        yield part.encode()

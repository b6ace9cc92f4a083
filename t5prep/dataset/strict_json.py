"""Make described objects of JSON: strictly, and without a dict of each where there are very many of a kind."""

import functools
import json
import typing
from collections.abc import Sequence
from typing import Any

import cattrs


def parse(text: str | bytes, *, many: Sequence[type]) -> Any:
    """Return what a text of JSON says, with an instance of a kind of `many` for each object that has exactly its fields.

    `many` are dataclasses whose fields are texts and whole numbers. Raises ValueError where the text is not JSON.
    """
    kinds = {frozenset(typing.get_type_hints(kind).items()): kind for kind in many}

    def made(facts: dict[str, Any]) -> Any:
        kind = kinds.get(frozenset((name, type(value)) for name, value in facts.items()))
        return kind(**facts) if kind else facts

    return json.loads(text, object_hook=made)


def converter(*, many: Sequence[type]) -> cattrs.Converter:
    """Return a strict converter: a field too many or too few is an error, because a guess would train on wrong data.

    Instances of `many` that `parse` made are taken as they are.
    """
    strict = cattrs.Converter(forbid_extra_keys=True)
    strict.register_structure_hook(int | None, lambda value, _: None if value is None else int(value))
    for kind in many:
        strict.register_structure_hook(kind, functools.partial(_taken, strict.get_structure_hook(kind)))
    return strict


def _taken(structure: Any, value: Any, kind: type) -> Any:
    """Return a value that is of a kind already, or what `structure` makes of it."""
    return value if isinstance(value, kind) else structure(value, kind)

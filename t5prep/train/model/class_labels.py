"""Read the names of a model's classes from its `config.json`, and write them."""

from collections.abc import Mapping, Sequence
from typing import Any


def read(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the classes in the order of the logits; two unnamed ones where the config names none.

    >>> read({"id2label": {"1": "up", "0": "down"}})
    ('down', 'up')
    """
    named = config.get("id2label")
    if not isinstance(named, Mapping):
        return tuple(f"LABEL_{number}" for number in range(int(config.get("num_labels", 2))))
    return tuple(str(named[number]) for number in sorted(named, key=int))


def written(classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the entries of a `config.json` by which `transformers` knows the names."""
    return {
        "id2label": {str(number): name for number, name in enumerate(classes)},
        "label2id": {name: number for number, name in enumerate(classes)},
    }

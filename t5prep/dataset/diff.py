"""Find what differs between two prepared datasets, from their manifests alone.

`verify` checks that shards are what their manifest says. To compare records, write both as tables and join them by id.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from t5prep.dataset import manifest
from t5prep.dataset.manifest import Manifest

# Fields that are shown, but do not count as a difference.
_ABOUT = ("created_by", "source.uri", "tokenizer.name", "settings.shards")


class Change(NamedTuple):
    """One field of the manifests, as a path, and what each says (None: nothing)."""

    field: str
    a: object
    b: object


@dataclasses.dataclass(frozen=True)
class Difference:
    """The differences of two datasets, A and B. `equal`: all that decides the bytes of their records is equal."""

    equal: bool
    manifest: list[Change]


def diff(a: str | Path, b: str | Path) -> Difference:
    """Return what the manifests of two datasets say differently. Raises DatasetError, OutputError."""
    manifest_a, manifest_b = manifest.load(a), manifest.load(b)
    return Difference(manifest_a.digest == manifest_b.digest, list(_changes(manifest_a, manifest_b)))


def decides(change: Change) -> bool:
    """Return whether a field has a part in the records' bytes."""
    return change.field not in _ABOUT


def _changes(a: Manifest, b: Manifest) -> Iterator[Change]:
    """Yield the fields that differ, in the order of the manifest."""
    fields = [dict(_flat(dataclasses.asdict(dataset))) for dataset in (a, b)]
    for field in {**fields[0], **fields[1]}:
        value_a, value_b = fields[0].get(field), fields[1].get(field)
        if value_a != value_b:
            yield Change(field, value_a, value_b)


def _flat(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    """Yield each field by its path; of shards, how many there are, and one checksum of all of theirs."""
    for name, item in value.items():
        field = f"{path}{name}"
        if field == "digest" or field.endswith(".lengths"):
            continue  # the first follows from everything, the second is a histogram
        if name == "shards" and isinstance(item, list):
            yield field, len(item)
            yield f"{field}.sha256", hashlib.sha256("".join(shard["sha256"] for shard in item).encode()).hexdigest()
        elif name == "files":
            yield from ((f"{field}[{file['name']}]", file["sha256"]) for file in item)
        elif isinstance(item, dict) and item:
            yield from _flat(item, f"{field}.")
        else:
            yield field, item

"""Compare two prepared datasets by their manifests alone.

`verify` checks shards against their manifest. To compare records, write both datasets as tables and join these by id.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from t5prep.dataset import manifest
from t5prep.dataset.manifest import Manifest

# Fields that are shown, but do not count as a difference, because they do not change the records.
_ABOUT = ("created_by", "source.uri", "tokenizer.name", "settings.shards")


class Change(NamedTuple):
    """Hold a field that differs, as a path (`splits.train.records`), and its value in A and in B (None: missing)."""

    field: str
    a: object
    b: object


@dataclasses.dataclass(frozen=True)
class Difference:
    """Hold the differences of two datasets, A and B. `equal` is True if their digests, and so their records, are equal."""

    equal: bool
    manifest: list[Change]


def diff(a: str | Path, b: str | Path) -> Difference:
    """Return the differences between the manifests of the datasets `a` and `b`. Raises DatasetError, OutputError."""
    manifest_a, manifest_b = manifest.load(a), manifest.load(b)
    return Difference(manifest_a.digest == manifest_b.digest, list(_changes(manifest_a, manifest_b)))


def decides(change: Change) -> bool:
    """Check whether the changed field decides the bytes of records."""
    return change.field not in _ABOUT


def _changes(a: Manifest, b: Manifest) -> Iterator[Change]:
    """Yield the fields that differ between two manifests, in the order of the manifest."""
    fields = [dict(_flat(dataclasses.asdict(dataset))) for dataset in (a, b)]
    for field in {**fields[0], **fields[1]}:
        value_a, value_b = fields[0].get(field), fields[1].get(field)
        if value_a != value_b:
            yield Change(field, value_a, value_b)


def _flat(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the path and value of each field below `value`, a part of a manifest as nested dicts.

    A list of shards becomes their number and one checksum over all. Each source file is a field of its own.
    """
    for name, item in value.items():
        field = f"{path}{name}"
        if field == "digest" or field.endswith(".lengths"):
            continue  # the digest follows from all other fields, and a histogram is too long to show
        if name == "shards" and isinstance(item, list):
            yield field, len(item)
            yield f"{field}.sha256", hashlib.sha256("".join(shard["sha256"] for shard in item).encode()).hexdigest()
        elif name == "files":
            yield from ((f"{field}[{file['name']}]", file["sha256"]) for file in item)
        elif isinstance(item, dict) and item:
            yield from _flat(item, f"{field}.")
        else:
            yield field, item

"""Find what differs between two prepared datasets: in their manifests, and in their records.

Records are compared by their ids wherever they stand, so that two orders, two numbers of shards or two splits of the same
examples are told apart from other examples. Every shard is read to see that it is what its manifest says; those with
equal checksums are not compared record by record. Of every other record 24 bytes are kept, on disk, and as many of them
in memory as one part of PART holds: a terabyte is compared on a laptop.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t5prep.dataset import manifest, prepared, tfrecord, verify
from t5prep.dataset.manifest import Manifest

# Records of one part: 96 MB of entries on each side.
PART = 4_000_000
# Ids that are named of each kind of difference.
NAMED = 10
# Fields that are shown, but do not count as a difference.
_ABOUT = ("created_by", "source.uri", "tokenizer.name", "settings.shards")
_ENTRY = np.dtype([("id", "u8"), ("bytes", "u8"), ("shard", "u4"), ("record", "u4")])


class Change(NamedTuple):
    """One field of the manifests, as a path, and what each says (None: nothing)."""

    field: str
    a: Any
    b: Any


@dataclasses.dataclass
class Ids:
    """The number of ids of one kind, and the first of them."""

    count: int = 0
    first: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Difference:
    """The differences of two datasets, A and B.

    Only B has the ids in `added`, only A those in `gone`; `moved` stand in another split; the bytes of `changed`
    differ.
    """

    equal: bool
    manifest: list[Change]
    added: Ids = dataclasses.field(default_factory=Ids)
    gone: Ids = dataclasses.field(default_factory=Ids)
    moved: Ids = dataclasses.field(default_factory=Ids)
    changed: Ids = dataclasses.field(default_factory=Ids)
    same: int = 0


class _Shard(NamedTuple):
    data: str | Path
    split: str
    name: str
    sha256: str
    bytes: int
    records: int


def diff(
    a: str | Path,
    b: str | Path,
    *,
    started: Callable[[int], None] = lambda total: None,
    progress: Callable[[int], None] = lambda read: None,
) -> Difference:
    """Return what differs from dataset A to dataset B, each in a directory or under gs://.

    `equal` says that all that decides the records' bytes is equal, and so are they. `started` gets the bytes that will be
    read, `progress` those that were. Raises DatasetError if a shard is not what its manifest says, OutputError.
    """
    manifests = manifest.load(a), manifest.load(b)
    difference = Difference(manifests[0].digest == manifests[1].digest, list(_changes(*manifests)))
    places = [manifest.folder_of(data) or "." for data in (a, b)]
    sides = [list(_shards(data, one)) for data, one in zip(places, manifests, strict=True)]
    every = sum(shard.bytes for side in sides for shard in side)
    shared = {(shard.split, shard.sha256) for shard in sides[0]} & {(shard.split, shard.sha256) for shard in sides[1]}
    difference.same = sum(shard.records for shard in sides[0] if (shard.split, shard.sha256) in shared)
    sides = [[shard for shard in side if (shard.split, shard.sha256) not in shared] for side in sides]
    started(every + sum(shard.bytes for side in sides for shard in side))
    # Manifests are compared only after their shards are known to be what they say.
    for place, one in zip(places, manifests, strict=True):
        verify.check_shards(place, one, progress=progress)
    if difference.equal:
        return difference
    most = max(sum(shard.records for shard in side) for side in sides)
    with tempfile.TemporaryDirectory(prefix="t5prep-diff-") as folder:
        parts = max(1, -(-most // PART))
        for number, side in enumerate(sides):
            _spill(side, Path(folder), side=number, parts=parts, progress=progress)
        for part in range(parts):
            entries = [np.fromfile(_part(Path(folder), side, part), _ENTRY) for side in (0, 1)]
            _compare(entries, sides, difference)
    return difference


def _changes(a: Manifest, b: Manifest) -> Iterator[Change]:
    """Yield the fields that differ, in the order of the manifest; of shards, only how many there are."""
    fields = [dict(_flat(dataclasses.asdict(made))) for made in (a, b)]
    for field in {**fields[0], **fields[1]}:
        one, other = fields[0].get(field), fields[1].get(field)
        if one != other:
            yield Change(field, one, other)


def _flat(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        field = f"{path}{name}"
        if field == "digest" or field.endswith(".lengths"):
            continue  # the first follows from everything, the second is a histogram
        if name == "shards" and isinstance(item, list):
            yield field, len(item)
        elif name == "files":
            yield from ((f"{field}[{file['name']}]", file["sha256"]) for file in item)
        elif isinstance(item, dict) and item:
            yield from _flat(item, f"{field}.")
        else:
            yield field, item


def decides(change: Change) -> bool:
    """Return whether a field has a part in the records' bytes."""
    return change.field not in _ABOUT


def _shards(data: str | Path, dataset: Manifest) -> Iterator[_Shard]:
    for split, facts in dataset.splits.items():
        for shard in facts.shards:
            yield _Shard(data, split, shard.name, shard.sha256, shard.bytes, shard.records)


def _part(folder: Path, side: int, part: int) -> Path:
    return folder / f"{side}-{part}"


def _spill(shards: Sequence[_Shard], folder: Path, *, side: int, parts: int, progress: Callable[[int], None]) -> None:
    """Write the entries of all records of one side, each to the part that its id belongs to."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(_part(folder, side, part), "wb")) for part in range(parts)]
        for number, shard in enumerate(shards):
            entries = np.array([(id, content, number, place) for id, content, place in _digests(shard)] or [], _ENTRY)
            for part, file in enumerate(files):
                entries[entries["id"] % parts == part].tofile(file)
            progress(shard.bytes)


def _digests(shard: _Shard) -> Iterator[tuple[int, int, int]]:
    """Yield the digest of the id, the digest of the content, and the place in the shard of every example."""
    for place, record in enumerate(prepared.read(shard.data, shard.name)):
        for id, content in _examples(record):
            yield _digest(id), _digest(content), place


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())


def _examples(record: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the id and the content of each example; those of a packed row are compared without their place in it."""
    raw = tfrecord.raw_features(record)
    if "input_segment_ids" not in raw:
        yield raw["id"][0], record
        return
    rows = {name: tfrecord.unpack(b"".join(raw[name])) for name in raw if name != "id"}
    for segment, id in enumerate(raw["id"], 1):
        sides = (("input_ids", "input_segment_ids"), ("labels", "label_segment_ids"))
        yield id, b"|".join(rows[ids][rows[segments] == segment].tobytes() for ids, segments in sides)


def _compare(entries: list[np.ndarray], sides: list[list[_Shard]], difference: Difference) -> None:
    one, other = (side[np.argsort(side["id"], kind="stable")] for side in entries)
    _, at, there = np.intersect1d(one["id"], other["id"], return_indices=True)
    splits = [np.array([shard.split for shard in side] or [""]) for side in sides]
    moved = splits[0][one["shard"][at]] != splits[1][other["shard"][there]]
    changed = ~moved & (one["bytes"][at] != other["bytes"][there])
    difference.same += int((~moved & ~changed).sum())
    gone = np.setdiff1d(np.arange(len(one)), at)
    added = np.setdiff1d(np.arange(len(other)), there)
    for ids, which, shards in (
        (difference.gone, one[gone], sides[0]),
        (difference.added, other[added], sides[1]),
        (difference.moved, other[there[moved]], sides[1]),
        (difference.changed, other[there[changed]], sides[1]),
    ):
        ids.count += len(which)
        room = NAMED - len(ids.first)
        # Ids whose place is first, so that few shards are read again.
        order = np.lexsort((which["record"], which["shard"]))[: max(0, room)]
        ids.first += [_name(shards[entry["shard"]], int(entry["record"]), int(entry["id"])) for entry in which[order]]


def _name(shard: _Shard, place: int, digest: int) -> str:
    """Return the id at a place of a shard."""
    record = next(itertools.islice(prepared.read(shard.data, shard.name), place, None))
    for id, _ in _examples(record):
        if _digest(id) == digest:
            return id.decode("utf-8", "replace")
    raise AssertionError("a shard changed while it was read")

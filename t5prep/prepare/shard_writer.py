"""Write a shard from the slices of all runs that fall into it: merged, without duplicates, counted.

Memory stays bounded whatever a shard's size: it is written in ranges of positions, each about RANGE_BYTES, and a range
of a sorted run is one read.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5prep.dataset import block_index, record_lengths, shard_names
from t5prep.dataset.manifest import Shard
from t5prep.io import paths
from t5prep.prepare import left_out, placement, record_counts, references, sorted_runs
from t5prep.prepare.left_out import LeftOut
from t5prep.prepare.near_duplicates import repeats as near_duplicates
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.record_layouts import Arrangement, Range
from t5prep.prepare.sorted_runs import Run

RANGE_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ShardSpec:
    """Describe a shard to write: which of its split's equal ranges of positions, and about how many bytes it has.

    `before` are splits whose ids this one must not have: where the source's files are splits, an id may stand in two.
    A block of the index has `every` records. `measured`: the lengths of its records are kept.
    """

    split: str
    number: int
    shards: int
    bytes: int
    before: tuple[str, ...] = ()
    every: int = 64
    measured: bool = True

    @property
    def name(self) -> str:
        """Return the shard's file name."""
        return shard_names.name(self.split, self.number, self.shards)

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the range of positions, begin and end."""
        return placement.shard_edge(self.number, self.shards), placement.shard_edge(self.number + 1, self.shards)


class WrittenShard(NamedTuple):
    """Hold a written shard, the counts of its records, and finished JSON lines of duplicates that were left out.

    `duplicates` are those of each source file, `reasons` why they are duplicates; `merged` rows are references of other
    rows' records; `blocks` are its part of the index, `lengths` those of its records (record_lengths.compressed), if any.
    """

    spec: ShardSpec
    shard: Shard
    counts: record_counts.Counts
    rejected: bytes
    duplicates: Mapping[str, int]
    reasons: Mapping[str, int]
    merged: int = 0
    blocks: bytes = b""
    lengths: bytes = b""


def write(
    spec: ShardSpec,
    runs: Sequence[Run],
    *,
    files: Sequence[str],
    out: str,
    arrange: Arrangement,
    several: bool = False,
    same: str = "id",
    repeats: Sequence[Repeats] = (),
    range_bytes: int = RANGE_BYTES,
) -> WrittenShard:
    """Write one shard from what sorted runs have of it. `files` are the names of the source's files.

    Of several records with one id the one with the smallest bytes is kept, whoever came first. Where an id has `several`
    answers, only one with the same target is a duplicate; evaluation merges the others. `same` is what two records at
    one position have in common: the id that placed them, or the text. `repeats` are rows that are left out because they
    repeat another one.
    """
    collected = LeftOut()
    total, counts, sha256 = 0, record_counts.Counts(), hashlib.sha256()
    sizes, lengths = [np.zeros(0, np.uint32)], [np.zeros((0, 2), np.uint32)]
    ranges = _ranges(
        spec, runs, collected, files=files, several=several, same=same, repeats=repeats, range_bytes=range_bytes
    )
    with paths.whole(paths.at(out, spec.name)) as file:
        for data, sizes_of, counted, lengths_of in arrange(ranges):
            file.write(data)
            sha256.update(data)
            total += len(data)
            counts += counted
            sizes.append(sizes_of)
            if lengths_of is not None and spec.measured:
                lengths.append(lengths_of)
    shard = Shard(spec.name, counts.records, total, sha256.hexdigest())
    blocks = block_index.block_sizes(np.concatenate(sizes), every=spec.every).tobytes()
    measured = record_lengths.compressed(np.concatenate(lengths)) if len(lengths) > 1 else b""
    lines, duplicates, reasons = collected.lines(), dict(collected.duplicates), dict(collected.reasons)
    return WrittenShard(spec, shard, counts, lines, duplicates, reasons, collected.merged, blocks, measured)


def _ranges(
    spec: ShardSpec,
    runs: Sequence[Run],
    collected: LeftOut,
    *,
    files: Sequence[str],
    several: bool,
    same: str,
    repeats: Sequence[Repeats],
    range_bytes: int,
) -> Iterator[Range]:
    """Yield the records of a shard in order, in ranges of positions; those without a record of their own are `collected`."""
    ranges = max(1, -(-spec.bytes // range_bytes))
    low, high = spec.bounds
    cuts = [low + (high - low) * i // ranges for i in range(ranges + 1)]
    for start, stop in itertools.pairwise(cuts):
        records = sorted_runs.gather(runs, spec.split, start, stop)
        if records is None:
            continue
        keys = ("target", "low", "high") if several else ("low", "high")
        order = np.lexsort([records.entries[key] for key in ("row", "file", *keys)])
        if repeats:
            own = near_duplicates.together(part.slice(spec.split, start, stop) for part in repeats)
            order, dropped = left_out.without_repeats(order, records, own, files=files)
            collected.add("near duplicate", dropped, step=0)
        order, dropped = left_out.without_duplicates(order, records, keys=keys, same=same, files=files)
        collected.add(f"duplicate {same}", dropped, step=1)
        for step, other in enumerate(spec.before, 2):
            others, reason = sorted_runs.gather(runs, other, start, stop), f"duplicate {same}: the split {other} has it"
            order, dropped = left_out.without_leaks(order, records, others, reason, files=files)
            collected.add(f"duplicate {same}", dropped, step=step)
        whole = Range(records.entries[order], records.joined(order))
        if several and spec.split != "train":
            rows = len(whole.entries)
            whole = references.merged(whole)
            collected.merged += rows - len(whole.entries)
        yield whole

"""Search for near-duplicates in steps that can be spread: bands in ranges of values, links, groups of linked rows, repeats."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from t5prep.dataset.settings import Settings
from t5prep.prepare.near_duplicates import minhash, repeats
from t5prep.prepare.near_duplicates.clusters import Joined
from t5prep.prepare.near_duplicates.minhash import Bands
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.near_duplicates.sketch import Sketch

# One LSH band of one row: its value, and the node that names the row: its sketch's number and its place there, 32 bits each.
ENTRY = np.dtype([("value", "u8"), ("node", "u8")])
# Bytes of bands that are compared at a time.
RANGE_BYTES = 16 << 20
# Bytes of shingles that are compared at a time; rows that are linked stay together, however many they are.
GROUP_BYTES = 16 << 20


class Plan(NamedTuple):
    """How the bands are cut (the first value of each range but the first), and each sketch's number, by file and first row."""

    edges: np.ndarray
    numbers: Mapping[tuple[str, int], int]

    def number(self, sketch: Sketch) -> int:
        """Return the number of a sketch."""
        return self.numbers[sketch.file, sketch.first_row]

    def cut(self, sketch: Sketch) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each range that a sketch has bands in, and these bands, `ENTRY[n]`."""
        values, places = sketch.entries()
        entries = np.empty(len(values), ENTRY)
        entries["value"] = values
        entries["node"] = places.astype(np.uint64) | np.uint64(self.number(sketch) << 32)
        bounds = [0, *np.searchsorted(values, self.edges).tolist(), len(values)]
        for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
            if begin < end:
                yield number, entries[begin:end]


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that are compared with each other: sketches' numbers, each with places in its table, `uint32[n]`."""

    number: int
    places: Mapping[int, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Search:
    """What decides which rows repeat another: `drawn` where splits are drawn from ids."""

    bands: Bands
    threshold: float
    drawn: bool

    def plan(self, sketches: Sequence[Sketch], *, range_bytes: int = RANGE_BYTES) -> Plan:
        """Return the plan of a search in these sketches; their bytes are not needed."""
        places = sorted((sketch.file, sketch.first_row) for sketch in sketches)
        numbers = {place: number for number, place in enumerate(places)}
        count = max(1, -(-sum(sketch.bands for sketch in sketches) * ENTRY.itemsize // range_bytes))
        return Plan(np.array([(number << 64) // count for number in range(1, count)], np.uint64), numbers)

    def groups(self, joined: Joined, sketches: Iterable[Sketch], *, group_bytes: int = GROUP_BYTES) -> Iterator[Group]:
        """Yield the linked rows in groups of about so many bytes; rows that links connect are in one group."""
        nodes, roots = joined.links().T
        sizes = [(sketch.rows, sketch.size) for sketch in sketches]
        rows, size = (sum(part) for part in zip(*sizes, strict=True)) if sizes else (0, 0)
        most = max(2, group_bytes * rows // max(1, size))
        order = np.lexsort((nodes, roots))
        nodes, roots = nodes[order], roots[order]
        ends = np.append(np.flatnonzero(roots[1:] != roots[:-1]) + 1, len(roots))
        begin = number = 0
        while begin < len(nodes):
            last = np.searchsorted(ends, begin + most, side="right") - 1
            end = (
                int(ends[last])
                if last >= 0 and ends[last] > begin
                else int(ends[np.searchsorted(ends, begin, "right")])
            )
            yield Group(number, _by_sketch(np.sort(nodes[begin:end])))
            begin, number = end, number + 1

    def find(self, pieces: Sequence[tuple[str, pa.Table]]) -> Repeats:
        """Return the repeats in a group's rows, as files' names with rows (ROWS) of them."""
        return repeats.find(pieces, bands=self.bands, threshold=self.threshold, drawn=self.drawn)


def of_settings(settings: Settings) -> Search | None:
    """Return the search that settings ask for, or None."""
    if settings.dedup != "near":
        return None
    bands = minhash.choose_bands(settings.near_hashes, settings.near_jaccard)
    return Search(bands, settings.near_jaccard, drawn=settings.drawn_by_id)


def links(entries: np.ndarray) -> np.ndarray:
    """Return `uint64[links, 2]`: the row of each band in `ENTRY[n]` and the first row with the same value of it."""
    order = np.lexsort((entries["node"], entries["value"]))
    value, node = entries["value"][order], entries["node"][order]
    begins = np.flatnonzero(np.concatenate([[True], value[1:] != value[:-1]])[: len(value)])
    first = np.repeat(node[begins], np.diff(np.append(begins, len(value))))
    linked = first != node
    return np.unique(np.stack([first[linked], node[linked]], axis=1), axis=0)


def _by_sketch(nodes: np.ndarray) -> dict[int, np.ndarray]:
    """Return the places of sorted nodes by the number of their sketch."""
    numbers = nodes >> np.uint64(32)
    begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    parts = np.split(nodes.astype(np.uint32), begins[1:])
    return dict(zip(numbers[begins].tolist(), parts, strict=True))

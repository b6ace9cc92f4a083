"""Link rows that share an LSH band, a range of band values at a time."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t5prep.io import atomic_files
from t5prep.prepare.near_duplicates.sketch import BAND, Sketch

# Bytes of bands that are compared at a time.
RANGE_BYTES = 16 << 20


def ranges(sketches: Iterable[Sketch], *, range_bytes: int = RANGE_BYTES) -> list[tuple[int, int]]:
    """Return ranges of band values that together are all of them, each holding about so many bytes of bands."""
    total = sum(sketch.bands for sketch in sketches) * 2 * BAND.itemsize
    count = max(1, -(-total // range_bytes))
    edges = [(number << 64) // count for number in range(count + 1)]
    return list(itertools.pairwise(edges))


class BandRun(NamedTuple):
    """Name a file with the bands of several sketches, sorted: their values, uint64[n], and their nodes, uint64[n]."""

    path: str
    bands: int

    def slice(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the values in a range, and their nodes."""
        both: np.ndarray = np.memmap(self.path, np.uint64, "r", shape=(2, self.bands))
        first = int(np.searchsorted(both[0], np.uint64(begin)))
        last = self.bands if end >= 1 << 64 else int(np.searchsorted(both[0], np.uint64(end)))
        return np.array(both[0, first:last]), np.array(both[1, first:last])


def groups_of_sketches(sketches: Sequence[Sketch], *, range_bytes: int = RANGE_BYTES) -> Iterator[list[Sketch]]:
    """Yield sketches that lie on disk, in groups with about as many bytes of bands as a range."""
    group: list[Sketch] = []
    held = 0
    for one in sketches:
        group.append(one)
        held += _bytes([one])
        if held >= range_bytes:
            yield group
            group, held = [], 0
    if group:
        yield group


def merge(numbered: Iterable[tuple[int, Sketch]], path: Path) -> BandRun:
    """Write the bands of sketches into one sorted file, so that a range is read from few files, and return it."""
    value, node = _entries((number, one.slice(0, 1 << 64)) for number, one in numbered)
    order = np.lexsort((node, value))
    atomic_files.write_scratch(path, np.stack([value[order], node[order]]).tobytes())
    return BandRun(str(path), len(order))


def links_of_runs(runs: Iterable[BandRun], *, begin: int, end: int) -> np.ndarray:
    """Return `uint64[links, 2]`: each row of a band in a range of values and the first row with the same value of it."""
    slices = [run.slice(begin, end) for run in runs if run.bands]
    none = np.zeros(0, np.uint64)
    return _links(*(np.concatenate([none, *parts]) for parts in (zip(*slices, strict=True) if slices else ((), ()))))


def links(slices: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return `uint64[links, 2]`: each row of a band and the first row with the same value of it.

    `slices` are numbers of sketches with their bands (BAND[n]) in one range of values. A row is named by its sketch's
    number and its place there, 32 bits each.
    """
    return _links(*_entries(slices))


def _bytes(sketches: Iterable[Sketch]) -> int:
    """Return the bytes of sketches' bands, with a node for each."""
    return sum(sketch.bands for sketch in sketches) * 2 * np.uint64().itemsize


def _entries(slices: Iterable[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of all bands, `uint64[n]`, and the row that each is of."""
    values, nodes = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for number, bands in slices:
        values.append(bands["value"])
        nodes.append(bands["place"].astype(np.uint64) | np.uint64(number << 32))
    return np.concatenate(values), np.concatenate(nodes)


def _links(value: np.ndarray, node: np.ndarray) -> np.ndarray:
    """Return the links between rows with equal values."""
    order = np.lexsort((node, value))
    value, node = value[order], node[order]
    begins = np.flatnonzero(np.concatenate([[True], value[1:] != value[:-1]])[: len(value)])
    first = np.repeat(node[begins], np.diff(np.append(begins, len(value))))
    linked = first != node
    return np.unique(np.stack([first[linked], node[linked]], axis=1), axis=0)

"""Link rows that share an LSH band, a range of band values at a time."""

import itertools
from collections.abc import Iterable

import numpy as np

from t5prep.prepare.near_duplicates.sketch import BAND, Sketch

# Bytes of bands that are compared at a time.
RANGE_BYTES = 16 << 20


def ranges(sketches: Iterable[Sketch], *, range_bytes: int = RANGE_BYTES) -> list[tuple[int, int]]:
    """Return ranges of band values that together are all of them, each holding about so many bytes of bands."""
    total = sum(sketch.bands for sketch in sketches) * 2 * BAND.itemsize
    count = max(1, -(-total // range_bytes))
    edges = [(number << 64) // count for number in range(count + 1)]
    return list(itertools.pairwise(edges))


def links(slices: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return `uint64[links, 2]`: each row of a band and the first row with the same value of it.

    `slices` are numbers of sketches with their bands (BAND[n]) in one range of values. A row is named by its sketch's
    number and its place there, 32 bits each.
    """
    values, nodes = [], []
    for number, bands in slices:
        values.append(bands["value"])
        nodes.append(bands["place"].astype(np.uint64) | np.uint64(number << 32))
    if not values:
        return np.zeros((0, 2), np.uint64)
    value, node = np.concatenate(values), np.concatenate(nodes)
    order = np.lexsort((node, value))
    value, node = value[order], node[order]
    begins = np.flatnonzero(np.concatenate([[True], value[1:] != value[:-1]])[: len(value)])
    first = np.repeat(node[begins], np.diff(np.append(begins, len(value))))
    linked = first != node
    return np.unique(np.stack([first[linked], node[linked]], axis=1), axis=0)

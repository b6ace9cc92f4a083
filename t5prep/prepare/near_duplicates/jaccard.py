"""Compute the exact Jaccard similarity of sets of shingles, many pairs at a time."""

from typing import NamedTuple

import numpy as np

from t5prep.prepare.near_duplicates.mixing import mix
from t5prep.prepare.near_duplicates.shingles import Shingles

# So many elements are looked up at a time.
_CHUNK = 1 << 20


class Sets(NamedTuple):
    """Hold sets: `keys` int64[total], sorted, is set · `width` + element; those of set i lie from `begins[i]` on.

    `known` are the hashes that elements stand for, uint64[width].
    """

    keys: np.ndarray
    begins: np.ndarray
    width: int
    known: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Return how many elements each set has, `int64[sets]`."""
        return np.diff(self.begins)

    def take(self, order: np.ndarray) -> "Sets":
        """Return the sets with these numbers, in their order."""
        sizes = self.sizes[order]
        begins = np.concatenate([[0], np.cumsum(sizes)])
        owner = np.repeat(np.arange(len(order)), sizes)
        at = np.arange(begins[-1]) - begins[owner] + self.begins[order][owner]
        return Sets(self.keys[at] + (owner - order[owner]) * self.width, begins, self.width, self.known)

    def contents(self) -> np.ndarray:
        """Return a digest of each set, `uint64[sets]`: equal for equal sets. Every set must have an element."""
        return np.add.reduceat(mix(self.known[self.keys % self.width]), self.begins[:-1])


def sets(shingles: Shingles) -> Sets:
    """Return the set of shingles of each text."""
    known, elements = np.unique(shingles.hashes, return_inverse=True)
    width = max(1, len(known))
    owner = np.repeat(np.arange(len(shingles.begins) - 1), np.diff(shingles.begins))
    keys = np.sort(owner * width + elements)
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    return Sets(keys, np.searchsorted(keys, np.arange(len(shingles.begins)) * width), width, known)


def similarity(sets: Sets, pairs: np.ndarray) -> np.ndarray:
    """Return the Jaccard similarity of each pair of sets, `float64[pairs]`: shared elements over all elements.

    `pairs` are numbers of sets, `int64[pairs, 2]`. Both of a pair must have an element.
    """
    sizes = sets.sizes
    swap = sizes[pairs[:, 0]] > sizes[pairs[:, 1]]
    small = np.where(swap, pairs[:, 1], pairs[:, 0])
    large = np.where(swap, pairs[:, 0], pairs[:, 1])
    shared = np.zeros(len(pairs), np.int64)
    ends = np.cumsum(sizes[small])
    begin = 0
    while begin < len(pairs):
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + _CHUNK, side="right")))
        shared[begin:end] = _shared(sets, small[begin:end], large[begin:end])
        begin = end
    return shared / (sizes[small] + sizes[large] - shared)


def _shared(sets: Sets, small: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Return how many elements each pair of sets has in common, `int64[pairs]`."""
    sizes = sets.sizes[small]
    pair = np.repeat(np.arange(len(small)), sizes)
    first = np.cumsum(sizes) - sizes
    at = np.arange(len(pair)) - first[pair] + sets.begins[small][pair]
    sought = sets.keys[at] - small[pair] * sets.width + large[pair] * sets.width
    place = np.minimum(np.searchsorted(sets.keys, sought), len(sets.keys) - 1)
    return np.bincount(pair[sets.keys[place] == sought], minlength=len(small))

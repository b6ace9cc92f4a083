"""Make clusters of near-duplicates: verify by exact Jaccard similarity the pairs that share a band, and connect those that pass."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from t5prep.prepare.near_duplicates import minhash
from t5prep.prepare.near_duplicates.minhash import Bands
from t5prep.prepare.near_duplicates.shingles import Shingles, mix

# In a band that more rows share than this, each is compared with so many next to it: the work stays linear where a
# whole corpus is one template. Rows of one cluster share many bands, so that few of its pairs have to be compared.
WINDOW = 32
# So many elements are looked up at a time.
_CHUNK = 1 << 20


class Sets(NamedTuple):
    """Sets of shingles: `keys` int64[total], sorted, is set · `width` + element; those of set i lie from `begins[i]` on.

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


def clustered(shingles: Shingles, sets: Sets, *, bands: Bands, threshold: float, window: int = WINDOW) -> np.ndarray:
    """Return for each text the first text of its cluster, `int64[texts]`; `sets` are the sets of its shingles.

    Two texts are linked when they share a band and their sets of shingles have at least the threshold's Jaccard
    similarity; clusters are the connected components. Texts come in an order of their own content, so that the same
    texts make the same clusters.
    """
    parent = np.arange(len(sets.sizes))
    if len(parent) < 2:
        return parent
    values = minhash.band_values(minhash.signatures(shingles, hashes=bands.bands * bands.rows), bands=bands)
    linked = refused = np.zeros((0, 2), np.int64)
    for pairs in _passes(sets.contents(), values, window):
        pairs = np.unique(pairs[parent[pairs[:, 0]] != parent[pairs[:, 1]]], axis=0)
        pairs = pairs[~np.isin(_codes(pairs, len(parent)), _codes(refused, len(parent)))]
        alike = _alike(sets, pairs, threshold)
        refused = np.concatenate([refused, pairs[~alike]])
        linked = np.concatenate([linked, pairs[alike]])
        parent = labels(linked, len(parent))
    return parent


def _passes(digests: np.ndarray, values: np.ndarray, window: int) -> Iterator[np.ndarray]:
    """Yield pairs of texts to compare: of equal content first, then neighbours in a band, nearest first.

    Of texts with equal content only the first goes on to the bands.
    """
    _, first, of = np.unique(digests, return_index=True, return_inverse=True)
    yield np.stack([first[of], np.arange(len(digests))], axis=1)
    alone = np.sort(first)
    order = np.argsort(values[alone], axis=0, kind="stable")  # in each band by value, then in order of texts
    ordered = np.take_along_axis(values[alone], order, axis=0)
    members = alone[order]
    for distance in range(1, min(window, len(alone) - 1) + 1):
        same = ordered[distance:] == ordered[:-distance]
        if not same.any():
            return
        yield np.stack([members[:-distance][same], members[distance:][same]], axis=1)


def _codes(pairs: np.ndarray, texts: int) -> np.ndarray:
    return pairs[:, 0] * texts + pairs[:, 1]


def _alike(sets: Sets, pairs: np.ndarray, threshold: float) -> np.ndarray:
    """Return which pairs have at least the threshold's similarity; sizes alone rule many out."""
    small, large = np.sort(sets.sizes[pairs], axis=1).T
    alike = small >= threshold * large
    alike[alike] = similarity(sets, pairs[alike]) >= threshold
    return alike


class Joined:
    """Links as what they have become: for each linked node the smallest of its component, 16 bytes a node.

    New links wait until there are as many of them as nodes, so that adding all of them costs little more than sorting.
    """

    def __init__(self, *, waiting: int = 1 << 20) -> None:
        self._most = waiting
        self._links = np.zeros((0, 2), np.uint64)
        self._waiting: list[np.ndarray] = []
        self._count = 0

    def add(self, links: np.ndarray) -> "Joined":
        """Take links, `uint64[links, 2]`."""
        self._waiting.append(links)
        self._count += len(links)
        if self._count > max(self._most, len(self._links)):
            self._join()
        return self

    def merge(self, other: "Joined") -> "Joined":
        """Take all links of another one."""
        return self.add(other.links())

    def links(self) -> np.ndarray:
        """Return each linked node beside the smallest node of its component, `uint64[nodes, 2]`, in order of the nodes."""
        self._join()
        return self._links

    def _join(self) -> None:
        if self._count:
            self._links = np.stack(connected([self._links, *self._waiting]), axis=1)
            self._waiting, self._count = [], 0


def connected(links: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return all linked nodes in order, `uint64[n]`, and for each the smallest node of its component.

    `links` are arrays `uint64[links, 2]`; each is added to what the earlier ones have become, so that only nodes are
    held and never all links. The order of the arrays does not matter.
    """
    nodes = roots = np.zeros(0, np.uint64)
    for more in links:
        if not len(more):
            continue
        joined = np.concatenate([np.stack([nodes, roots], axis=1), more])
        nodes, ends = np.unique(joined, return_inverse=True)
        roots = nodes[labels(ends.reshape(joined.shape), len(nodes))]
    return nodes, roots


def labels(links: np.ndarray, nodes: int) -> np.ndarray:
    """Return for each of the nodes 0..n the smallest node of its component, `int64[nodes]`.

    Roots that are linked are joined, the larger under the smaller, and every path is shortened to its root, until no
    link joins two roots.
    """
    parent = np.arange(nodes)
    left, right = links[:, 0].astype(np.int64), links[:, 1].astype(np.int64)
    while True:
        one, other = parent[left], parent[right]
        apart = one != other
        if not apart.any():
            return parent
        left, right, one, other = left[apart], right[apart], one[apart], other[apart]
        np.minimum.at(parent, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(shorter := parent[parent], parent):
            parent = shorter

"""Find the connected components of links between rows."""

from collections.abc import Iterable

import numpy as np


class Joined:
    """Hold links as what they have become: for each linked node the smallest of its component, 16 bytes a node.

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

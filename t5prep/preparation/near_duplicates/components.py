"""Find connected components, in memory while the links fit, otherwise in rounds over sorted files of links.

A link is two nodes, `uint64[links, 2]`. The root of a component is its smallest node, and identifies it. In each
round, all links of a node come together, and the node links its larger neighbours to the smallest one, until only
stars are left. This is the alternating algorithm of Kiveris et al. (Connected Components in MapReduce and Beyond,
2014). The number of rounds is about the logarithm of the longest chain, and each round is a sort. Memory is bounded
by a fixed number of links.
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from t5prep.io import atomic_files
from t5prep.preparation.sorted_pairs import MAX_PAIRS, SortedPairs
from t5prep.tokens.ragged import run_starts


def components(links: Iterable[np.ndarray], *, folder: str = "", max_links: int = MAX_PAIRS) -> Iterator[np.ndarray]:
    """Yield (root, node) for each linked node, `uint64[n, 2]`, sorted.

    The root is a node of its component, too. The order of the links has no influence. Links beyond `max_links` are in
    temporary files in `folder`. Raises OutputError if these cannot be written.
    """
    with atomic_files.temporary_folder(folder, name="links") as scratch_folder:
        edges, both = (
            SortedPairs(Path(scratch_folder) / "edges", max_links),
            SortedPairs(Path(scratch_folder) / "both", max_links),
        )
        for part in _contracted(links, max_links):
            edges.add(part)
        is_converged = False
        while not is_converged:
            both.clear()
            for part in _contracted(edges.all(), max_links):
                # Both directions, so that sorting brings all neighbours of a node together.
                both.add(part)
                both.add(part[:, ::-1])
            edges.clear()
            is_converged = True
            for nodes, neighbours, smallest in _with_smallest(both.all()):
                # Only stars are left if each node with a smaller neighbour is linked to nothing else.
                is_converged &= not ((smallest < nodes) & (neighbours != smallest)).any()
                larger = neighbours > nodes
                edges.add(np.stack([neighbours[larger], smallest[larger]], axis=1))
        edges.clear()
        yield from _of_roots(both.all())


def grouped(component_parts: Iterable[np.ndarray], *, max_nodes: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (number of a group, its nodes): consecutive whole components with at most `max_nodes` nodes together.

    `component_parts` are the pairs that `components` yields. A larger component is its own group, which is yielded in
    several parts.
    """
    pending_pairs, number, going = np.zeros((0, 2), np.uint64), 0, -1  # `going`: root of a component yielded in part
    for part in itertools.chain(component_parts, [None]):
        pending_pairs = pending_pairs if part is None else np.concatenate([pending_pairs, part])
        while len(pending_pairs):
            if going >= 0:
                end = int(np.searchsorted(pending_pairs[:, 0], np.uint64(going), side="right"))
                if end:
                    yield number, pending_pairs[:end, 1]
                if end == len(pending_pairs):
                    pending_pairs = pending_pairs[end:]
                    break
                pending_pairs, number, going = pending_pairs[end:], number + 1, -1
            if part is not None and len(pending_pairs) <= max_nodes:
                break  # the next part may have more of this group
            ends = np.flatnonzero(pending_pairs[1:, 0] != pending_pairs[:-1, 0]) + 1
            ends = np.append(ends, len(pending_pairs)) if part is None else ends
            if not len(ends):
                going = int(pending_pairs[0, 0])
                continue
            end = int(ends[max(0, int(np.searchsorted(ends, max_nodes, side="right")) - 1)])
            yield number, pending_pairs[:end, 1]
            pending_pairs, number = pending_pairs[end:], number + 1


def labels(links: np.ndarray, nodes: int) -> np.ndarray:
    """Return the smallest node of the component of each node 0 to `nodes` - 1, `int64[nodes]`.

    Linked roots are joined, the larger one under the smaller one, and all paths are shortened, until no link joins
    two roots.
    """
    parent = np.arange(nodes)
    left, right = links[:, 0].astype(np.int64), links[:, 1].astype(np.int64)
    while True:
        left_root, right_root = parent[left], parent[right]
        joins_roots = left_root != right_root
        if not joins_roots.any():
            return parent
        left, right, left_root, right_root = (
            left[joins_roots],
            right[joins_roots],
            left_root[joins_roots],
            right_root[joins_roots],
        )
        # If several links join one root, `minimum.at` takes the smallest partner.
        np.minimum.at(parent, np.maximum(left_root, right_root), np.minimum(left_root, right_root))
        while not np.array_equal(shorter := parent[parent], parent):
            parent = shorter


def stars(links: np.ndarray) -> np.ndarray:
    """Return (node, smallest node of its component) for each linked node but the smallest ones, sorted by node."""
    nodes, ends = np.unique(links, return_inverse=True)
    roots = labels(ends.reshape(links.shape), len(nodes))
    inner = np.flatnonzero(roots != np.arange(len(nodes)))
    return np.stack([nodes[inner], nodes[roots[inner]]], axis=1)


def _contracted(links: Iterable[np.ndarray], max_links: int) -> Iterator[np.ndarray]:
    """Yield fewer links that connect the same nodes, larger node first, about `max_links` links at a time.

    The link of the last node is repeated in the next batch, so that neighbours of one node stay connected across
    batches.
    """
    waiting, count = list[np.ndarray](), 0
    for part in links:
        if not len(part):
            continue
        waiting.append(part)
        count += len(part)
        if count < max_links:
            continue
        joined = stars(np.concatenate(waiting))
        waiting, count = [joined], len(joined)
        # Contracting removed few links: yield them, instead of contracting them again with each part.
        if count > max_links // 2:
            yield joined
            last = np.searchsorted(joined[:, 0], part[-1].max())
            waiting, count = [joined[last : last + 1].copy()], 1
    if count:
        yield stars(np.concatenate(waiting))


def _with_smallest(links: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (first nodes, second nodes, smallest nodes) of sorted links, `uint64[n]` each.

    The third array has, for each first node, the smallest of the node and all its neighbours.
    """
    previous_node = least = -1
    for part in links:
        nodes, neighbours = part.T
        begins = run_starts(nodes)
        smallest = np.minimum(nodes[begins], neighbours[begins])
        if nodes[0] == previous_node:
            smallest[0] = least
        previous_node, least = int(nodes[-1]), int(smallest[-1])
        yield nodes, neighbours, np.repeat(smallest, np.diff(begins, append=len(nodes)))


def _of_roots(links: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the links that begin at a root, from sorted stars in both directions, each root preceded by a link to itself."""
    previous_root = -1
    for nodes, neighbours, smallest in _with_smallest(links):
        of_root = smallest == nodes
        roots = nodes[of_root]
        if len(roots):
            begins = np.flatnonzero(np.append(roots[0] != previous_root, roots[1:] != roots[:-1]))
            previous_root = int(roots[-1])
            self_links = np.stack([roots[begins], roots[begins]], axis=1)
            yield np.insert(np.stack([roots, neighbours[of_root]], axis=1), begins, self_links, axis=0)

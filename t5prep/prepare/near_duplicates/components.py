"""Find connected components: in memory as long as the links fit, else in rounds over sorted files of them.

A link is two nodes, `uint64[links, 2]`. A component is known by the smallest of its nodes, its root. In a round all links of a
node come together, and the node links its larger neighbours to the smallest, until only stars are left: the alternating
algorithm of Kiveris et al. (Connected Components in MapReduce and Beyond, 2014). It takes about the logarithm of the longest
chain as rounds, each of them a sort. A number of links is in memory at a time, however many there are.
"""

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from t5prep.io import atomic_files

# So many links are held at a time.
HELD = 1 << 18
# So many sorted files are merged at a time.
FAN_IN = 128
_LINK_BYTES = 16


def components(links: Iterable[np.ndarray], *, folder: str = "", held: int = HELD) -> Iterator[np.ndarray]:
    """Yield the root and the node of each linked node, `uint64[n, 2]`, in order of roots, then of nodes.

    The root of a component is a node of it too, and comes first. The order of the links does not matter. What is more than
    `held` links waits in temporary files of a folder. Raises OutputError if they cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="links-", dir=folder or None) as place:
        edges, both = SortedPairs(Path(place) / "edges", held), SortedPairs(Path(place) / "both", held)
        for part in _contracted(links, held):
            edges.add(part)
        done = False
        while not done:
            both.clear()
            for part in _contracted(edges.all(), held):
                both.add(part)
                both.add(part[:, ::-1])
            edges.clear()
            done = True
            for nodes, others, smallest in _with_smallest(both.all()):
                done &= not ((smallest < nodes) & (others != smallest)).any()
                larger = others > nodes
                edges.add(np.stack([others[larger], smallest[larger]], axis=1))
        edges.clear()
        yield from _of_roots(both.all())


def grouped(found: Iterable[np.ndarray], *, most: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of a group and nodes of it: whole components, in order, as many as have at most so many nodes together.

    `found` are components as `components` yields them. A larger one is a group of its own, which comes in several parts.
    """
    held, number, going = np.zeros((0, 2), np.uint64), 0, -1  # `going`: the component that was yielded in part
    for part in itertools.chain(found, [None]):
        held = held if part is None else np.concatenate([held, part])
        while len(held):
            if going >= 0:
                end = int(np.searchsorted(held[:, 0], np.uint64(going), side="right"))
                if end:
                    yield number, held[:end, 1]
                if end == len(held):
                    held = held[end:]
                    break
                held, number, going = held[end:], number + 1, -1
            if part is not None and len(held) <= most:
                break  # more may belong to the group
            ends = np.flatnonzero(held[1:, 0] != held[:-1, 0]) + 1
            ends = np.append(ends, len(held)) if part is None else ends
            if not len(ends):
                going = int(held[0, 0])
                continue
            end = int(ends[max(0, np.searchsorted(ends, most, side="right") - 1)])
            yield number, held[:end, 1]
            held, number = held[end:], number + 1


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


def stars(links: np.ndarray) -> np.ndarray:
    """Return each node of some links that is not the smallest of its component, in order, and that smallest one."""
    nodes, ends = np.unique(links, return_inverse=True)
    roots = labels(ends.reshape(links.shape), len(nodes))
    inner = np.flatnonzero(roots != np.arange(len(nodes)))
    return np.stack([nodes[inner], nodes[roots[inner]]], axis=1)


def _contracted(links: Iterable[np.ndarray], held: int) -> Iterator[np.ndarray]:
    """Yield fewer links that connect the same nodes, the larger node first, some `held` links at a time.

    The last node goes on with the next links: neighbours of one node that stand side by side are joined, wherever they are cut.
    """
    waiting, count = list[np.ndarray](), 0
    for part in links:
        if not len(part):
            continue
        waiting.append(part)
        count += len(part)
        if count < held:
            continue
        joined = stars(np.concatenate(waiting))
        waiting, count = [joined], len(joined)
        if count > held // 2:
            yield joined
            last = np.searchsorted(joined[:, 0], part[-1].max())
            waiting, count = [joined[last : last + 1].copy()], 1
    if count:
        yield stars(np.concatenate(waiting))


def _with_smallest(links: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the first nodes of sorted links, the second ones, and the smallest of each first one and all that it is linked to."""
    before = least = -1
    for part in links:
        nodes, others = part.T
        begins = np.flatnonzero(np.append(True, nodes[1:] != nodes[:-1]))
        smallest = np.minimum(nodes[begins], others[begins])
        if nodes[0] == before:
            smallest[0] = least
        before, least = int(nodes[-1]), int(smallest[-1])
        yield nodes, others, np.repeat(smallest, np.diff(begins, append=len(nodes)))


def _of_roots(links: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the sorted links of roots alone, of stars in both directions; before those of each, one of the root to itself."""
    before = -1
    for nodes, others, smallest in _with_smallest(links):
        of_root = smallest == nodes
        roots = nodes[of_root]
        if len(roots):
            begins = np.flatnonzero(np.append(roots[0] != before, roots[1:] != roots[:-1]))
            before = int(roots[-1])
            own = np.stack([roots[begins], roots[begins]], axis=1)
            yield np.insert(np.stack([roots, others[of_root]], axis=1), begins, own, axis=0)


class SortedPairs:
    """Pairs of numbers (links) in order, each once: in memory, or in sorted files that are merged."""

    def __init__(self, folder: Path, held: int = HELD) -> None:
        self._folder, self._held, self._written = folder, held, 0
        self.clear()

    def clear(self) -> None:
        """Forget all pairs."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._waiting, self._count = list[np.ndarray](), 0
        self._levels: list[list[Path]] = [[]]

    def add(self, links: np.ndarray) -> None:
        """Take pairs, `uint64[pairs, 2]`."""
        self._waiting.append(links)
        self._count += len(links)
        if self._count >= self._held:
            self._write(0, self._taken())

    def all(self) -> Iterator[np.ndarray]:
        """Yield all pairs, some at a time. No more are taken. Raises OutputError if a file is gone or cannot be written."""
        if any(self._levels):
            if self._count:
                self._write(0, self._taken())
            yield from _merged([path for level in self._levels for path in level], self._held)
        elif self._count:
            self._waiting = list(self._taken())
            self._count = len(self._waiting[0])
            yield self._waiting[0]

    def _taken(self) -> Iterator[np.ndarray]:
        links = _ordered(np.concatenate(self._waiting))
        self._waiting, self._count = [], 0
        yield links

    def _write(self, level: int, links: Iterable[np.ndarray]) -> None:
        """Write sorted links into a file; when there are many files of a level, they become one of the next."""
        path = self._folder / f"{self._written:08d}"
        self._written += 1
        with atomic_files.scratch(path) as temporary, open(temporary, "wb") as file:
            for part in links:
                file.write(part.data)
        self._levels[level].append(path)
        if len(self._levels[level]) >= FAN_IN:
            many, self._levels[level] = self._levels[level], []
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._write(level + 1, _merged(many, self._held))
            for path in many:
                path.unlink()


def _ordered(links: np.ndarray) -> np.ndarray:
    """Return different links in order."""
    nodes, ends = np.unique(links, return_inverse=True)
    left, right = ends.reshape(links.shape).astype(np.uint64).T
    codes = np.sort(left << np.uint64(32) | right)  # one number sorts several times as fast as two
    codes = codes[np.append(True, codes[1:] != codes[:-1])]
    return np.stack([nodes[codes >> np.uint64(32)], nodes[codes & np.uint64(0xFFFFFFFF)]], axis=1)


def _merged(paths: list[Path], held: int) -> Iterator[np.ndarray]:
    """Yield the different links of sorted files in order, some `held` at a time."""
    each = max(1, held // len(paths))
    files = [open(path, "rb", buffering=0) for path in paths]  # noqa: SIM115 - closed below, all of them
    try:
        parts = [_read(file, each) for file in files]
        while files:
            # What is smaller than the last link that was read of every file is complete. A file that has come to its end is.
            last = min((part[-1] for part in parts), key=tuple)
            ends = [_up_to(part, last) for part in parts]
            yield _ordered(np.concatenate([part[:end] for part, end in zip(parts, ends, strict=True)]))
            left = []
            for file, part, end in zip(files, parts, ends, strict=True):
                more = np.concatenate([part[end:], _read(file, end)])
                if len(more):
                    left.append((file, more))
                else:
                    file.close()
            files, parts = [file for file, _ in left], [part for _, part in left]
    finally:
        for file in files:
            file.close()


def _read(file: BinaryIO, links: int) -> np.ndarray:
    """Return the next links of a file: fewer at its end."""
    return np.frombuffer(file.read(links * _LINK_BYTES), np.uint64).reshape(-1, 2)


def _up_to(links: np.ndarray, last: np.ndarray) -> int:
    """Return how many of some sorted links come no later than another one."""
    begin, end = (int(np.searchsorted(links[:, 0], last[0], side)) for side in ("left", "right"))
    return begin + int(np.searchsorted(links[begin:end, 1], last[1], side="right"))

"""Components of links that fit into memory and of many more are those of a plain union-find."""

import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5prep.preparation import sorted_pairs
from t5prep.preparation.near_duplicates import components
from t5prep.preparation.sorted_pairs import MAX_PAIRS


def _plain(links: list[tuple[int, int]]) -> list[list[int]]:
    """Root and node of each linked node, by a union-find of three lines."""
    parent: dict[int, int] = {}

    def root(node: int) -> int:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for first_node, second_node in links:
        low, high = sorted((root(first_node), root(second_node)))
        parent[high] = low
    return sorted([root(node), node] for node in parent)


def _join_links(links: list[tuple[int, int]], *, part: int, max_links: int = MAX_PAIRS) -> list[list[int]]:
    array = np.array(links, np.uint64).reshape(-1, 2)
    parts = (array[begin : begin + part] for begin in range(0, len(array), part))
    return [pair for pairs in components.components(parts, max_links=max_links) for pair in pairs.tolist()]


NODES = st.one_of(st.integers(0, 25), st.integers((1 << 40) - 9, 1 << 40), st.integers((1 << 64) - 3, (1 << 64) - 1))
LINKS = st.lists(st.tuples(NODES, NODES).filter(lambda link: link[0] != link[1]), max_size=60)


@settings(deadline=None, max_examples=60)
@given(
    links=LINKS,
    part=st.integers(1, 20),
    max_links=st.sampled_from([4, 8, 30, MAX_PAIRS]),
    fan_in=st.sampled_from([2, 128]),
)
def test_components_are_those_of_a_plain_union_find(
    links: list[tuple[int, int]], part: int, max_links: int, fan_in: int
) -> None:
    previous_fan_in, sorted_pairs.FAN_IN = sorted_pairs.FAN_IN, fan_in
    try:
        assert _join_links(links, part=part, max_links=max_links) == _plain(links)
    finally:
        sorted_pairs.FAN_IN = previous_fan_in


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_long_chain_is_one_component(shuffled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """10^5 nodes, of whose links a tenth is held: a handful of rounds, not one for each link."""
    rounds = []
    of_roots = components._with_smallest
    monkeypatch.setattr(components, "_with_smallest", lambda links: rounds.append(1) or of_roots(links))
    order = np.random.default_rng(0).permutation(100_000) if shuffled else np.arange(100_000)
    links = np.stack([order[:-1], order[1:]], axis=1).astype(np.uint64)
    pairs = np.concatenate(list(components.components(np.array_split(links, 40), max_links=10_000)))
    assert pairs.tolist() == [[0, node] for node in range(100_000)]
    assert len(rounds) <= 6


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_star_larger_than_memory_is_one_component(shuffled: bool) -> None:
    leaves = np.arange(1, 20_001, dtype=np.uint64)
    if shuffled:  # its middle is not its root
        np.random.default_rng(0).shuffle(leaves)
        leaves = leaves[leaves != 7_000]
    hub = np.full_like(leaves, 7_000 if shuffled else 0)
    pairs = np.concatenate(list(components.components([np.stack([hub, leaves], axis=1)], max_links=2_000)))
    assert pairs[:, 1].tolist() == sorted([*leaves.tolist(), int(hub[0])])
    assert set(pairs[:, 0].tolist()) == {int(shuffled)}


def _generate_links(count: int, *, part: int = 1 << 12) -> Iterator[np.ndarray]:
    """Links as near-duplicates have them: some rows each, far from each other, each link several times."""
    rng = np.random.default_rng(0)
    for _ in range(0, count, part):
        rows = rng.integers(0, count // 2, part, dtype=np.uint64)
        links = np.stack([rows, rows - rows % np.uint64(3)], axis=1) * np.uint64(0x9E3779B97F4A7C15)
        yield links[links[:, 0] != links[:, 1]]


def _peak(count: int, *, max_links: int, folder: Path) -> tuple[int, int]:
    """The most bytes that were held while so many links were joined, and the nodes."""
    tracemalloc.start()
    try:
        nodes = sum(
            len(pairs)
            for pairs in components.components(_generate_links(count), max_links=max_links, folder=str(folder))
        )
        return tracemalloc.get_traced_memory()[1], nodes
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_links(tmp_path: Path) -> None:
    max_links = 1 << 13
    small, small_nodes = _peak(60_000, max_links=max_links, folder=tmp_path)
    large, large_nodes = _peak(240_000, max_links=max_links, folder=tmp_path)
    assert large_nodes > 3 * small_nodes
    assert large < 1.5 * small, (large, small)
    assert large < 400 * max_links
    assert not list(tmp_path.iterdir())


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(2, 30), max_size=15), max_nodes=st.integers(2, 25), parts=st.integers(1, 9))
def test_groups_are_whole_components(sizes: list[int], max_nodes: int, parts: int) -> None:
    roots = np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.stack([roots, np.arange(len(roots))], axis=1).astype(np.uint64)
    groups: dict[int, list[int]] = {}
    for number, nodes in components.grouped(np.array_split(pairs, parts), max_nodes=max_nodes):
        groups.setdefault(number, []).extend(nodes.tolist())
    assert list(groups) == list(range(len(groups)))
    assert [node for nodes in groups.values() for node in nodes] == list(range(len(roots)))
    of = [sorted({int(roots[node]) for node in nodes}) for nodes in groups.values()]
    for group, next_group in itertools.pairwise(of):
        assert sum(sizes[component] for component in [*group, next_group[0]]) > max_nodes  # as many as fit
        assert group[-1] < next_group[0]
    assert all(len(group) == 1 or sum(sizes[component] for component in group) <= max_nodes for group in of)


def test_labels_are_the_smallest_nodes() -> None:
    order = np.random.default_rng(0).permutation(5000)
    assert not components.labels(np.stack([order[:-1], order[1:]], axis=1), 5000).any()

import random
from typing import Any

import numpy as np
import pytest

from t5prep.preparation.near_duplicates import clusters, components, sketches
from t5prep.preparation.near_duplicates.sketches import Bands, Shingles, shingles

BANDS = sketches.choose_bands(112, 0.8)


def _shingles(sets: list[set[int]]) -> Shingles:
    begins = np.concatenate([[0], np.cumsum([len(shingle_set) for shingle_set in sets])]).astype(np.int64)
    return Shingles(np.array([element for shingle_set in sets for element in shingle_set], np.uint64), begins)


def _random_sets(count: int) -> list[set[int]]:
    rng = random.Random(1)
    return [{rng.getrandbits(64) for _ in range(40)} for _ in range(count)]


def _clustered(shingles: Shingles, **options: Any) -> np.ndarray:
    return clusters.clustered(shingles, clusters.sets(shingles), **options)


def test_similarity_is_that_of_pythons_sets() -> None:
    rng = random.Random(0)
    sets = [{rng.randrange(60) for _ in range(rng.randrange(1, 50))} for _ in range(30)]
    pairs = [(i, j) for i in range(30) for j in range(30)]
    expected = [len(sets[i] & sets[j]) / len(sets[i] | sets[j]) for i, j in pairs]
    assert clusters.similarity(clusters.sets(_shingles(sets)), np.array(pairs)).tolist() == expected


def test_similarity_of_more_than_is_looked_up_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = clusters.sets(_shingles([{1, 2, 3}, {2, 3, 4}, {9}]))
    pairs = np.array([(0, 1), (0, 2), (1, 1), (2, 0)])
    similarities = clusters.similarity(sets, pairs)
    monkeypatch.setattr(clusters, "_CHUNK", 2)
    assert clusters.similarity(sets, pairs).tolist() == similarities.tolist() == [0.5, 0, 1, 0]


def test_signatures_estimate_similarity() -> None:
    base = random.Random(2)
    common, first_extra, second_extra = ({base.getrandbits(64) for _ in range(n)} for n in (300, 100, 100))
    signatures = sketches.signatures(_shingles([common | first_extra, common | second_extra]), hashes=2000)
    assert (signatures[0::1, 0] == signatures[:, 1]).mean() == pytest.approx(0.6, abs=0.04)


def test_bands_keep_the_chance_at_the_threshold() -> None:
    for threshold in (0.5, 0.7, 0.8, 0.9):
        bands = sketches.choose_bands(128, threshold)
        assert bands.bands * bands.rows <= 128
        assert 1 - (1 - threshold**bands.rows) ** bands.bands >= 0.9
        assert 1 - (1 - threshold ** (bands.rows + 1)) ** (128 // (bands.rows + 1)) < 0.9


def _entries(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array([(value, node & 0xFFFFFFFF, node >> 32) for value, node in pairs], clusters.ENTRY)


def test_links_are_between_rows_that_share_a_value() -> None:
    node_offset = 1 << 32
    assert _linked([_entries((5, node_offset), (7, node_offset + 2)), _entries((5, 9), (6, 1), (7, 9))]) == [
        [[1 << 32, 9], [(1 << 32) + 2, 9]]
    ]
    assert _linked([_entries()]) == [[]]


def _linked(parts: list[np.ndarray], **options: int) -> list[list[list[int]]]:
    size = sum(part.nbytes for part in parts)
    return [links.tolist() for links in clusters.links(lambda: parts, **{"size": size, **options})]


def test_links_of_more_bands_than_are_held() -> None:
    parts = [_entries((5, row), (row % 2, row), (100 + row, row)) for row in range(40)]
    range_bytes = 5 * parts[0].nbytes
    for size, least in (
        (range_bytes, 2),
        (40 * parts[0].nbytes, 7),
    ):  # of one range, and of one that is looked at eight times
        link_batches = _linked(parts, size=size, range_bytes=range_bytes)
        assert len(link_batches) > least
        assert set(components.labels(np.concatenate([links for links in link_batches if links]), 40).tolist()) == {0}
        assert all(len(links) < 40 for links in link_batches)


def test_a_chain_of_similar_texts_is_one_cluster() -> None:
    words = [f"w{i}" for i in range(300)]
    texts = [" ".join(words[shift : shift + 250]) for shift in (0, 12, 24, 36)]
    labels = _clustered(shingles(texts, words=5), bands=BANDS, threshold=0.85)
    sets = clusters.sets(shingles(texts, words=5))
    assert clusters.similarity(sets, np.array([(0, 1), (0, 3)])).round(2).tolist() == [0.91, 0.74]
    assert labels.tolist() == [0, 0, 0, 0]


def test_no_pair_below_the_threshold_is_linked_whatever_bands_say() -> None:
    full_set = set(range(100))
    labels = _clustered(_shingles([full_set, full_set - set(range(25))]), bands=Bands(100, 1), threshold=0.8)
    assert labels.tolist() == [0, 1]


def test_equal_texts_are_one_cluster_and_others_stand_alone() -> None:
    repeated_set, *other_sets = _random_sets(5)
    labels = _clustered(_shingles([repeated_set, *other_sets, repeated_set, other_sets[0]]), bands=BANDS, threshold=0.8)
    assert labels.tolist() == [0, 1, 2, 3, 4, 0, 1]


def test_a_corpus_of_one_template_is_compared_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 texts share half of their shingles: nearly every pair shares a band of one hash, and none is similar enough."""
    common = set(range(1, 40))
    texts = [common | random_set for random_set in _random_sets(500)]
    compared = []
    exactly = clusters.similarity

    def count_pairs(sets: clusters.Sets, pairs: np.ndarray) -> np.ndarray:
        compared.append(len(pairs))
        return exactly(sets, pairs)

    monkeypatch.setattr(clusters, "similarity", count_pairs)
    monkeypatch.setattr(clusters, "WINDOW", 4)
    labels = _clustered(_shingles(texts), bands=Bands(20, 1), threshold=0.9)
    assert labels.tolist() == list(range(500))
    assert sum(compared) <= 500 * 20 * 4


def test_sets_are_taken_in_another_order() -> None:
    rng = random.Random(4)
    sets = [{rng.randrange(90) for _ in range(rng.randrange(1, 30))} for _ in range(20)]
    order = np.array([7, 3, 3, 19, 0])
    reordered_sets, expected = (
        clusters.sets(_shingles(sets)).take(order),
        clusters.sets(_shingles([sets[i] for i in order])),
    )
    assert reordered_sets.sizes.tolist() == expected.sizes.tolist()
    assert reordered_sets.contents().tolist() == expected.contents().tolist()
    pairs = np.array([(i, j) for i in range(5) for j in range(5)])
    assert clusters.similarity(reordered_sets, pairs).tolist() == clusters.similarity(expected, pairs).tolist()

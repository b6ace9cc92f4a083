"""Make clusters of candidates: verify the pairs that share a band, and connect the verified pairs."""

from collections.abc import Iterator

import numpy as np

from t5prep.prepare.near_duplicates import components, jaccard, minhash
from t5prep.prepare.near_duplicates.jaccard import Sets
from t5prep.prepare.near_duplicates.minhash import Bands
from t5prep.prepare.near_duplicates.shingles import Shingles

# In a band that more rows share than this, each is compared with so many next to it: the work stays linear where a
# whole corpus is one template. Rows of one cluster share many bands, so that few of its pairs have to be compared.
WINDOW = 32


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
        parent = components.labels(linked, len(parent))
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
    alike[alike] = jaccard.similarity(sets, pairs[alike]) >= threshold
    return alike

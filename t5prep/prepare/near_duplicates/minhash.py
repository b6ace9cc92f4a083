"""Compute MinHash signatures of sets of shingles, and the values of LSH bands from signatures."""

from typing import NamedTuple

import numpy as np

from t5prep.prepare.near_duplicates.shingles import Shingles, mix, odd_numbers

# The chance that two texts of exactly the threshold's similarity share a band is at least this.
LEAST_RECALL = 0.9


class Bands(NamedTuple):
    """How hashes are grouped: `bands` groups of `rows` hashes; texts that agree in a whole group are compared."""

    bands: int
    rows: int


def choose_bands(hashes: int, threshold: float) -> Bands:
    """Return the most rows in a band with which texts at the threshold are found with a chance of LEAST_RECALL.

    More rows make fewer false candidates, and those cost only time because each pair is verified. 112 hashes and 0.8 give
    the 14 bands of 8 that FineWeb uses (Penedo et al. 2024, https://arxiv.org/abs/2406.17557).

    >>> choose_bands(112, 0.8), choose_bands(16, 0.5)
    (Bands(bands=14, rows=8), Bands(bands=16, rows=1))
    """
    rows = max(
        (rows for rows in range(1, hashes + 1) if _recall(hashes // rows, rows, threshold) >= LEAST_RECALL), default=1
    )
    return Bands(hashes // rows, rows)


def _recall(bands: int, rows: int, similarity: float) -> float:
    """Return the chance that texts of a similarity share a band (Leskovec et al., Mining of Massive Datasets, 3.4.2)."""
    return 1 - (1 - similarity**rows) ** bands


def signatures(shingles: Shingles, *, hashes: int) -> np.ndarray:
    """Return `uint32[hashes, texts]`: the smallest of each text's shingles under each of so many hash functions.

    Two texts agree in one of them with the probability of their Jaccard similarity (Broder 1997). Every text must have a
    shingle.
    """
    narrow = (shingles.hashes >> np.uint64(32)).astype(np.uint32) ^ shingles.hashes.astype(np.uint32)
    factors, salts = odd_numbers(hashes, stream=2).astype(np.uint32), odd_numbers(hashes, stream=3)
    salts = (salts >> np.uint64(32)).astype(np.uint32)
    smallest = np.empty((hashes, len(shingles.begins) - 1), np.uint32)
    hashed = np.empty_like(narrow)
    for number in range(hashes if smallest.shape[1] else 0):
        np.bitwise_xor(narrow, salts[number], out=hashed)
        np.multiply(hashed, factors[number], out=hashed)
        np.minimum.reduceat(hashed, shingles.begins[:-1], out=smallest[number])
    return smallest


def band_values(signatures: np.ndarray, *, bands: Bands) -> np.ndarray:
    """Return `uint64[texts, bands]`: equal in a column for texts whose signatures agree in the whole band."""
    used = signatures[: bands.bands * bands.rows].reshape(bands.bands, bands.rows, -1)
    factors = odd_numbers(bands.rows, stream=4)
    salts = odd_numbers(bands.bands, stream=5)
    total = np.repeat(salts[:, None], used.shape[2], axis=1)
    for row in range(bands.rows):
        total = mix(total + used[:, row].astype(np.uint64) * factors[row])
    return np.ascontiguousarray(total.T)

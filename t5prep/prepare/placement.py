"""Compute the split, the shard and the position of an example from one keyed hash of its id.

The order of a split is the order of its digests, and its shards are equal ranges of that order, so the same examples
give the same bytes from any runner, any number of workers, any order of the rows and any restart.
"""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

# The first eight bytes draw the split, the other sixteen are the position: two thirds are enough for 10^18 ids.
DIGEST_BYTES = 24
POSITION = np.dtype([("high", ">u8"), ("low", ">u8")])


def digests(ids: Iterable[str], *, seed: int) -> np.ndarray:
    """Return keyed digests of ids, as `uint8[len(ids), 24]`. blake2b because it is keyed, fast and in every Python.

    >>> digests(["a", "b"], seed=0)[:, :2].tolist()
    [[238, 130], [61, 114]]
    """
    key = seed.to_bytes(8, "big", signed=True)
    new = hashlib.blake2b
    joined = b"".join(new(i.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, key=key).digest() for i in ids)
    return np.frombuffer(joined, np.uint8).reshape(-1, DIGEST_BYTES)


def positions(digest: np.ndarray) -> np.ndarray:
    """Return the position part of digests, as `POSITION[n]`: two big-endian halves that sort as the bytes do."""
    return np.ascontiguousarray(digest[:, 8:]).view(POSITION).reshape(-1)


def draw_splits(digest: np.ndarray, *, shares: Mapping[str, float]) -> np.ndarray:
    """Return the index of each digest's split in `shares`, as `int64[n]`; shares add up to 1."""
    edges = np.cumsum(list(shares.values()))
    return np.minimum(np.searchsorted(edges, uniform(digest), side="right"), len(edges) - 1)


def uniform(digest: np.ndarray) -> np.ndarray:
    """Return the part of digests that draws the split, as `float64[n]` in 0..1."""
    return np.ascontiguousarray(digest[:, :8]).view(">u8").reshape(-1).astype(np.float64) / 2.0**64


def shard_edges(shards: int) -> list[int]:
    """Return the begins and the end of a split's shards, as high halves of positions: `shards` equal ranges of 2^64.

    >>> [hex(edge) for edge in shard_edges(4)][:3]
    ['0x0', '0x4000000000000000', '0x8000000000000000']
    """
    return [shard_edge(shard, shards) for shard in range(shards + 1)]


def shard_edge(shard: int, shards: int) -> int:
    """Return where one of a split's shards begins.

    >>> hex(shard_edge(1, 4))
    '0x4000000000000000'
    """
    return (shard << 64) // shards

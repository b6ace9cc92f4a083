"""Compute the split, the shard and the position of an example from a keyed hash of its id, or of its group.

A split is ordered by these digests, and its shards are equal ranges of that order. So the same examples produce the
same bytes with any runner, number of workers, order of rows, and after any restart.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from t5prep.dataset.settings import Settings

# The first 8 bytes draw the split, and the other 16 are the position. Two of 10^18 ids share a position with a
# probability of 0.15 %.
DIGEST_BYTES = 24
POSITION = np.dtype([("high", ">u8"), ("low", ">u8")])


def digests(ids: Iterable[str], *, seed: int) -> np.ndarray:
    """Return keyed digests of ids, `uint8[len(ids), 24]`. BLAKE2b is keyed, fast, and part of every Python.

    >>> digests(["a", "b"], seed=0)[:, :2].tolist()
    [[238, 130], [61, 114]]
    """
    key = seed.to_bytes(8, "big", signed=True)
    new = hashlib.blake2b
    joined = b"".join(new(i.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, key=key).digest() for i in ids)
    return np.frombuffer(joined, np.uint8).reshape(-1, DIGEST_BYTES)


def positions(digest: np.ndarray) -> np.ndarray:
    """Return the positions in digests, `POSITION[n]`: two big-endian halves, which sort as the bytes do."""
    return np.ascontiguousarray(digest[:, 8:]).view(POSITION).reshape(-1)


def draw_splits(digest: np.ndarray, *, shares: Mapping[str, float]) -> np.ndarray:
    """Return the index in `shares` of the split of each digest, `int64[n]`. Shares add up to 1."""
    edges = np.cumsum(list(shares.values()))
    # Rounding may leave the last edge below 1: the minimum assigns digests above it to the last split.
    return np.minimum(np.searchsorted(edges, uniform(digest), side="right"), len(edges) - 1)


def uniform(digest: np.ndarray) -> np.ndarray:
    """Return the part of digests that draws the split, as `float64[n]` in [0, 1]."""
    return drawing(digest).astype(np.float64) / 2.0**64


def drawing(digest: np.ndarray) -> np.ndarray:
    """Return the part of digests that draws the split, as big-endian `uint64[n]`."""
    return np.ascontiguousarray(digest[:, :8]).view(">u8").reshape(-1)


def shard_edges(shards: int) -> list[int]:
    """Return the begin of each shard of a split, and the end of the last: the high halves of positions in equal ranges of 2^64.

    >>> [hex(edge) for edge in shard_edges(4)][:3]
    ['0x0', '0x4000000000000000', '0x8000000000000000']
    """
    return [shard_edge(shard, shards) for shard in range(shards + 1)]


def shard_edge(shard: int, shards: int) -> int:
    """Return the first position (its high half) of a split's shard.

    >>> hex(shard_edge(1, 4))
    '0x4000000000000000'
    """
    return (shard << 64) // shards


class SplitDraw:
    """Draw the split of each row. `own_splits` maps a file's name to its split, if the source's files are splits."""

    def __init__(self, settings: Settings, *, own_splits: Mapping[str, str]) -> None:
        self._settings, self._own_splits = settings, own_splits

    def shares(self, file: str) -> dict[str, float]:
        """Return the shares by which rows of a file are drawn; a single share of 1 if all go to one split."""
        settings = self._settings
        file_split = self._own_splits.get(file, "" if settings.splits else "train")
        # With --held-out, rows of train become validation, unless the source has validation files.
        if file_split == "train" and settings.held_out is not None and "validation" not in self._own_splits.values():
            return {"validation": settings.held_out, "train": 1 - settings.held_out}
        return {file_split: 1.0} if file_split else dict(settings.splits or {})

    def keys(self, table: pa.Table, digests: np.ndarray, *, file: str) -> np.ndarray:
        """Return the digests that draw the splits of rows: of a row's group if it has one, otherwise of its id."""
        if len(self.shares(file)) > 1 and self._settings.group_column:
            return by_group(table["group"].to_pylist(), digests, seed=self._settings.seed)
        return digests

    def __call__(self, table: pa.Table, digests: np.ndarray, *, file: str) -> tuple[list[str], np.ndarray]:
        """Return the sorted names of all possible splits, and the index of each row's split in them, `int64[rows]`.

        `table` has the rows of a file (block_tokenizer.SCHEMA), `digests` are those of their ids, `uint8[rows, 24]`.
        A split that the task or a column set for a row replaces the drawn one.
        """
        shares = self.shares(file)
        share_indices = draw_splits(self.keys(table, digests, file=file), shares=shares)
        row_splits = table["split"].to_pylist()
        names = sorted({*shares, *row_splits} - {None, ""})
        rank = {name: i for i, name in enumerate(names)}
        of = np.array([rank[name] for name in shares])[share_indices]
        if table["split"].null_count < len(row_splits):
            of = np.array(
                [
                    rank[name] if name else split_number
                    for name, split_number in zip(row_splits, of.tolist(), strict=True)
                ],
                np.int64,
            )
        return names, of


def by_group(groups: Sequence[str | None], row_digests: np.ndarray, *, seed: int) -> np.ndarray:
    """Return the digests that draw splits: of each row's group, or its own in `row_digests` if it has no group."""
    grouped_rows = [i for i, group in enumerate(groups) if group]
    if not grouped_rows:
        return row_digests
    mixed = row_digests.copy()
    mixed[grouped_rows] = digests([groups[i] or "" for i in grouped_rows], seed=seed)
    return mixed

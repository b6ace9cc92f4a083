"""Choose the rows to drop: each cluster keeps one row, by a rule that does not depend on the order of the rows."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from t5prep.dataset.manifest import Cluster
from t5prep.prepare.near_duplicates import clusters
from t5prep.prepare.near_duplicates.clusters import Sets
from t5prep.prepare.near_duplicates.minhash import Bands
from t5prep.prepare.near_duplicates.sketch import of_lists

# One dropped row: its split, position and place, and the row that is kept instead of it.
DROPPED = pa.schema(
    [
        ("split", pa.string()),
        ("high", pa.uint64()),
        ("low", pa.uint64()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("kept_file", pa.string()),
        ("kept_row", pa.int64()),
        ("kept_id", pa.string()),
        ("similarity", pa.float64()),
    ]
)
# Instead of a split: a row of an earlier dataset, which repeats nothing here and is kept before all others.
EARLIER = ""
# So many clusters are named, the largest first.
NAMED = 10


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Rows to drop (DROPPED) and what was counted: clusters, rows in another split than the kept one, the largest."""

    dropped: pa.Table
    clusters: int = 0
    across_splits: int = 0
    largest: tuple[Cluster, ...] = ()

    def slice(self, split: str, begin: int, end: int) -> "Repeats":
        """Return those of a split whose positions are in a range, without the counts. The table must be sorted."""
        high = self.dropped["high"].to_numpy()
        own = (self.dropped["split"].to_numpy(zero_copy_only=False) == split) & (high >= np.uint64(begin))
        own &= high <= np.uint64(end - 1)
        return Repeats(self.dropped.filter(pa.array(own)))

    def merge(self, other: "Repeats") -> "Repeats":
        """Return the counts of both together, without their rows."""
        largest = sorted([*self.largest, *other.largest], key=lambda one: (-one.rows, one.file, one.row))
        return Repeats(
            DROPPED.empty_table(),
            self.clusters + other.clusters,
            self.across_splits + other.across_splits,
            tuple(largest[:NAMED]),
        )


def none() -> Repeats:
    """Return no repeats."""
    return Repeats(DROPPED.empty_table())


def together(parts: Iterable[Repeats]) -> Repeats:
    """Return the rows of several parts together, without their counts."""
    return Repeats(pa.concat_tables([DROPPED.empty_table(), *(part.dropped for part in parts)]))


def precedence(split: str) -> int:
    """Return which split keeps a text that two have, the smallest first: test, validation, any other, train.

    >>> sorted(["train", "dev", "validation", "test"], key=precedence)
    ['test', 'validation', 'dev', 'train']
    """
    return {EARLIER: -1, "test": 0, "validation": 1, "train": 3}.get(split, 2)


def find(
    pieces: Sequence[tuple[str, pa.Table]],
    *,
    bands: Bands,
    threshold: float,
    drawn: bool,
    window: int = clusters.WINDOW,
) -> Repeats:
    """Return the repeats among rows, each of `pieces` a file's name and rows of it (ROWS).

    Kept is the row with the most different shingles, of those the first by a digest of them, then by the id's digest,
    then by place. Where splits are not `drawn` from ids but are the source's own, evaluation keeps a row before all
    that, and a row of an earlier dataset is kept before any other and never dropped. Rows with the id of the kept one
    are not repeats here, unless that is an earlier one: they are the same example, or its other answers.
    """
    table = pa.concat_tables(
        [rows.append_column("file", pa.array([file] * len(rows), pa.string())) for file, rows in pieces]
    )
    shingles = of_lists(table["shingles"])
    if len(table) < 2:
        return none()
    sets = clusters.sets(shingles)
    order = _preferred(table, sets, drawn=drawn)
    table, sets = table.take(pa.array(order)), sets.take(order)
    first = clusters.clustered(of_lists(table["shingles"]), sets, bands=bands, threshold=threshold, window=window)
    id, split = (table[name].to_numpy(zero_copy_only=False) for name in ("id", "split"))
    others = (first != np.arange(len(first))) & ((id[first] != id) | (split[first] == EARLIER))
    repeated = np.flatnonzero(others & (split != EARLIER))
    kept = first[repeated]
    dropped, instead = table.take(pa.array(repeated)), table.take(pa.array(kept))
    similarity = clusters.similarity(sets, np.stack([kept, repeated], axis=1))
    columns = [dropped[name] for name in ("split", "high", "low", "file", "row")]
    columns += [instead[name] for name in ("file", "row", "id")]
    rows = pa.table([*columns, pa.array(similarity)], schema=DROPPED)
    return Repeats(
        rows.sort_by([(name, "ascending") for name in ("split", "high", "low", "file", "row")]),
        len(np.unique(kept)),
        int(((split[repeated] != split[kept]) & (split[kept] != EARLIER)).sum()),
        _largest(table, kept),
    )


def _preferred(table: pa.Table, sets: Sets, *, drawn: bool) -> np.ndarray:
    """Return the numbers of rows in the order in which they would be kept."""
    place = np.lexsort((table["row"].to_numpy(), table["file"].to_numpy(zero_copy_only=False).astype(str)))
    tie = np.empty(len(table), np.int64)
    tie[place] = np.arange(len(table))
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    splits = table["split"].to_pylist()
    rank = np.array([-(split == EARLIER) if drawn else precedence(split) for split in splits])
    return np.lexsort((tie, low, high, sets.contents(), -sets.sizes, rank))


def _largest(table: pa.Table, kept: np.ndarray) -> tuple[Cluster, ...]:
    """Return the clusters with the most rows, given the kept row's number for each dropped one."""
    rows, repeats = np.unique(kept, return_counts=True)
    named = np.lexsort((rows, -repeats))[:NAMED]
    rows_named = table.select(["id", "file", "row"]).take(pa.array(rows[named])).to_pylist()
    return tuple(Cluster(int(n) + 1, **row) for n, row in zip(repeats[named], rows_named, strict=True))

"""Describe near-duplicates in the manifest."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Name rows that are nearly the same text by the one that was kept: its id, its file, its row; `rows` counts it too."""

    rows: int
    id: str
    file: str
    row: int


@dataclasses.dataclass(frozen=True)
class NearDuplicates:
    """Say what the search for near-duplicates found: clusters, the largest of them, and leaks.

    `across_splits` counts the rows left out that would have stood in another split than the row that was kept.
    """

    clusters: int
    across_splits: int
    largest: list[Cluster]

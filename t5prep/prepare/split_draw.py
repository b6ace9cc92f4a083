"""Decide the split of each row: by its task, else by its file, else drawn from its id or from its group."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from t5prep.dataset.settings import Settings
from t5prep.prepare import placement


class SplitDraw:
    """Decide the splits of one preparation's rows. `own_splits` maps a file's name to its split where files are splits."""

    def __init__(self, settings: Settings, *, own_splits: Mapping[str, str]) -> None:
        self._settings, self._own_splits = settings, own_splits

    def shares(self, file: str) -> dict[str, float]:
        """Return the shares by which the rows of a file are drawn; one alone where all go to one split."""
        settings = self._settings
        own = self._own_splits.get(file, "" if settings.splits else "train")
        if own == "train" and settings.held_out is not None and "validation" not in self._own_splits.values():
            return {"validation": settings.held_out, "train": 1 - settings.held_out}
        return {own: 1.0} if own else dict(settings.splits or {})

    def __call__(self, table: pa.Table, digests: np.ndarray, *, file: str) -> tuple[list[str], np.ndarray]:
        """Return the sorted names of splits, and the number of each row's: int64[rows].

        `table` has the rows of a file (feature_table.SCHEMA), `digests` are those of their ids: uint8[rows, 24].
        """
        shares = self.shares(file)
        drawn = list(shares)
        if len(drawn) > 1 and self._settings.group_column:
            digests = by_group(table["group"].to_pylist(), digests, seed=self._settings.seed)
        which = placement.draw_splits(digests, shares=shares)
        task_splits = table["split"].to_pylist()
        of = [own or drawn[i] for own, i in zip(task_splits, which.tolist(), strict=True)]
        names = sorted(set(of))
        rank = {name: i for i, name in enumerate(names)}
        return names, np.fromiter((rank[name] for name in of), np.int64, len(of))


def by_group(groups: Sequence[str | None], digests: np.ndarray, *, seed: int) -> np.ndarray:
    """Return the digests by which splits are drawn: of a row's group, or its own where it has no group."""
    named = [i for i, group in enumerate(groups) if group]
    if not named:
        return digests
    mixed = digests.copy()
    mixed[named] = placement.digests([groups[i] or "" for i in named], seed=seed)
    return mixed

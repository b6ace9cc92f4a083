from pathlib import Path

import numpy as np
import pytest

from t5prep.preparation import sorted_pairs
from t5prep.preparation.sorted_pairs import SortedPairs


def test_pairs_in_files_are_sorted_and_each_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_pairs, "FAN_IN", 3)
    pairs = np.random.default_rng(0).integers(0, 40, (2000, 2)).astype(np.uint64)
    pair_store = SortedPairs(tmp_path / "pairs", max_pairs=50)
    for part in np.array_split(pairs, 90):
        pair_store.add(part)
    assert np.concatenate(list(pair_store.all())).tolist() == np.unique(pairs, axis=0).tolist()
    pair_store.clear()
    assert list(pair_store.all()) == []

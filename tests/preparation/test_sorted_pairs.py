from pathlib import Path

import numpy as np
import pytest

from t5prep.preparation import sorted_pairs
from t5prep.preparation.sorted_pairs import SortedPairs


def test_pairs_in_files_are_sorted_and_each_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_pairs, "FAN_IN", 3)
    pairs = np.random.default_rng(0).integers(0, 40, (2000, 2)).astype(np.uint64)
    kept = SortedPairs(tmp_path / "pairs", max_pairs=50)
    for part in np.array_split(pairs, 90):
        kept.add(part)
    assert np.concatenate(list(kept.all())).tolist() == np.unique(pairs, axis=0).tolist()
    kept.clear()
    assert list(kept.all()) == []

"""How many spills are left: fewer where each shard would read very little of each."""

from pathlib import Path

import pytest
from small_corpora import prepared, questions, write_csv

from pipelines import sorting
from pipelines.sorting import FEW_SPILLS, MOST_SPILLS, SLICE_BYTES
from t5prep.preparation import shards


@pytest.mark.parametrize(
    ("size", "shards", "fan_in", "expected_spills"),
    [
        (0, 4, 512, FEW_SPILLS),
        (4 * 100 * SLICE_BYTES, 4, 512, 100),
        (1 << 40, 4, 512, MOST_SPILLS),
        (1 << 40, 4, 16, 16),
        (1 << 30, 1 << 14, 512, FEW_SPILLS),
    ],
)
def test_a_slice_of_a_spill_is_worth_a_read(size: int, shards: int, fan_in: int, expected_spills: int) -> None:
    assert sorting.most_spills(size, shards=shards, fan_in=fan_in) == expected_spills


def test_shards_are_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, planned = shards.plan_shards, list[int]()
    monkeypatch.setattr(
        shards, "plan_shards", lambda *arguments, **options: planned.append(1) or plan(*arguments, **options)
    )
    prepared(write_csv(tmp_path / "rows.csv", questions(9)), tmp_path / "out", tokenizer="sample:", shards=2)
    assert planned == [1]

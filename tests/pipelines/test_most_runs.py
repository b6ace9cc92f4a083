"""How many sorted runs are left: fewer where each shard would read very little of each."""

from pathlib import Path

import pytest
from preparing import prepared, questions, write_csv

from pipelines import gather
from pipelines.gather import FEW_RUNS, MOST_RUNS, SLICE_BYTES
from t5prep.prepare import shard_plan


@pytest.mark.parametrize(
    ("size", "shards", "fan_in", "left"),
    [
        (0, 4, 512, FEW_RUNS),
        (4 * 100 * SLICE_BYTES, 4, 512, 100),
        (1 << 40, 4, 512, MOST_RUNS),
        (1 << 40, 4, 16, 16),
        (1 << 30, 1 << 14, 512, FEW_RUNS),
    ],
)
def test_a_slice_of_a_run_is_worth_a_read(size: int, shards: int, fan_in: int, left: int) -> None:
    assert gather.most_runs(size, shards=shards, fan_in=fan_in) == left


def test_shards_are_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, planned = shard_plan.plan_shards, list[int]()
    monkeypatch.setattr(shard_plan, "plan_shards", lambda *what, **how: planned.append(1) or plan(*what, **how))
    prepared(write_csv(tmp_path / "rows.csv", questions(9)), tmp_path / "out", tokenizer="sample:", shards=2)
    assert planned == [1]

"""How many sorted runs are left: fewer where each shard would read very little of each."""

from types import SimpleNamespace

import pytest

from pipelines import gather
from pipelines.gather import FEW_RUNS, MOST_RUNS, SLICE_BYTES, Gathering


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
def test_a_slice_of_a_run_is_worth_a_read(monkeypatch, tmp_path, size, shards, fan_in, left):
    settings = SimpleNamespace(shards=shards, drawn_by_id=True)
    work = SimpleNamespace(spool=str(tmp_path), job=SimpleNamespace(settings=settings))
    monkeypatch.setattr(gather.pool, "window", lambda *_: None)
    gathering = Gathering(SimpleNamespace(work=work), "", fan_in=fan_in)  # type: ignore[arg-type]
    gathering._totals.records["train"], gathering._totals.sizes["train"] = 1 << 20, size
    assert gathering._most_runs() == left

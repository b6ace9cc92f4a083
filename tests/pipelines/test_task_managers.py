"""Four task managers of Flink make the bytes of a run here, and each does about a quarter of the work.

With what each of them did, by hand: python tests/pipelines/test_task_managers.py
"""

import functools
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by hand

from servers.flink import cluster
from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines import prepare as preparing
from t5prep.preparation.memory_budget import Budget
from t5prep.sources import sample

ROWS = 2400
# A block of about two rows: there must be many of them to tell who had how many.
BLOCK_BYTES = 600
CHOICES: dict[str, Any] = {"tokenizer": sample.tokenizer_path(), "shards": 256, "input_length": 32}


def spread(source: Path, out: Path, *, task_managers: int) -> dict[str, list[int]]:
    """Prepare rows by so many task managers of one slot each; return the elements that each of them handled in each step."""
    with cluster(out.with_name(f"{out.name}-flink"), task_managers=task_managers, slots=1) as flink:
        arguments = [*flink.arguments, "--sdk_worker_parallelism=1"]
        prepared(source, out, runner="flink", workers=task_managers, arguments=arguments, **CHOICES)
        return flink.elements()


def compared(folder: Path) -> dict[str, list[int]]:
    """Return what each of four task managers handled, by step; raise AssertionError where their bytes are not a local run's."""
    source = write_csv(folder / "rows.csv", questions(ROWS))
    counts = spread(source, folder / "four", task_managers=4)
    prepared(source, folder / "here", **CHOICES)
    assert bytes_of(folder / "four") == bytes_of(folder / "here")
    return {name: values for name, values in counts.items() if len(values) == 4}


@pytest.mark.extra("flink")
@pytest.mark.slow
def test_four_task_managers_share_the_work_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one file are prepared by all of them. The hash of a shard's name decides who writes it: many are even."""
    monkeypatch.setattr(preparing, "_run", functools.partial(preparing._run, shared=Budget(1, BLOCK_BYTES)))
    counts = compared(tmp_path)
    blocks = max((numbers for name, numbers in counts.items() if "PrepareBlocks" in name), key=sum)
    shards = next(numbers for name, numbers in counts.items() if "{WriteShards" in name)
    assert sum(blocks) / 4 > ROWS / 10
    for numbers in (blocks, shards):
        mean = sum(numbers) / 4
        assert max(abs(number - mean) for number in numbers) <= 0.2 * mean, counts


if __name__ == "__main__":
    preparing._run = functools.partial(preparing._run, shared=Budget(1, BLOCK_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        for step, values in compared(Path(folder)).items():
            print(values, step[:100])

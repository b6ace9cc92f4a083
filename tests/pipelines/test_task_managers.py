"""Four task managers of Flink make the bytes of one, and each does about a quarter of the work.

With what each of them did, by hand: python tests/pipelines/test_task_managers.py
"""

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from preparing import bytes_of, prepared, questions, require, write_csv
from servers.flink import cluster

from pipelines import prepare as preparing
from t5prep.prepare.memory_budget import Budget
from t5prep.sources import sample

ROWS = 2400
# A block of about two rows. There must be many shards, because the hash of its name gives each of them to a task manager.
BLOCK_BYTES = 600
SHARDS = 512


def spread(source: Path, out: Path, *, task_managers: int) -> dict[str, list[int]]:
    """Prepare rows by so many task managers of one slot each; return the elements that each of them handled in each step."""
    with cluster(out.with_name(f"{out.name}-flink"), task_managers=task_managers, slots=1) as flink:
        arguments = [*flink.arguments, "--sdk_worker_parallelism=1"]
        choices = {"tokenizer": sample.tokenizer_path(), "shards": SHARDS, "input_length": 32}
        prepared(source, out, runner="flink", workers=task_managers, arguments=arguments, **choices)
        return flink.elements()


def compared(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the steps in which four task managers had many elements; raise AssertionError where their bytes differ."""
    source = write_csv(folder / "rows.csv", questions(ROWS))
    spread(source, folder / "one", task_managers=1)
    counts = spread(source, folder / "four", task_managers=4)
    assert bytes_of(folder / "four") == bytes_of(folder / "one")
    yield from ((name, each) for name, each in counts.items() if len(each) == 4)


@pytest.mark.slow
def test_four_task_managers_share_the_work_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("flink")
    monkeypatch.setattr(preparing, "_run", functools.partial(preparing._run, shared=Budget(1, BLOCK_BYTES)))
    counts = dict(compared(tmp_path))
    for step in ("PrepareBlocks", "{WriteShards"):  # to read and tokenize blocks, and to write shards
        (each,) = (numbers for name, numbers in counts.items() if step in name and sum(numbers) > SHARDS)
        assert max(each) <= 1.2 * sum(each) / 4, step
        assert min(each) >= 0.8 * sum(each) / 4, step


if __name__ == "__main__":
    preparing._run = functools.partial(preparing._run, shared=Budget(1, BLOCK_BYTES))
    with tempfile.TemporaryDirectory() as place:
        for step, each in compared(Path(place)):
            print(each, step[:100])

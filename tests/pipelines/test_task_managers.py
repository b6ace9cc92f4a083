"""Four task managers of Flink make the bytes of a run here: each does about a quarter of the work, and one of them is lost.

With what each of them did, by hand: python tests/pipelines/test_task_managers.py
"""

import functools
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by hand

from servers.flink import Cluster, cluster
from servers.gcs_emulator import Front, StorageRequest
from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines import prepare
from t5prep.io import gcs
from t5prep.preparation.memory_budget import Budget
from t5prep.sources import sample

ROWS = 2400
# A block of about two rows: there must be many of them to tell who had how many.
BLOCK_BYTES = 600
CHOICES: dict[str, Any] = {"tokenizer": sample.tokenizer_path(), "shards": 256, "input_length": 32}
TASK_MANAGERS = 4


def compared(folder: Path, flink: Cluster) -> dict[str, list[int]]:
    """Return what each of four task managers handled, by step; raise AssertionError where their bytes are not a local run's."""
    source = write_csv(folder / "rows.csv", questions(ROWS))
    arguments = [*flink.arguments, "--sdk_worker_parallelism=1"]
    prepared(source, folder / "four", runner="flink", workers=TASK_MANAGERS, arguments=arguments, **CHOICES)
    counts = flink.elements()
    prepared(source, folder / "here", **CHOICES)
    assert bytes_of(folder / "four") == bytes_of(folder / "here")
    return {name: values for name, values in counts.items() if len(values) == TASK_MANAGERS}


@pytest.mark.extra("flink", "fake-gcs-server")
@pytest.mark.slow
def test_task_managers_share_the_work_evenly_and_one_is_lost(
    tmp_path: Path, bucket: str, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one cluster, because its six processes take longest to start."""
    monkeypatch.setattr(prepare, "_run", functools.partial(prepare._run, shared=Budget(1, BLOCK_BYTES)))
    with cluster(tmp_path / "flink", task_managers=TASK_MANAGERS, slots=1) as flink:
        check_shares(compared(tmp_path, flink))
        check_a_loss(tmp_path / "lost", flink, bucket, front)


def check_shares(counts: dict[str, list[int]]) -> None:
    """The blocks of one file are prepared by all of them. The hash of a shard's name decides who writes it: many are even."""
    blocks = max((numbers for name, numbers in counts.items() if "PrepareBlocks" in name), key=sum)
    shards = next(numbers for name, numbers in counts.items() if "{WriteShards" in name)
    assert sum(blocks) / 4 > ROWS / 10
    for numbers in (blocks, shards):
        mean = sum(numbers) / 4
        assert max(abs(number - mean) for number in numbers) <= 0.2 * mean, counts


def check_a_loss(folder: Path, flink: Cluster, bucket: str, front: Front) -> None:
    """The bucket holds the request for a later shard back until one that is at work has been killed."""
    folder.mkdir()
    source, options = write_csv(folder / "rows.csv", questions(120)), {**CHOICES, "shards": 3}
    prepared(source, folder / "here", **options)
    expected = bytes_of(folder / "here")
    written: list[str] = []
    once = threading.Lock()

    def lose(request: StorageRequest) -> str:
        with once:
            existing_shards = [name for name in front.written_names() if ".tfrecord-" in name]
            if request.kind in ("begin", "multipart") and existing_shards and not flink.lost_manager:
                flink.lose_one_at_work()
                written.extend(existing_shards)
        return ""

    front.fault = lose
    prepared(source, f"{bucket}/data", runner="flink", workers=2, arguments=flink.arguments, **options)
    assert flink.lost_manager
    assert flink.attempts() > 1
    assert len(written) < len([name for name in expected if ".tfrecord-" in name])
    assert {manager["id"] for manager in flink.ask("taskmanagers")["taskmanagers"]} == {
        name for name in flink.task_managers if name != flink.lost_manager
    }
    assert {name: gcs.read(f"{bucket}/data/{name}") for name in gcs.objects(f"{bucket}/data")} == expected


if __name__ == "__main__":
    prepare._run = functools.partial(prepare._run, shared=Budget(1, BLOCK_BYTES))
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder, "flink"), task_managers=4, slots=1) as started:
        for step, values in compared(Path(folder), started).items():
            print(values, step[:100])

"""The reader on gs://, in a process of its own with faults, by the requests that a TPU host makes."""

import json
import random

import pytest
from servers.gcs_emulator import every
from toy_dataset import write

from t5prep.dataset.upload import upload
from t5prep.io import gcs

pytest.importorskip("tensorflow", reason="needs the extra train")

COUNTS = [40, 43, 37, 41, 44, 39, 42, 38]
READ = """
import json, sys
from t5prep.io import gcs
from t5prep.train.data import eval_batches, opening, train_batches
from t5prep.errors import T5prepError
def ids(batches):
    return [[i.decode() for i in batch["id"].tolist()] for batch in batches]
def read(data, eval=None, train=None, steps=0):
    try:
        if eval:
            return ids(eval_batches(opening.open_split(data, split="validation"), **eval))
        return ids(train_batches(data, seed=7, with_ids=True, **train).take(steps).as_numpy_iterator())
    except T5prepError as error:
        return str(error)
print(json.dumps([read(**job) for job in json.loads(sys.argv[1])]))
"""


def job(data, steps, **options):
    return {"data": data, "train": {"global_batch": 8, **options}, "steps": steps}


@pytest.fixture
def data(bucket, tmp_path):
    write(tmp_path / "data", {"train": COUNTS, "validation": [9, 8]})
    upload(tmp_path / "data", f"{bucket}/toy")
    return f"{bucket}/toy"


def read(googleapis, jobs):
    done = googleapis.run(READ, json.dumps(jobs))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_an_epoch_resumption_hosts_and_faults(googleapis, data, monkeypatch):
    monkeypatch.setenv("GCS_REQUEST_IDLE_TIMEOUT_SECS", "1")  # a minute, else, until a stalled read is given up
    records, steps = sum(COUNTS), -(-sum(COUNTS) // 8)
    starts = random.Random(0).sample(range(2 * steps), 12)
    jobs = [
        job(data, 2 * steps + 2),
        *(job(data, 10, host=host, hosts=2) for host in (0, 1)),
        {"data": data, "eval": {"batch": 8}},
        *(job(data, 2, start_step=start) for start in starts),
    ]
    tenth, struck = every(10, "503", "cut", "stall"), []

    def fault(seen):
        # A client waits seconds before it asks again: enough of them is enough.
        if seen.kind == "read" and len(struck) < 6 and (found := tenth(seen)):
            struck.append(found)
            return found
        return ""

    googleapis.front.fault = googleapis.python.fault = fault
    whole, *hosts, evaluated = (said := read(googleapis, jobs))[:4]
    assert set(struck) == {"503", "cut", "stall"}
    flat = [name for step in whole for name in step]
    assert sorted(flat[:records]) == sorted(f"toy/train/{n}" for n in range(records))
    assert [a + b for a, b in zip(*hosts, strict=True)] == whole[:10]
    assert [name for step in evaluated for name in step if name] == [f"toy/validation/{n}" for n in range(17)]
    for start, resumed in zip(starts, said[4:], strict=True):
        assert resumed == whole[start : start + 2]


def test_nothing_is_read_of_what_is_not_whole(googleapis, data, bucket, tmp_path):
    for spoiled, gone in (("shard", "train.tfrecord-00003-of-00008"), ("manifest", "manifest.json")):
        upload(tmp_path / "data", f"{bucket}/{spoiled}")
        gcs.delete(f"{bucket}/{spoiled}/{gone}")
    shard, manifest = read(googleapis, [job(f"{bucket}/shard", 1), job(f"{bucket}/manifest", 1)])
    assert "00003-of-00008 is missing" in shard
    assert "has no manifest.json" in manifest
    seen = [*googleapis.front.seen, *googleapis.python.seen]
    assert not [request for request in seen if request.kind == "read" and "tfrecord" in request.name]

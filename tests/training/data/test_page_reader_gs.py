"""The reader on gs://, by the requests that it makes."""

import pytest
from raised import raises
from servers.gcs_emulator import every
from toy_dataset import write

from t5prep.dataset.prepared import Dataset
from t5prep.dataset.upload import upload
from t5prep.errors import DatasetError
from t5prep.io import gcs
from t5prep.training.data import eval_batches, open_datasets, train_batches
from t5prep.training.data.batches import Reading

pytestmark = pytest.mark.extra("fake-gcs-server")


def ids(data, steps, **options):
    batches = train_batches(data, global_batch=8, seed=7, with_ids=True, **options).take(steps)
    return [[name.decode() for name in batch["id"].tolist()] for batch in batches.as_numpy_iterator()]


def reads(front):
    return [
        request
        for request in front.requests
        if request.method == "GET" and "tfrecord" in request.name and "alt=media" in request.url
    ]


@pytest.mark.parametrize("start", [0, 777])
def test_little_is_read_before_the_first_batch(front, bucket, tmp_path, start):
    """Of eight shards, at most a tenth, with what is read ahead meanwhile: pages, and no shard from its beginning."""
    manifest = write(tmp_path / "data", {"train": [250] * 8}, every=8)
    upload(tmp_path / "data", f"{bucket}/data")
    front.requests.clear()
    assert ids(f"{bucket}/data", 1, start_step=start) == ids(str(tmp_path / "data"), 1, start_step=start)
    assert (
        0
        < sum(request.answered for request in reads(front))
        <= 0.1 * sum(s.bytes for s in manifest.splits["train"].shards)
    )
    assert len({request.name for request in reads(front)}) > 1


def test_an_epoch_with_faults_is_that_of_the_disk(front, bucket, tmp_path, monkeypatch):
    """And so it is for hosts, from any step on, and where a split is evaluated."""
    write(tmp_path / "data", {"train": [40, 43, 37], "validation": [9, 8]}, every=8)
    upload(tmp_path / "data", f"{bucket}/data")
    monkeypatch.setattr(gcs, "TIMEOUT_SECONDS", (60.0, 0.5))
    front.stalled, tenth, struck = 1.0, every(6, "503", "cut", "stall"), []
    front.fault = lambda request: (fault := tenth(request)) and (struck.append(fault) or fault)
    all_ids = ids(f"{bucket}/data", 16)
    assert all_ids == ids(str(tmp_path / "data"), 16)
    assert sorted(name for step in all_ids[:15] for name in step) == sorted(f"toy/train/{n}" for n in range(120))
    hosts = [ids(f"{bucket}/data", 5, host=host, hosts=2) for host in (0, 1)]
    assert [first_host + second_host for first_host, second_host in zip(*hosts, strict=True)] == all_ids[:5]
    for start in (1, 7, 14):
        assert ids(f"{bucket}/data", 2, start_step=start) == all_ids[start : start + 2]
    read = eval_batches(open_datasets.open_split(Dataset(f"{bucket}/data"), "validation"), batch=8)
    names = [name.decode() for batch in read for name in batch["id"].tolist() if name]
    assert names == [f"toy/validation/{n}" for n in range(17)]
    assert set(struck) == {"503", "cut", "stall"}


@pytest.mark.parametrize(
    ("deleted_file", "message"),
    [
        ("train.tfrecord-00003-of-00008", ("dataset.altered", "00003-of-00008")),
        ("manifest.json", ("dataset.missing-manifest", "manifest.json")),
    ],
)
def test_nothing_is_read_of_what_is_not_whole(front, bucket, tmp_path, deleted_file, message):
    write(tmp_path / "data", {"train": [9] * 8})
    upload(tmp_path / "data", f"{bucket}/data")
    gcs.delete(f"{bucket}/data/{deleted_file}")
    with raises(DatasetError, *message):
        ids(f"{bucket}/data", 1)
    assert not reads(front)


def test_a_shard_that_goes_away_is_one_sentence(bucket, tmp_path):
    write(tmp_path / "data", {"train": [20]}, every=8)
    upload(tmp_path / "data", f"{bucket}/data")
    opened = open_datasets.open_splits([f"{bucket}/data"], "train")
    gcs.delete(f"{bucket}/data/train.tfrecord-00000-of-00001")
    with raises(DatasetError, "dataset.unreadable", "00000-of-00001"):
        next(Reading(opened, global_batch=8, seed=7).batches())

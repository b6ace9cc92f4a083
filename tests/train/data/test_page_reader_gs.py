"""The reader of datasets with an index on gs://, by the requests that it makes."""

import pytest
from servers.gcs_emulator import every
from toy_dataset import write

from t5prep.dataset.upload import upload
from t5prep.io import gcs

pytest.importorskip("tensorflow", reason="needs the extra train")
from t5prep.errors import DatasetError
from t5prep.train.data import train_batches
from t5prep.train.data.tensorflow_rows import arrays


def ids(data, steps, **options):
    batches = train_batches(data, global_batch=8, seed=7, with_ids=True, **options).take(steps)
    return [[name.decode() for name in batch["id"].tolist()] for batch in arrays(batches)]


def reads(front):
    return [one for one in front.seen if one.method == "GET" and "tfrecord" in one.name and "alt=media" in one.url]


@pytest.mark.parametrize("start", [0, 777])
def test_little_is_read_before_the_first_batch(front, bucket, tmp_path, start):
    """Of eight shards, at most a twentieth: pages, and no shard from its beginning."""
    made = write(tmp_path / "data", {"train": [250] * 8}, every=8)
    upload(tmp_path / "data", f"{bucket}/data")
    front.seen.clear()
    assert ids(f"{bucket}/data", 1, start_step=start) == ids(str(tmp_path / "data"), 1, start_step=start)
    assert 0 < sum(one.answered for one in reads(front)) <= 0.05 * sum(s.bytes for s in made.splits["train"].shards)
    assert len({one.name for one in reads(front)}) > 1


def test_an_epoch_with_faults_is_that_of_the_disk(front, bucket, tmp_path):
    write(tmp_path / "data", {"train": [40, 43, 37]}, every=8)
    upload(tmp_path / "data", f"{bucket}/data")
    front.fault = every(6, "503", "cut")
    assert ids(f"{bucket}/data", 16) == ids(str(tmp_path / "data"), 16)


def test_a_shard_that_goes_away_is_one_sentence(bucket, tmp_path):
    write(tmp_path / "data", {"train": [20]}, every=8)
    upload(tmp_path / "data", f"{bucket}/data")
    batches = train_batches(f"{bucket}/data", global_batch=8, seed=7)
    gcs.delete(f"{bucket}/data/train.tfrecord-00000-of-00001")
    with pytest.raises(DatasetError, match=r"00000-of-00001 cannot be read any more \(not found"):
        next(arrays(batches))

"""The trainer's arrays are the batches of `train_batches`; a process that still holds iterators ends."""

import itertools
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import records_in_python
from raised import raises
from toy_dataset import write

from t5prep.dataset import tfrecord
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError
from t5prep.training.data import batches, eval_batches, open_datasets, tensorflow_rows, train_batches

STEPS = 30


def both(data, **options):
    """The same steps as the trainer reads them, and as TensorFlow gives them."""
    options = {"global_batch": 6, "seed": 3, "start_step": 5} | options
    tensors = train_batches(data, masks=False, **options).take(STEPS).as_numpy_iterator()
    host = batches.Host(options.pop("host", 0), options.pop("hosts", 1))
    start = options.pop("start_step")
    arrays = batches.Reading(open_datasets.open_splits(data, "train"), host=host, **options).batches(start)
    return list(itertools.islice(arrays, STEPS)), list(tensors)


def assert_same(ours, tensorflow_batches):
    assert len(ours) == len(tensorflow_batches) == STEPS
    for batch, tensorflow_batch in zip(ours, tensorflow_batches, strict=True):
        assert batch.keys() == tensorflow_batch.keys()
        for name in batch:
            assert batch[name].dtype == tensorflow_batch[name].dtype == np.int32
            np.testing.assert_array_equal(batch[name], tensorflow_batch[name])


@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
def test_arrays_are_the_batches_of_tensorflow(tmp_path, layout):
    write(tmp_path, {"train": [41, 17]}, layout=layout, length=12)
    assert_same(*both([str(tmp_path)]))


@pytest.mark.parametrize("layout", ["padded", "ragged"])
def test_arrays_of_a_bucket_are_as_long_as_it_is(tmp_path, layout):
    write(tmp_path, {"train": [250, 50]}, layout=layout, length=16, every=4, measured=True)
    ours, tensorflow_batches = both([str(tmp_path)], buckets=[(8, 4), (16, 4)])
    assert_same(ours, tensorflow_batches)
    assert {batch["input_ids"].shape for batch in ours} == {(6, 8), (6, 16)}


def test_arrays_of_a_mixture_and_of_hosts(tmp_path):
    for name, length in (("one", 12), ("two", 8)):
        write(tmp_path / name, {"train": [400]}, layout="ragged", length=length, every=4)
    for host in (0, 1):
        assert_same(*both([str(tmp_path / "one"), str(tmp_path / "two")], rates=[2, 1], host=host, hosts=2))


@pytest.mark.parametrize("buckets", [(), ((8, 4), (16, 4))])
def test_no_reader_reuses_the_memory_of_a_batch(tmp_path, buckets):
    """On a CPU, jax may use the memory of an array instead of a copy, also after the reader has made the next batches."""
    write(tmp_path, {"train": [250, 50], "validation": [90]}, layout="ragged", length=16, every=4, measured=True)
    training, validation = (open_datasets.open_splits([str(tmp_path)], split) for split in ("train", "validation"))
    reading = batches.Reading(training, global_batch=6, seed=3, buckets=buckets)
    for reader in (itertools.islice(reading.batches(), STEPS), eval_batches(validation[0], batch=6)):
        copied_batches = [(batch, {name: rows.copy() for name, rows in batch.items()}) for batch in reader]
        assert len(copied_batches) >= 15
        arrays = [rows for batch, _ in copied_batches for rows in batch.values() if rows.dtype == np.int32]
        assert not any(itertools.starmap(np.may_share_memory, itertools.combinations(arrays, 2)))
        for batch, batch_copy in copied_batches:
            assert all(np.array_equal(batch[name], batch_copy[name]) for name in batch_copy)


def test_a_record_that_another_program_damaged_is_one_sentence(tmp_path):
    """Its checksum is right, and it is no record."""
    write(tmp_path, {"train": [6]}, every=8)
    opened = open_datasets.open_split(Dataset(str(tmp_path)), "train")
    shard = tmp_path / "train.tfrecord-00000-of-00001"
    size = int.from_bytes(shard.read_bytes()[:8], "little")
    shard.write_bytes(records_in_python.frame(b"\x12" * size) + shard.read_bytes()[size + tfrecord.FRAME_BYTES :])
    with raises(DatasetError, "dataset.damaged") as error:
        next(batches.Reading([opened], global_batch=6, seed=0).batches())
    assert len(str(error.value).splitlines()) == 1


def test_a_reader_that_is_given_up_stops_reading():
    read_steps = []
    read = batches.read_ahead(lambda step: read_steps.append(step) or {}, itertools.count(7))
    next(read)
    read.close()
    time.sleep(0.05)
    assert read_steps == list(range(7, 7 + len(read_steps)))
    assert len(read_steps) <= batches.AHEAD + 1


def test_threads_of_tensorflow_stop_before_python_ends():
    calls = tensorflow_rows._Calls()
    call = calls(lambda number: number)
    answers, answered = [], threading.Event()

    def thread():
        try:
            for number in itertools.count():
                answers.append(call(number))
                if number:
                    answered.set()
                time.sleep(0.001)
        except StopIteration:
            answers.append("stopped")

    running = threading.Thread(target=thread)
    running.start()
    assert answered.wait(600)
    calls._end()
    running.join(600)
    assert answers[:2] == [0, 1]
    assert answers[-1] == "stopped"


@pytest.mark.slow
def test_a_process_that_holds_iterators_ends(tmp_path):
    """A thread of TensorFlow that waits for Python when it ends made three of twelve such processes hang."""
    write(tmp_path, {"train": [2000]}, every=8)
    code = (
        "import sys, t5prep\n"
        "held = [iter(t5prep.train_batches(sys.argv[1], global_batch=8, seed=seed)) for seed in range(12)]\n"
        "for _ in range(20):\n"
        "    for one in held: next(one)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=600, capture_output=True)

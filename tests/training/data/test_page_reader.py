"""The reader on datasets with an index: every record once an epoch, exact resume, hosts, mixtures, what is altered."""

import itertools
import os

import numpy as np
import pytest
import records_in_python
from raised import raises
from toy_dataset import INPUT, write

from t5prep.dataset import tfrecord
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError
from t5prep.training.data import open_datasets, page_reader, train_batches
from t5prep.training.data.batches import Reading
from t5prep.training.data.features import RecordDecoder

COUNTS = [19, 23, 0, 17, 31, 11]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy") / "data"
    write(out, {"train": COUNTS, "validation": [5, 0, 6]}, every=4)
    return str(out)


@pytest.fixture(autouse=True)
def long_windows(monkeypatch):
    """Of a hundred records, windows would be a batch each."""
    monkeypatch.setattr("t5prep.training.data.order._PART", 3)
    monkeypatch.setattr("t5prep.training.data.order._FIRST_READ", 1)


def ids(batches, steps):
    """The ids of some batches, one list a step."""
    return [[i.decode() for i in batch["id"].tolist()] for batch in batches.take(steps).as_numpy_iterator()]


@pytest.mark.parametrize("global_batch", [1, 6, 10])
def test_an_epoch_holds_every_record_once(data, global_batch):
    records = sum(COUNTS)
    read = list(itertools.chain(*ids(train_batches(data, global_batch=global_batch, seed=5, with_ids=True), 210)))
    for epoch in range(len(read) // records):
        part = read[epoch * records : (epoch + 1) * records]
        assert sorted(part) == sorted(f"toy/train/{n}" for n in range(records))
    assert read[:records] != read[records : 2 * records]


def test_a_run_resumed_at_any_step_goes_on_as_if_it_had_not_stopped(data):
    all_ids = ids(train_batches(data, global_batch=8, seed=1, with_ids=True), 64)
    for step in np.random.default_rng(0).integers(0, 60, 5).tolist():
        resumed = train_batches(data, global_batch=8, seed=1, start_step=step, with_ids=True)
        assert ids(resumed, 2) == all_ids[step : step + 2]


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_see_together_what_one_host_sees(data, hosts):
    def of(host, hosts):
        return ids(train_batches(data, global_batch=8, seed=1, start_step=3, host=host, hosts=hosts, with_ids=True), 9)

    host_steps = zip(*(of(host, hosts) for host in range(hosts)), strict=True)
    assert [list(itertools.chain(*step)) for step in host_steps] == of(0, 1)


def test_a_mixture_keeps_its_rates_and_can_be_resumed(tmp_path):
    write(tmp_path / "a", {"train": [40, 41]}, name="a", every=8)
    write(tmp_path / "b", {"train": [9, 8, 10]}, name="b", every=4)
    both = [str(tmp_path / "a"), str(tmp_path / "b")]

    def read(steps, **options):
        return ids(train_batches(both, global_batch=8, seed=3, rates=[3, 1], with_ids=True, **options), steps)

    all_ids = read(64)  # a window
    names = [name for step in all_ids for name in step]
    assert sum(name.startswith("b/") for name in names) == len(names) // 4
    counts = [names.count(f"b/train/{n}") for n in range(27)]
    assert max(counts) - min(counts) <= 1  # no record is repeated before the others are seen
    for step in (7, 19):
        assert read(3, start_step=step) == all_ids[step : step + 3]
    halves = [read(5, start_step=2, host=host, hosts=2) for host in (0, 1)]
    assert [a + b for a, b in zip(*halves, strict=True)] == all_ids[2:7]


def test_datasets_of_different_lengths_are_padded_to_the_longest(tmp_path):
    write(tmp_path / "a", {"train": [40]}, name="a", every=8)
    write(tmp_path / "b", {"train": [40]}, name="b", length=2 * INPUT, layout="ragged", every=8)
    both = [str(tmp_path / "a"), str(tmp_path / "b")]
    batches = train_batches(both, global_batch=8, seed=3, with_ids=True)
    assert batches.element_spec["input_ids"].shape == (8, 2 * INPUT)
    for batch in batches.take(10).as_numpy_iterator():
        for name, tokens in zip(batch["id"].tolist(), batch["input_ids"].tolist(), strict=True):
            number, length = int(name.split(b"/")[-1]), INPUT if name.startswith(b"a") else 2 * INPUT
            used = 2 + number % (length - 2)
            assert tokens == [number % 900 + 3] * used + [1] + [0] * (2 * INPUT - used - 1)


def test_rates_are_exact_to_one_in_500(tmp_path):
    """Windows of small datasets are small, and a rate is a whole number of rows of a window."""
    write(tmp_path / "a", {"train": [80]}, name="a", every=8)
    write(tmp_path / "b", {"train": [80]}, name="b", every=8)
    both = [str(tmp_path / "a"), str(tmp_path / "b")]
    read = ids(train_batches(both, global_batch=8, seed=3, rates=[0.99, 0.01], with_ids=True), 320)
    share = sum(name.startswith("b/") for step in read for name in step) / (320 * 8)
    assert abs(share - 0.01) < 0.001


@pytest.mark.parametrize("start", [0, 3000])
def test_the_first_batch_reads_a_twentieth_of_the_dataset(tmp_path, monkeypatch, start):
    monkeypatch.undo()
    write(tmp_path, {"train": [250] * 16}, every=8)
    read, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *arguments: (read.append(arguments[1]), pread(*arguments))[1])
    before_a_batch, decode = [], RecordDecoder.__call__
    note = lambda decoder, rows: (before_a_batch.append(sum(read)), decode(decoder, rows))[1]  # noqa: E731
    monkeypatch.setattr(RecordDecoder, "__call__", note)
    batches = train_batches(str(tmp_path), global_batch=32, seed=0, start_step=start)
    next(iter(batches.as_numpy_iterator()))
    split = open_datasets.open_split(Dataset(str(tmp_path)), "train")
    assert 0 < before_a_batch[0] <= 0.05 * sum(shard.bytes for shard in split.shards)


def test_shards_are_closed_when_too_many_are_open(data, monkeypatch):
    monkeypatch.setattr(page_reader, "_OPEN_FILES", 2)
    reader = page_reader.PageReader(open_datasets.open_split(Dataset(data), "train"))
    pages = np.arange(len(reader.sizes))
    for _ in range(2):
        read = reader.records(pages, np.zeros_like(pages))
        names = [tfrecord.parse(record)["id"] for record in read.serialized()]
        assert names[:3] == [[b"toy/train/0"], [b"toy/train/4"], [b"toy/train/8"]]
    assert len(reader._open) == 2


def broken(shard):
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)


SPOILT = [
    (lambda out: (out / "shards.index").unlink(), ("dataset.unreadable", "shards.index")),
    (lambda out: (out / "shards.index").write_bytes(b"\0" * 8), ("dataset.altered", "shards.index", "8")),
    (lambda out: broken(out / "train.tfrecord-00000-of-00001"), ("dataset.altered", "0")),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT)
def test_what_was_altered_is_one_sentence(tmp_path, spoil, message):
    write(tmp_path, {"train": [6]}, every=8)
    spoil(tmp_path)
    with raises(DatasetError, *message) as error:
        next(Reading(open_datasets.open_splits([str(tmp_path)], "train"), global_batch=2, seed=0).batches())
    assert len(str(error.value).splitlines()) == 1


def test_a_page_with_a_record_too_few_or_many_or_altered_is_broken():
    framed = [records_in_python.frame(bytes([n]) * n) for n in range(5)]
    counts = np.array([2, 3])
    pages = [b"".join(framed[:2]), b"".join(framed[2:])]
    read = tfrecord.Records(pages, tfrecord.cut_records(pages, counts))
    assert read.serialized() == [bytes([n]) * n for n in range(5)]
    altered = [
        pages[1][:offset] + bytes([pages[1][offset] ^ 1]) + pages[1][offset + 1 :]
        for offset in (0, 13, 15, len(pages[1]) - 1)
    ]
    for wrong, number in (
        ([pages[0], pages[1][:-1]], 1),
        ([pages[0] + framed[0], pages[1]], 0),
        ([b"", pages[1]], 0),
        *(([pages[0], page], 1) for page in altered),
    ):
        with pytest.raises(tfrecord.BrokenPageError) as error:
            tfrecord.cut_records(wrong, counts)
        assert error.value.number == number


def test_a_record_longer_than_any_page_is_broken():
    for length in (2**31, 2**63, 2**64 - 1):
        with pytest.raises(tfrecord.BrokenPageError):
            tfrecord.cut_records([length.to_bytes(8, "little") + bytes(20)], np.array([1]))

"""Length buckets: every record once an epoch, in the shortest shape that holds it, from any step on."""

import collections
import itertools
import os

import numpy as np
import pytest
from raised import raises
from toy_dataset import write

from t5prep.errors import T5prepError, UsageError
from t5prep.training.data import batches, device_feed, tensorflow_rows, train_batches
from t5prep.training.data.open_datasets import open_splits
from t5prep.training.settings import train_config

COUNTS = [61, 70, 55]
# Rows of the toy have 3 to 15 input tokens, and two target tokens.
BUCKETS = [(8, 2), (16, 4)]


@pytest.fixture(scope="module", params=["padded", "ragged", "measured"])
def data(request, tmp_path_factory):
    """The lengths of the last one's records stand beside its index; those of the others are read from the records."""
    out, measured = tmp_path_factory.mktemp("toy") / "data", request.param == "measured"
    layout = "padded" if measured else request.param
    write(out, {"train": COUNTS, "other": [9]}, every=4, length=16, layout=layout, measured=measured)
    return str(out)


def read(data, steps, **options):
    batches = train_batches(data, global_batch=6, seed=5, with_ids=True, buckets=BUCKETS, **options)
    return list(batches.take(steps).as_numpy_iterator())


def names(batches):
    return [[name.decode() for name in batch["id"].tolist()] for batch in batches]


def test_each_row_is_in_the_shortest_shape_that_holds_it(data):
    shapes = collections.Counter()
    for batch in read(data, 31):
        shape = batch["input_ids"].shape[1], batch["labels"].shape[1]
        shapes[shape] += 1
        assert batch["attention_mask"].shape == batch["input_ids"].shape
        used = batch["attention_mask"].sum(axis=1)
        assert used.max() <= shape[0]
        assert shape == (8, 2) or used.min() > 8
        for row, name, tokens in zip(batch["input_ids"], batch["id"], used, strict=True):
            number = int(name.split(b"/")[-1])
            assert row.tolist() == [number % 900 + 3] * (tokens - 1) + [1] + [0] * (shape[0] - tokens)
            assert tokens == number % 14 + 3
        assert batch["labels"].tolist() == [
            [row[0], 1] + [-100] * (shape[1] - 2) for row in batch["input_ids"].tolist()
        ]
    assert set(shapes) == set(BUCKETS)


def test_each_record_is_seen_once_an_epoch(data):
    """An epoch of a bucket ends inside a batch, so at the end of the split's epoch a batch of each may be ahead."""
    counts = collections.Counter(itertools.chain(*names(read(data, 2 * sum(COUNTS) // 6))))
    assert len(counts) == sum(COUNTS)
    assert max(counts.values()) <= 3
    assert sum(count != 2 for count in counts.values()) <= 2 * 6


def test_a_run_resumed_at_any_step_goes_on_as_if_it_had_not_stopped(data):
    all_names = names(read(data, 70))
    for step in (1, 13, 64):
        assert names(read(data, 3, start_step=step)) == all_names[step : step + 3]
    halves = [names(read(data, 5, start_step=9, host=host, hosts=2)) for host in (0, 1)]
    assert [a + b for a, b in zip(*halves, strict=True)] == all_names[9:14]


@pytest.mark.parametrize("records", [[300, 100], [33_674, 33_598, 77], [5], [1, 1000]])
def test_buckets_take_turns_in_proportion(records):
    all_turns = [batches.turn_of(records, step) for step in range(2000)]
    for bucket, count in enumerate(records):
        turns = [step for step, (turn_bucket, _) in enumerate(all_turns) if turn_bucket == bucket]
        assert [turn for turn_bucket, turn in all_turns if turn_bucket == bucket] == list(range(len(turns)))
        expected = np.arange(1, 2001) * count / sum(records)
        assert np.abs(np.cumsum([turn_bucket == bucket for turn_bucket, _ in all_turns]) - expected).max() < len(
            records
        )


@pytest.mark.parametrize("start", [0, 1, 2, 1000])
def test_the_first_batch_reads_a_twentieth_of_the_dataset(tmp_path, monkeypatch, start):
    """The first steps are of different buckets."""
    manifest = write(tmp_path, {"train": [250] * 16}, every=8, length=64, measured=True)
    read, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *arguments: (read.append(arguments[1]), pread(*arguments))[1])
    monkeypatch.setattr(tensorflow_rows, "AHEAD", 1)
    options = {"global_batch": 32, "seed": 0, "buckets": [(16, 4), (32, 4), (64, 4)]}
    next(iter(train_batches(str(tmp_path), start_step=start, **options).as_numpy_iterator()))
    shard_bytes = sum(shard.bytes for shard in manifest.splits["train"].shards)
    index_bytes = manifest.index.bytes + manifest.lengths.bytes
    assert (
        index_bytes < sum(read) + index_bytes <= 2 * 0.05 * shard_bytes
    )  # one batch more is read ahead, perhaps of another bucket


REFUSED = [
    ({"buckets": [(8, 2)]}, {}, ("setting.missing-bucket", "16")),
    ({"buckets": [(32, 4)]}, {}, ("setting.oversized-bucket", "32", "4", "16")),
    ({"buckets": BUCKETS}, {"every": 0}, ("dataset.missing-index",)),
    ({"buckets": BUCKETS}, {"layout": "packed"}, ("setting.inapplicable",)),
]


@pytest.mark.parametrize(("options", "dataset_options", "message"), REFUSED, ids=[row[2][0] for row in REFUSED])
def test_what_cannot_be_parted_is_refused(tmp_path, options, dataset_options, message):
    write(tmp_path, {"train": [30]}, **({"every": 4, "length": 16} | dataset_options))
    with raises(T5prepError, *message):
        train_batches(str(tmp_path), global_batch=2, seed=0, **options)


def test_a_record_that_fits_nowhere_is_found_before_a_step_is_compiled(tmp_path):
    write(tmp_path, {"train": [30]}, every=4, length=16, measured=True)
    config = train_config.build({"buckets": "8x2"})
    with raises(UsageError, "setting.missing-bucket"):
        device_feed.shapes(open_splits([str(tmp_path)], "train"), config)


def test_a_mixture_has_no_buckets(tmp_path):
    for name in "ab":
        write(tmp_path / name, {"train": [30]}, every=4)
    with raises(UsageError, "setting.conflict"):
        train_batches([str(tmp_path / name) for name in "ab"], global_batch=2, seed=0, buckets=[(8, 4)])


def test_what_is_no_pair_of_lengths_is_refused():
    assert train_config.parse_buckets(train_config.build({"buckets": "512x64,128x16"}).buckets) == [
        (128, 16),
        (512, 64),
    ]
    for wrong in ("128", "128x", "0x5", "axb", "128x16x3"):
        with raises(UsageError, "setting.malformed"):
            train_config.build({"buckets": wrong})

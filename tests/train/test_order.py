"""The order's arithmetic alone, in numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_dataset import global_rows, lane_records

from t5prep.train.data import order
from t5prep.train.data.order import Deal

COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=9)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(order, "WINDOW", 48)


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(1, 24), st.integers(-(2**63), 2**63), st.integers(0, 3))
def test_every_run_of_an_epochs_rows_holds_every_record_once(counts, global_batch, seed, epoch):
    records = sum(counts)
    batches = global_rows(tuple(counts), seed=seed, global_batch=global_batch, steps=records * 4 // global_batch + 1)
    rows = [row for batch in batches for row in batch][epoch * records : (epoch + 1) * records]
    assert sorted(rows) == [(epoch, shard, n) for shard, count in enumerate(counts) for n in range(count)]


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(1, 6), st.integers(1, 5), st.integers(0, 300))
def test_a_lane_entered_anywhere_reads_on_where_it_would_have_been(counts, lanes, width, index):
    deal = Deal(tuple(counts), 7, lanes, width)
    for lane in range(lanes):
        epoch = int(deal.epoch(lane, np.array([index]))[0])
        whole = lane_records(deal, lane, index + sum(counts))[index:]
        pieces = deal.pieces(np, lane, epoch, index)
        entered = [(epoch, int(s), int(skip) + n) for s, skip, take in zip(*pieces, strict=True) for n in range(take)]
        assert entered == whole[: len(entered)]
        assert len(entered) == deal.read(np, lane, epoch + 1) - index


def test_epochs_differ_and_seeds_differ():
    orders = [global_rows((50, 50), seed=seed, global_batch=10, steps=20) for seed in (1, 2)]
    assert orders[0] != orders[1]
    epochs = [[row[1:] for batch in orders[0][half : half + 10] for row in batch] for half in (0, 10)]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]


def test_the_order_is_the_one_that_was_published(monkeypatch):
    """Pinned: a change here silently reorders the data of every run that is resumed."""
    monkeypatch.undo()
    rows = global_rows((5, 3, 4), seed=42, global_batch=4, steps=3)
    assert [" ".join(f"{shard}{n}" for _, shard, n in batch) for batch in rows] == PINNED


def test_a_window_sends_every_record_anywhere():
    """Over 200 windows the mean place of each row is the middle, within five standard errors."""
    index = np.arange(200)[:, None] * 64 + np.arange(64)
    places = order.shuffled(np, 3, 0, index, np.zeros_like(index))
    assert (np.sort(places) == np.arange(64)).all()
    assert np.abs(places.mean(axis=0) - 31.5).max() < 5 * 18.5 / np.sqrt(200)


@pytest.mark.parametrize(("rates", "size"), [([1, 1, 1], 100), ([0.999, 0.001], 512), ([5, 3], 8)])
def test_shares_add_up_and_are_the_nearest(rates, size):
    shares = order.shares(rates, size)
    assert sum(shares) == size
    assert all(abs(share - size * rate / sum(rates)) < 1 for share, rate in zip(shares, rates, strict=True))


PINNED = ["02 04 22 20", "11 03 01 21", "12 10 23 00"]

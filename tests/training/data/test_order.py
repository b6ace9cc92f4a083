"""The order of pages alone, in numpy: complete, entered anywhere, and as random as a full shuffle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5prep.dataset import shard_files
from t5prep.training.data import order
from t5prep.training.data.order import PageOrder

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=20)


def rows(pages: PageOrder, table: order.Table, steps: int) -> list[list[tuple[int, int]]]:
    """Every global batch as (page, place), worked out lane by lane."""
    windows = -(-steps // table.steps)
    batches: list[list[tuple[int, int]]] = [[] for _ in range(windows * table.steps)]
    for lane in range(table.lanes):
        for window in range(windows):
            index = window * table.lane_rows + np.arange(table.lane_rows)
            page, record_index = pages.records(np.array(lane), index)
            permuted = order.shuffled(pages.seed, lane, index, pages.epoch(lane, index))
            for n, i in enumerate(permuted.tolist()):
                batches[window * table.steps + n // table.width].append((int(page[i]), int(record_index[i])))
    return batches[:steps]


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 24), st.integers(-(2**63), 2**63), st.integers(0, 3))
def test_every_run_of_an_epochs_rows_holds_every_record_once(sizes, global_batch, seed, epoch):
    records = sum(sizes)
    table = order.table(global_batch, records=64 * 30, every=2)
    pages = PageOrder(np.array(sizes), seed, table.lanes, table.width)
    batches = rows(pages, table, records * 4 // global_batch + 1)
    read = [row for batch in batches for row in batch][epoch * records : (epoch + 1) * records]
    assert sorted(read) == [(page, record_index) for page, size in enumerate(sizes) for record_index in range(size)]


def test_the_order_is_the_one_that_was_published():
    """Pinned: a change here silently reorders the data of every run that is resumed."""
    table = order.table(4, records=64 * 10, every=2)
    assert table == order.Table(lanes=4, width=1, steps=2)
    read = rows(PageOrder(np.array([2, 2, 1, 2, 2, 2, 1]), 42, table.lanes, table.width), table, 4)
    assert [" ".join(f"{page}{record_index}" for page, record_index in batch) for batch in read] == PINNED


@pytest.mark.parametrize("global_batch", [1, 97, 128, 1000])
@pytest.mark.parametrize("records", [10, 40_000, 3_000_000])
def test_little_is_read_before_the_first_batch(global_batch, records):
    every = shard_files.records_per_page(records)
    table = order.table(global_batch, records=records, every=every)
    assert table.lanes * table.width == global_batch
    # Three windows, because two are read ahead while the first batch is made, and the rest of a page for each lane.
    max_records = 3 * table.lanes * table.lane_rows + table.lanes * (every - 1)
    assert max_records <= max(0.05 * records, 3.5 * global_batch + every)


@pytest.mark.parametrize("records", [30_000, 65_536, 131_072, 200_000, 262_144, 1_000_000])
@pytest.mark.parametrize("global_batch", [8, 97, 128])
def test_records_of_a_page_do_not_meet(global_batch, records):
    """A batch of up to 128 rows has one row of each lane, and each lane reads other pages."""
    table = order.table(global_batch, records=records, every=shard_files.records_per_page(records))
    assert (table.lanes, table.width) == (global_batch, 1)


def test_places_and_company_are_those_of_a_full_shuffle():
    """16 shards of 2,500 records. With lanes of whole shards, records of one met 7.5 times more often than chance, and
    places in two epochs correlated by 0.77."""
    shards, records, batch = 16, 40_000, 128
    sizes = np.tile([8] * 312 + [4], shards)
    table = order.table(batch, records=records, every=8)
    pages = PageOrder(sizes, 3, table.lanes, table.width)
    windows = -(-2 * records // (table.lanes * table.lane_rows))
    lane = np.arange(table.lanes)[:, None, None]
    index = np.arange(windows * table.lane_rows).reshape(1, windows, table.lane_rows)
    page, record_index = pages.records(lane, index)
    permuted = order.shuffled(3, lane, index, pages.epoch(lane, index))
    number = np.take_along_axis((np.cumsum(sizes) - sizes)[page] + record_index, permuted, axis=2)
    read = number.reshape(table.lanes, -1, table.width).swapaxes(0, 1).ravel()
    first, second = (np.argsort(read[epoch * records : (epoch + 1) * records]) for epoch in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05
    assert max(abs(np.corrcoef(places, np.arange(records))[0, 1]) for places in (first, second)) < 0.05
    meeting = np.sort(read[: records // batch * batch].reshape(-1, batch) // 2500)
    counts = (meeting[:, :, None] == np.arange(shards)).sum(axis=1)
    often = (counts * (counts - 1)).sum() / len(meeting) / (batch * (batch - 1))
    assert 0.95 < often / (2499 / 39_999) < 1.1
    pages_met = np.sort(
        np.searchsorted(np.cumsum(sizes), read[: records // batch * batch], side="right").reshape(-1, batch)
    )
    assert (np.diff(pages_met, axis=1) == 0).mean() < 2 * 7 * (batch - 1) / records  # about 14 times as often, before


PINNED = ["10 31 41 60", "11 20 00 50", "30 40 01 51", "10 51 30 00"]


def test_a_window_sends_every_record_anywhere():
    """Over 200 windows the mean place of each row is the middle, within five standard errors."""
    index = np.arange(200)[:, None] * 64 + np.arange(64)
    places = order.shuffled(3, np.array(0), index, np.zeros_like(index))
    assert (np.sort(places) == np.arange(64)).all()
    assert np.abs(places.mean(axis=0) - 31.5).max() < 5 * 18.5 / np.sqrt(200)


@pytest.mark.parametrize(("rates", "size"), [([1, 1, 1], 100), ([0.999, 0.001], 512), ([5, 3], 8)])
def test_shares_add_up_and_are_the_nearest(rates, size):
    shares = order.shares(rates, size)
    assert sum(shares) == size
    assert all(abs(share - size * rate / sum(rates)) < 1 for share, rate in zip(shares, rates, strict=True))

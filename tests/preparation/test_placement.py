"""Where an example goes follows from its id and the seed alone."""

import itertools

import numpy as np
import pytest

from t5prep.preparation import placement

IDS = [f"id {i}" for i in range(20_000)]


def test_a_digest_is_that_of_its_id_whatever_stands_beside_it() -> None:
    digests = placement.digests(IDS, seed=3)
    assert (placement.digests(IDS[70:90], seed=3) == digests[70:90]).all()
    assert (placement.digests(IDS, seed=4) != digests).any(axis=1).all()
    assert len(np.unique(digests, axis=0)) == len(IDS)


def test_half_of_a_surrogate_pair_is_an_id_too() -> None:
    assert placement.digests(["\ud83d"], seed=0).shape == (1, placement.DIGEST_BYTES)


@pytest.mark.parametrize("seed", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_every_seed_that_settings_take_can_be_used(seed: int) -> None:
    assert placement.digests(["a"], seed=seed).shape == (1, placement.DIGEST_BYTES)


def test_splits_get_their_shares_and_the_last_one_what_is_left() -> None:
    shares = {"train": 0.7, "validation": 0.2, "test": 0.1}
    split_counts = np.bincount(placement.draw_splits(placement.digests(IDS, seed=1), shares=shares), minlength=3)
    assert split_counts.sum() == len(IDS)
    assert np.abs(split_counts / len(IDS) - [0.7, 0.2, 0.1]).max() < 0.01
    above = np.full((1, placement.DIGEST_BYTES), 255, np.uint8)
    assert placement.draw_splits(above, shares={"a": 0.1, "b": 0.2, "c": 0.7}).tolist() == [2]  # 0.1 + 0.2 + 0.7 < 1


def test_positions_sort_as_their_bytes_do() -> None:
    digests = placement.digests(IDS[:500], seed=0)
    positions = placement.positions(digests)
    by_bytes = sorted(range(500), key=lambda i: digests[i, 8:].tobytes())
    assert np.lexsort((positions["low"], positions["high"])).tolist() == by_bytes


@pytest.mark.parametrize("shards", [1, 3, 7, 128])
def test_shards_are_equal_ranges_that_leave_nothing_out(shards: int) -> None:
    edges = placement.shard_edges(shards)
    assert (edges[0], edges[-1], len(edges)) == (0, 1 << 64, shards + 1)
    widths = {end - begin for begin, end in itertools.pairwise(edges)}
    assert max(widths) - min(widths) <= 1

"""A spill is cut into pieces, one for each shard."""

import numpy as np
import pytest
from spills import Row, spill_of

from t5prep.preparation import placement, shards, spills
from t5prep.preparation.shards import ShardSpec
from t5prep.preparation.spills import ENTRY, Spill


@pytest.mark.parametrize("shard_count", [1, 2, 3, 7])
def test_pieces_of_a_spill_hold_each_record_in_the_shard_of_its_position(shard_count: int) -> None:
    keys = sorted(
        placement.positions(placement.digests(map(str, range(40)), seed=1))["high"].astype(np.uint64).tolist()
    )
    keys = [0, *keys, (1 << 64) - 1]
    rows = [Row(key, f"record{key:x}") for key in keys]
    spill = spill_of({"train": rows, "test": rows[:5]})
    specs = [ShardSpec("train", number, shard_count, 0, preceding_splits=("test",)) for number in range(shard_count)]
    edges = placement.shard_edges(shard_count)
    split_keys: dict[str, list[int]] = {"train": [], "test": []}
    for name, piece in shards.cut_shards(spill, {"train": specs}):
        number = int(name.split("-")[1])
        (split,) = piece.splits
        shard_rows = piece.slice(split, edges[number], edges[number + 1])
        assert shard_rows
        assert len(shard_rows.entries) == piece.records  # nothing of a neighbour
        split_keys[split] += shard_rows.entries["high"].tolist()
        if split == "train":
            assert list(shard_rows.columns().ids) == [f"record{key:x}" for key in shard_rows.entries["high"].tolist()]
        else:
            assert not len(shard_rows.data)  # positions only
    assert split_keys == {"train": keys, "test": keys[:5]}


@pytest.mark.parametrize("ranges", [1, 2, 8])
def test_ranges_of_a_run_merged_again_are_the_run(ranges: int) -> None:
    keys = placement.positions(placement.digests(map(str, range(40)), seed=1))["high"].astype(np.uint64).tolist()
    records = [Row(key, f"record{key:x}") for key in keys]
    run = spill_of({"test": records[:9], "train": records[9:]})
    pieces = list(shards.cut_ranges(run, ranges))
    assert all(number == int(entry["high"]) * ranges >> 64 for number, piece in pieces for entry in entries(piece))
    assert spills.merged_in_memory([piece for _, piece in pieces[::-1]]) == run


def entries(spill: Spill) -> np.ndarray:
    return np.frombuffer(spill.data, ENTRY, spill.records)

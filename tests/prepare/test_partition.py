"""A spill is cut into pieces, one for each shard."""

import numpy as np
import pytest
from spills import spill_of

from t5prep.prepare import partition, placement, sorted_runs
from t5prep.prepare.shard_writer import ShardSpec
from t5prep.prepare.sorted_runs import INDEX_ENTRY, Run


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_pieces_of_a_spill_hold_each_record_in_the_shard_of_its_position(shards: int) -> None:
    keys = sorted(
        placement.positions(placement.digests(map(str, range(40)), seed=1))["high"].astype(np.uint64).tolist()
    )
    keys = [0, *keys, (1 << 64) - 1]
    named = [(key, f"record{key:x}".encode()) for key in keys]
    spill = spill_of({"train": named, "test": named[:5]})
    specs = [ShardSpec("train", number, shards, 0, before=("test",)) for number in range(shards)]
    edges = placement.shard_edges(shards)
    found: dict[str, list[int]] = {"train": [], "test": []}
    for name, piece in partition.cut_shards(spill.run(), {"train": specs}):
        number = int(name.split("-")[1])
        (split,) = piece.splits
        whole = piece.slice(split, edges[number], edges[number + 1])
        assert whole
        assert len(whole.entries) == piece.records  # nothing of a neighbour
        found[split] += whole.entries["high"].tolist()
        texts = [
            bytes(whole.data[b : b + s]) for b, s in zip(whole.entries["begin"], whole.entries["size"], strict=True)
        ]
        if split == "train":
            assert texts == [f"record{key:x}".encode() for key in whole.entries["high"].tolist()]
        else:
            assert not any(texts)  # positions only
    assert found == {"train": keys, "test": keys[:5]}


@pytest.mark.parametrize("ranges", [1, 2, 8])
@pytest.mark.parametrize("largest", [200, 512 << 10])
def test_ranges_of_a_run_merged_again_are_the_run(ranges: int, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "LARGEST_PIECE", largest)
    keys = placement.positions(placement.digests(map(str, range(40)), seed=1))["high"].astype(np.uint64).tolist()
    records = [(key, f"record{key:x}".encode()) for key in keys]
    run = spill_of({"test": records[:9], "train": records[9:]}).run()
    pieces = list(partition.cut_ranges(run, ranges))
    assert all(number == int(entry["high"]) * ranges >> 64 for number, piece in pieces for entry in entries(piece))
    assert all(len(piece.data) <= 2 * largest for _, piece in pieces)
    assert sorted_runs.merged_in_memory([piece for _, piece in pieces[::-1]]) == run


def entries(run: Run) -> np.ndarray:
    return np.frombuffer(run.data, INDEX_ENTRY, run.records)

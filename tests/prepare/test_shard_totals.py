"""What is counted of shards adds up in any order, and a shard needs few bytes of it."""

import tracemalloc

from t5prep.dataset.manifest import Shard
from t5prep.prepare.record_counts import Counts
from t5prep.prepare.shard_totals import ShardTotals
from t5prep.prepare.shard_writer import ShardSpec, WrittenShard


def written(number: int, *, split: str = "train", shards: int = 3) -> WrittenShard:
    """Return a shard as it comes from a worker, with a part of the index of its own."""
    spec = ShardSpec(split, number, shards, 9, (), 64)
    shard = Shard(spec.name, number, 100 + number, f"{number:064x}")
    return WrittenShard(
        spec, shard, Counts(records=number), b"", {"a.csv": 1}, {"duplicate id": 1}, 1, bytes([number % 256] * 4)
    )


def test_shards_come_out_in_order_whoever_counted_them() -> None:
    parts = [ShardTotals().add(written(number)) for number in (2, 0, 1)]
    parts[1].add(written(0, split="test", shards=1))
    total = ShardTotals().merge(parts[0]).merge(parts[1]).merge(parts[2])
    train = total.splits["train"]
    assert list(train.shards()) == [written(number).shard for number in range(3)]
    assert list(train.blocks()) == [written(number).blocks for number in range(3)]
    assert list(total.splits["test"].shards()) == [written(0, split="test", shards=1).shard]
    assert (train.counts.records, train.merged, train.reasons["duplicate id"]) == (3, 3, 3)
    assert (train.every, total.duplicates["a.csv"]) == (64, 4)


def test_a_shard_needs_few_bytes_of_the_totals() -> None:
    total = ShardTotals()
    tracemalloc.start()
    try:
        for number in range(2000):
            total.add(written(number, shards=2000))
        assert tracemalloc.get_traced_memory()[0] < 400 * 2000
    finally:
        tracemalloc.stop()

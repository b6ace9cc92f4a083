"""Plan how many shards each split gets, once all records are counted."""

from collections.abc import Mapping

from t5prep.dataset import block_index, record_lengths
from t5prep.errors import UsageError
from t5prep.prepare.near_duplicates.repeats import precedence
from t5prep.prepare.shard_writer import ShardSpec

SHARD_BYTES = 128 << 20  # 128 MiB: some seconds of reading, and thousands of shards for a terabyte
# Eight hosts of a pod can each read shards of their own, if there are records enough to be worth it.
FEWEST_SHARDS = 8
RECORDS_A_SHARD = 256


def plan_shards(
    records: Mapping[str, int], sizes: Mapping[str, int], *, shards: int | None, drawn: bool
) -> list[ShardSpec]:
    """Return the shards of all splits, in order, from the records and the bytes of each split.

    `shards` is the number of the largest split's, None for a power of two.

    Where splits are not `drawn` from ids but are the source's own, an id may stand in two: evaluation keeps it.

    The list is empty where there is no example at all. Raises UsageError when there are more shards than examples.
    """
    records = {split: number for split, number in records.items() if number}
    if not records:
        return []
    most = max(records.values())
    if shards is not None and shards > most:
        raise UsageError(f"--shards {shards}: the largest split has only {most:,} examples. Ask for at most that many.")
    specs = []
    for split in sorted(records):
        count = (
            _chosen(records[split], sizes[split]) if shards is None else max(1, round(shards * records[split] / most))
        )
        before = () if drawn else tuple(other for other in sorted(records) if _order(other) < _order(split))
        every = block_index.spacing(records[split])
        measured = records[split] <= record_lengths.MOST_RECORDS
        specs += [
            ShardSpec(split, number, count, sizes[split] // count, before, every, measured) for number in range(count)
        ]
    return specs


def _order(split: str) -> tuple[int, str]:
    """Return what splits are ordered by: of two that have one id, the first keeps it."""
    return precedence(split), split


def _chosen(records: int, size: int) -> int:
    """Return a power of two as the number of shards: hosts that are a power of two get equal parts."""
    wanted = max(-(-size // SHARD_BYTES), min(FEWEST_SHARDS, records // RECORDS_A_SHARD), 1)
    return 1 << (wanted - 1).bit_length()

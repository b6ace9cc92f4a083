"""How many shards each split gets."""

import pytest

from t5prep.errors import UsageError
from t5prep.prepare import shard_plan
from t5prep.prepare.block_sorter import SortedSpill


def spill(**splits: tuple[int, int]) -> SortedSpill:
    """Return a spill without bytes that says of each split: so many records, so many bytes."""
    bounds, begin = {}, 0
    for split, (records, _) in splits.items():
        bounds[split] = begin, begin + records
        begin += records
    sizes = {split: size for split, (_, size) in splits.items()}
    return SortedSpill("f", 1, begin, begin, bounds, sizes, b"", {})


def counts(spills: list[SortedSpill], *, shards: int | None = None) -> dict[str, int]:
    specs = shard_plan.plan_shards(spills, shards=shards, drawn=True)
    assert [(spec.split, spec.number) for spec in specs] == sorted((spec.split, spec.number) for spec in specs)
    return {spec.split: spec.shards for spec in specs}


def test_the_largest_split_gets_what_was_asked_and_others_their_share() -> None:
    spills = [spill(train=(600, 6000), test=(40, 400)), spill(train=(200, 2000), validation=(200, 2000))]
    assert counts(spills, shards=8) == {"train": 8, "validation": 2, "test": 1}


@pytest.mark.parametrize(
    ("records", "size", "shards"),
    [
        (10, 1000, 1),
        (shard_plan.RECORDS_A_SHARD * 3, 1000, 4),
        (shard_plan.RECORDS_A_SHARD * 100, 1000, shard_plan.FEWEST_SHARDS),
        (10, 9 * shard_plan.SHARD_BYTES, 16),
    ],
)
def test_chosen_numbers_are_powers_of_two(records: int, size: int, shards: int) -> None:
    assert counts([spill(train=(records, size))]) == {"train": shards}


def test_more_shards_than_examples_are_refused() -> None:
    with pytest.raises(UsageError, match="the largest split has only 7 examples"):
        shard_plan.plan_shards([spill(train=(7, 70))], shards=8, drawn=True)


def test_no_example_makes_no_shard() -> None:
    assert shard_plan.plan_shards([spill()], shards=None, drawn=True) == []


def test_evaluation_keeps_an_id_that_the_source_has_in_two_splits() -> None:
    spills = [spill(train=(9, 90), validation=(9, 90), test=(9, 90), dev2=(9, 90))]
    before = {spec.split: set(spec.before) for spec in shard_plan.plan_shards(spills, shards=1, drawn=False)}
    assert before == {
        "test": set(),
        "validation": {"test"},
        "dev2": {"test", "validation"},
        "train": {"test", "validation", "dev2"},
    }
    assert not any(spec.before for spec in shard_plan.plan_shards(spills, shards=1, drawn=True))

"""How many shards each split gets."""

import pytest

from t5prep.errors import UsageError
from t5prep.prepare import shard_plan
from t5prep.prepare.shard_writer import ShardSpec


def counts(splits: dict[str, tuple[int, int]], *, shards: int | None = None) -> dict[str, int]:
    """Return the number of shards of each split, given so many records and so many bytes of each."""
    specs = plan(splits, shards=shards, drawn=True)
    assert [(spec.split, spec.number) for spec in specs] == sorted((spec.split, spec.number) for spec in specs)
    return {spec.split: spec.shards for spec in specs}


def plan(splits: dict[str, tuple[int, int]], *, shards: int | None, drawn: bool) -> list[ShardSpec]:
    records, sizes = ({split: both[i] for split, both in splits.items()} for i in (0, 1))
    return shard_plan.plan_shards(records, sizes, shards=shards, drawn=drawn)


def test_the_largest_split_gets_what_was_asked_and_others_their_share() -> None:
    splits = {"train": (800, 8000), "test": (40, 400), "validation": (200, 2000)}
    assert counts(splits, shards=8) == {"train": 8, "validation": 2, "test": 1}


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
    assert counts({"train": (records, size)}) == {"train": shards}


def test_more_shards_than_examples_are_refused() -> None:
    with pytest.raises(UsageError, match="the largest split has only 7 examples"):
        plan({"train": (7, 70)}, shards=8, drawn=True)


def test_no_example_makes_no_shard() -> None:
    assert plan({}, shards=None, drawn=True) == []


def test_evaluation_keeps_an_id_that_the_source_has_in_two_splits() -> None:
    splits = dict.fromkeys(("train", "validation", "test", "dev2"), (9, 90))
    before = {spec.split: set(spec.before) for spec in plan(splits, shards=1, drawn=False)}
    assert before == {
        "test": set(),
        "validation": {"test"},
        "dev2": {"test", "validation"},
        "train": {"test", "validation", "dev2"},
    }
    assert not any(spec.before for spec in plan(splits, shards=1, drawn=True))

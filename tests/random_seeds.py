"""The seeds that a test draws its inputs from: always the same, or those that T5PREP_SEEDS tells."""

import os

# Whether somebody looks for faults by hand, or `make fuzz` does.
ARE_GIVEN = bool(os.environ.get("T5PREP_SEEDS"))


def seeds(count: int) -> range:
    """Return the first seeds; with T5PREP_SEEDS=500 so many, with T5PREP_SEEDS=7000:500 from 7000 on."""
    first, _, seed_count = os.environ.get("T5PREP_SEEDS", "").rpartition(":")
    begin = int(first or 0)
    return range(begin, begin + int(seed_count or count))

"""What is counted of records adds up, however they were dealt to shards."""

import dataclasses

import numpy as np
import pytest

from t5prep.preparation import record_counts
from t5prep.preparation.record_counts import Counts
from t5prep.preparation.spills import ENTRY


def entries(count: int, *, seed: int = 0) -> np.ndarray:
    """Return entries of records: some of them cut, in three classes."""
    random = np.random.default_rng(seed)
    made = np.zeros(count, ENTRY)
    made["high"], made["low"] = random.integers(0, 1 << 62, count), np.arange(count)
    made["inputs"] = random.integers(4, 65, count)
    made["tokens"] = np.where(made["inputs"] == 64, 64 + random.integers(1, 900, count), made["inputs"])
    made["targets"] = made["target_tokens"] = 2
    made["target"], made["markup"] = random.integers(1, 4, count), random.integers(0, 2, count)
    return made


def count(some: np.ndarray, *, marked: bool = True) -> Counts:
    labels = {digest: (digest, 1) for digest in np.unique(some["target"]).tolist()}
    return record_counts.count(some, labels=labels, marked=marked, name=lambda i: f"record {some['low'][i]}")


@pytest.mark.parametrize("parts", [2, 7])
def test_the_counts_of_parts_are_those_of_the_whole(parts: int) -> None:
    made = entries(400)
    added = sum((count(part) for part in np.array_split(made, parts)), Counts())
    assert dataclasses.asdict(added) == dataclasses.asdict(count(made))


def test_a_marker_is_no_token_of_the_text() -> None:
    made = entries(400)
    cut = int((made["tokens"] > made["inputs"]).sum())
    assert cut
    assert count(made).lost - count(made, marked=False).lost == cut


def test_the_rows_that_lost_most_are_named_in_order() -> None:
    made = entries(400)
    worst = count(made).worst
    lost = sorted((made["tokens"].astype(int) - made["inputs"] + 1)[made["tokens"] > made["inputs"]].tolist())
    assert [one.lost for one in worst] == lost[::-1][: record_counts.WORST]
    assert worst[0].id == f"record {made['low'][int(np.argmax(made['tokens'].astype(int) - made['inputs']))]}"


def test_too_many_different_targets_are_no_labels() -> None:
    many = record_counts.MOST_LABELS
    one = Counts(records=many, labels={(i, 1): (0, 1) for i in range(many)})
    other = Counts(records=1, labels={(many, 1): (0, 1)})
    assert (one + one).labels == {(i, 1): (0, 2) for i in range(many)}
    assert (one + other).labels is None
    assert not record_counts.is_classification(one + other)

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
    record_entries = np.zeros(count, ENTRY)
    record_entries["high"], record_entries["low"] = random.integers(0, 1 << 62, count), np.arange(count)
    record_entries["inputs"] = random.integers(4, 65, count)
    record_entries["tokens"] = np.where(
        record_entries["inputs"] == 64, 64 + random.integers(1, 900, count), record_entries["inputs"]
    )
    record_entries["targets"] = record_entries["target_tokens"] = 2
    record_entries["target"], record_entries["markup"] = random.integers(1, 4, count), random.integers(0, 2, count)
    return record_entries


def count(record_entries: np.ndarray, *, marked: bool = True) -> Counts:
    labels = {digest: (digest, 1) for digest in np.unique(record_entries["target"]).tolist()}
    return record_counts.count(
        record_entries, labels=labels, marked=marked, name=lambda i: f"record {record_entries['low'][i]}"
    )


@pytest.mark.parametrize("parts", [2, 7])
def test_the_counts_of_parts_are_those_of_the_whole(parts: int) -> None:
    record_entries = entries(400)
    added = sum((count(part) for part in np.array_split(record_entries, parts)), Counts())
    assert dataclasses.asdict(added) == dataclasses.asdict(count(record_entries))


def test_a_marker_is_no_token_of_the_text() -> None:
    record_entries = entries(400)
    cut = int((record_entries["tokens"] > record_entries["inputs"]).sum())
    assert cut
    assert count(record_entries).inputs_lost - count(record_entries, marked=False).inputs_lost == cut


def test_the_rows_that_lost_most_are_named_in_order() -> None:
    record_entries = entries(400)
    worst = count(record_entries).worst
    lost_tokens = sorted(
        (record_entries["tokens"].astype(int) - record_entries["inputs"] + 1)[
            record_entries["tokens"] > record_entries["inputs"]
        ].tolist()
    )
    assert [record.tokens_lost for record in worst] == lost_tokens[::-1][: record_counts.WORST]
    assert (
        worst[0].id
        == f"record {record_entries['low'][int(np.argmax(record_entries['tokens'].astype(int) - record_entries['inputs']))]}"
    )


def test_too_many_different_targets_are_no_labels() -> None:
    label_count = record_counts.MOST_LABELS
    full_counts = Counts(records=label_count, labels={(i, 1): (0, 1) for i in range(label_count)})
    extra_counts = Counts(records=1, labels={(label_count, 1): (0, 1)})
    assert (full_counts + full_counts).labels == {(i, 1): (0, 2) for i in range(label_count)}
    assert (full_counts + extra_counts).labels is None
    assert not record_counts.is_classification(full_counts + extra_counts)

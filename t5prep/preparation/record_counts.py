"""Count facts about records for the manifest, in a form that can be added over shards and splits."""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

# Bucket sizes of the joint length histogram: input and target lengths in tokens are rounded up to a multiple.
STEPS = (16, 4)
# Maximum number of distinct targets of a classification. A dataset with more lists no labels.
MOST_LABELS = 64
# Number of rows listed as those that lost most tokens.
WORST = 10


class CutRow(NamedTuple):
    """A row that was cut: the tokens that it lost, its tokens before, its id, and its position.

    Among rows that lost the same number, those with the first positions are listed, so that the list depends on no
    range of a merge.
    """

    tokens_lost: int
    tokens: int
    id: str
    position: tuple[int, int]


@dataclasses.dataclass
class Counts:
    """Counts of the records of a shard, or of several shards added together.

    * `examples`: examples in the records; more than `records` if they are packed, documents if text is cut into rows.
    * `joint`: records by (input bucket, target bucket) of their lengths; `uncut_lengths`: input lengths before cutting.
    * `labels`: for each target's label ids, records with and without markup; None if there are too many distinct ones.
    * `worst`, `targets_worst`: the inputs and targets that lost most tokens, at most WORST.
    """

    records: int = 0
    examples: int = 0
    inputs: int = 0
    targets: int = 0
    unknown: int = 0
    inputs_cut: int = 0
    inputs_lost: int = 0
    targets_cut: int = 0
    targets_lost: int = 0
    joint: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    uncut_lengths: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    longest: int = 0
    labels: dict[tuple[int, ...], tuple[int, int]] | None = dataclasses.field(default_factory=dict)
    worst: tuple[CutRow, ...] = ()
    targets_worst: tuple[CutRow, ...] = ()

    def __add__(self, other: "Counts") -> "Counts":
        plain = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in dataclasses.fields(self)
            if field.type is int or field.type == "int"
        }
        plain["longest"] = max(self.longest, other.longest)
        labels: dict[tuple[int, ...], tuple[int, int]] | None = None
        if self.labels is not None and other.labels is not None:
            labels = dict(self.labels)
            for label, (marked, plain_text) in other.labels.items():
                counts = labels.get(label, (0, 0))
                labels[label] = counts[0] + marked, counts[1] + plain_text
            labels = labels if len(labels) <= MOST_LABELS else None
        return Counts(
            **plain,
            joint=self.joint + other.joint,
            uncut_lengths=self.uncut_lengths + other.uncut_lengths,
            labels=labels,
            worst=_select_worst(self.worst + other.worst),
            targets_worst=_select_worst(self.targets_worst + other.targets_worst),
        )


def _select_worst(rows: Iterable[CutRow]) -> tuple[CutRow, ...]:
    """Return the rows that lost most tokens, ties by position."""
    return tuple(sorted(rows, key=lambda row: (-row.tokens_lost, row.position))[:WORST])


def count(
    entries: np.ndarray,
    *,
    labels: dict[int, tuple[int, ...]] | None,
    marked: bool,
    name: Callable[[int], str] | None = None,
) -> Counts:
    """Return the counts of rows (`spills.ENTRY[n]`).

    * `labels`: the label ids of each target digest, None if there are too many.
    * `marked`: a cut input has a marker, which is no token of the text.
    * `name`: returns the id of an entry by its index, for the rows that lost most tokens. Without it none are listed.
    """
    inputs_lost, targets_lost = tokens_lost(entries, marked=marked)
    tally: dict[tuple[int, ...], tuple[int, int]] | None = None
    if labels is not None:
        tally = {}
        for digest, ids in labels.items():
            of = entries["markup"][entries["target"] == digest]
            with_markup = int(of.sum())
            tally[ids] = with_markup, len(of) - with_markup
    return Counts(
        records=len(entries),
        examples=len(entries),
        inputs=int(entries["inputs"].sum()),
        targets=int(entries["targets"].sum()),
        unknown=int(entries["unknown"].sum()),
        inputs_cut=int(np.count_nonzero(inputs_lost)),
        inputs_lost=int(inputs_lost.sum()),
        targets_cut=int(np.count_nonzero(targets_lost)),
        targets_lost=int(targets_lost.sum()),
        joint=joint(entries["inputs"], entries["targets"]),
        uncut_lengths=collections.Counter(_bucket(entries["tokens"], STEPS[0]).tolist()),
        longest=int(entries["tokens"].max(initial=0)),
        labels=tally,
        worst=_worst(inputs_lost, "tokens", entries, name),
        targets_worst=_worst(targets_lost, "target_tokens", entries, name),
    )


def tokens_lost(entries: np.ndarray | Mapping[str, np.ndarray], *, marked: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that cutting removed from each input and from each target, `int64[n]` each.

    `entries` are `spills.ENTRY[n]`, or columns of these names. `marked` is that of `count`.
    """
    cut = entries["tokens"] > entries["inputs"]
    kept_tokens = entries["inputs"].astype(np.int64) - (cut & marked)
    targets_lost = entries["target_tokens"].astype(np.int64) - entries["targets"]
    return np.where(cut, entries["tokens"] - kept_tokens, 0), np.maximum(targets_lost, 0)


def _worst(
    lost_tokens: np.ndarray, tokens: str, entries: np.ndarray, name: Callable[[int], str] | None
) -> tuple[CutRow, ...]:
    """Return the entries that lost most tokens. `tokens` is the column with their length before cutting."""
    if name is None:
        return ()
    first = np.lexsort((entries["low"], entries["high"], -lost_tokens))[:WORST]
    return tuple(
        CutRow(int(lost_tokens[i]), int(entries[tokens][i]), name(i), (int(entries["high"][i]), int(entries["low"][i])))
        for i in first.tolist()
        if lost_tokens[i]
    )


def joint(inputs: np.ndarray, targets: np.ndarray) -> collections.Counter:
    """Return the number of records for each (input bucket, target bucket)."""
    return collections.Counter(
        zip(_bucket(inputs, STEPS[0]).tolist(), _bucket(targets, STEPS[1]).tolist(), strict=True)
    )


def _bucket(lengths: np.ndarray, step: int) -> np.ndarray:
    """Return lengths rounded up to a multiple of `step`."""
    return -(-lengths.astype(np.int64) // step) * step


def percentiles(histogram: collections.Counter) -> dict[str, int]:
    """Return p50, p90, p95 and p99 of a histogram {bucket: count}, each as the first bucket that reaches it.

    >>> percentiles(collections.Counter({16: 90, 32: 9, 512: 1}))
    {'p50': 16, 'p90': 16, 'p95': 32, 'p99': 32}
    """
    total, reached, reached_at = sum(histogram.values()), 0, {}
    percents = [50, 90, 95, 99]
    for bucket, number in sorted(histogram.items()):
        reached += number
        while percents and reached * 100 >= percents[0] * total:
            reached_at[f"p{percents.pop(0)}"] = bucket
    return reached_at


def is_classification(counts: Counts) -> bool:
    """Check whether the targets of a dataset are class labels: few distinct ones, each twice on average.

    >>> is_classification(Counts(records=6, labels={(5,): (1, 2), (6,): (0, 3)}))
    True
    >>> is_classification(Counts(records=3, labels={(5,): (1, 0), (6,): (0, 1), (7,): (0, 1)}))
    False
    """
    return counts.labels is not None and counts.records >= 2 * len(counts.labels)


def association(labels: dict[tuple[int, ...], tuple[int, int]]) -> float:
    """Return Cramér's V between label and markup: 0 for no association, 1 if one determines the other.

    >>> association({(5,): (10, 0), (6,): (0, 10)}), association({(5,): (10, 0), (6,): (10, 0)})
    (1.0, 0.0)
    """
    columns = [sum(counts[side] for counts in labels.values()) for side in (0, 1)]
    total = sum(columns)
    if len(labels) < 2 or not all(columns):
        return 0.0
    chi = 0.0
    for counts in labels.values():
        for side in (0, 1):
            expected = sum(counts) * columns[side] / total
            chi += (counts[side] - expected) ** 2 / expected if expected else 0.0
    return math.sqrt(chi / total)

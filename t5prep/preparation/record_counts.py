"""Count what the manifest says of records, in a form that adds up over shards and splits."""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

# Steps of the joint length histogram: (input, target) tokens, each rounded up to a multiple.
STEPS = (16, 4)
# A dataset with more different targets than this is not a classification, and its labels are not listed.
MOST_LABELS = 64
# The rows that are named because they lost most.
WORST = 10


class TruncatedRow(NamedTuple):
    """The tokens that cutting took from one row, and how many it had.

    `place` is the row's position: of rows that lost as much, the first are named, however shards were read in parts.
    """

    lost: int
    tokens: int
    id: str
    place: tuple[int, int]


@dataclasses.dataclass
class Counts:
    """Counts of the records of one shard, or of several added together.

    `examples` are those that the records were made of: more than records where they are packed, documents where text is
    cut into rows.
    `joint` counts kept lengths (input bucket, target bucket), `before` input tokens before cutting, in the same steps.
    `labels` counts (label ids, with markup, without); None when there are too many different ones. `worst` are the inputs
    that lost most, and `targets_worst` the targets, at most WORST of each.
    """

    records: int = 0
    examples: int = 0
    inputs: int = 0
    targets: int = 0
    unknown: int = 0
    cut: int = 0
    lost: int = 0
    targets_cut: int = 0
    targets_lost: int = 0
    joint: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    before: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    longest: int = 0
    labels: dict[tuple[int, ...], tuple[int, int]] | None = dataclasses.field(default_factory=dict)
    worst: tuple[TruncatedRow, ...] = ()
    targets_worst: tuple[TruncatedRow, ...] = ()

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
            before=self.before + other.before,
            labels=labels,
            worst=_select_worst(self.worst + other.worst),
            targets_worst=_select_worst(self.targets_worst + other.targets_worst),
        )


def _select_worst(rows: Iterable[TruncatedRow]) -> tuple[TruncatedRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.lost, row.place))[:WORST])


def count(
    entries: np.ndarray,
    *,
    labels: dict[int, tuple[int, ...]] | None,
    marked: bool,
    name: Callable[[int], str] | None = None,
) -> Counts:
    """Return the counts of rows (spills.ENTRY[n]).

    `labels` are the label ids of each target digest, where known.

    `marked` says whether a marker takes one place of a cut input, which is not a token of the text; `name` gives the id of
    an entry, for those that lost most.
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
        cut=int(np.count_nonzero(inputs_lost)),
        lost=int(inputs_lost.sum()),
        targets_cut=int(np.count_nonzero(targets_lost)),
        targets_lost=int(targets_lost.sum()),
        joint=joint(entries["inputs"], entries["targets"]),
        before=collections.Counter(_bucket(entries["tokens"], STEPS[0]).tolist()),
        longest=int(entries["tokens"].max(initial=0)),
        labels=tally,
        worst=_worst(inputs_lost, "tokens", entries, name),
        targets_worst=_worst(targets_lost, "target_tokens", entries, name),
    )


def tokens_lost(entries: np.ndarray | Mapping[str, np.ndarray], *, marked: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return how many tokens cutting took from the input and from the target of each row (spills.ENTRY[n]): int64[n] each."""
    cut = entries["tokens"] > entries["inputs"]
    kept_tokens = entries["inputs"].astype(np.int64) - (cut & marked)
    targets_lost = entries["target_tokens"].astype(np.int64) - entries["targets"]
    return np.where(cut, entries["tokens"] - kept_tokens, 0), np.maximum(targets_lost, 0)


def _worst(
    lost_tokens: np.ndarray, tokens: str, entries: np.ndarray, name: Callable[[int], str] | None
) -> tuple[TruncatedRow, ...]:
    """Return the entries that lost most; `tokens` is the column of their tokens before cutting."""
    if name is None:
        return ()
    first = np.lexsort((entries["low"], entries["high"], -lost_tokens))[:WORST]
    return tuple(
        TruncatedRow(
            int(lost_tokens[i]), int(entries[tokens][i]), name(i), (int(entries["high"][i]), int(entries["low"][i]))
        )
        for i in first.tolist()
        if lost_tokens[i]
    )


def joint(inputs: np.ndarray, targets: np.ndarray) -> collections.Counter:
    """Return how many records have which lengths: {(input bucket, target bucket): count}."""
    return collections.Counter(
        zip(_bucket(inputs, STEPS[0]).tolist(), _bucket(targets, STEPS[1]).tolist(), strict=True)
    )


def _bucket(lengths: np.ndarray, step: int) -> np.ndarray:
    return -(-lengths.astype(np.int64) // step) * step


def percentiles(histogram: collections.Counter) -> dict[str, int]:
    """Return p50, p90, p95 and p99 of a histogram {bucket: count}: the bucket that reaches each.

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
    """Return whether the targets of a whole dataset are labels: few different ones, and each of them twice on average.

    >>> is_classification(Counts(records=6, labels={(5,): (1, 2), (6,): (0, 3)}))
    True
    >>> is_classification(Counts(records=3, labels={(5,): (1, 0), (6,): (0, 1), (7,): (0, 1)}))
    False
    """
    return counts.labels is not None and counts.records >= 2 * len(counts.labels)


def association(labels: dict[tuple[int, ...], tuple[int, int]]) -> float:
    """Return Cramér's V between a row's label and whether it holds markup: 0 is none, 1 is that one tells the other.

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

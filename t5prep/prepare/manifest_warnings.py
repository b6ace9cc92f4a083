"""Warn of what a model would learn wrongly from a prepared dataset, each time with the option that mends it."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from t5prep.dataset.settings import Settings
from t5prep.prepare import record_counts

# From this association (Cramér's V) on, markup tells the label well enough to warn.
STRONG_ASSOCIATION = 0.3
# A larger share of cut targets is worth a warning; of cut labels, any share is.
MANY_TARGETS_CUT = 0.05
# Packing wins little when one side of its rows is at least this full and the other at most this full.
FULL_SHARE, EMPTY_SHARE = 0.8, 0.6
# The side that is mostly padding is advised so much more room than its mean, because rows differ.
SPARE = 1.5

# So many rows without an example are hardly meant.
MANY_REJECTED = 0.1


def all_of(
    total: record_counts.Counts,
    settings: Settings,
    *,
    label_name: Callable[[Sequence[int]], str],
    splits: Collection[str],
    rows_read: int,
    rejected: Mapping[str, int],
    rejected_for: Mapping[str, int],
    hides_spans: bool,
    without_markup: str,
) -> list[str]:
    """Return the warnings of a preparation as sentences, always in the same order.

    `total` are the counts of all `splits` that have records, `rejected` the rows of each kind of reason, `rejected_for`
    those of each whole reason; `without_markup` is the option that takes markup out of the texts, or "".
    `label_name` returns the name of a class by its label ids.
    """
    labelled = record_counts.is_classification(total)
    warnings = [
        *(_markup(total, label_name, remedy=without_markup) if labelled else []),
        *rejected_rows(rows_read, rejected, rejected_for),
        *([] if hides_spans else one_target(total.examples, total.labels, rejected=bool(rejected))),
        *empty_splits(settings.splits or (), splits),
        *_targets_cut(total, settings, labelled=labelled),
    ]
    return [*warnings, *_badly_packed(total, settings)] if settings.layout == "packed" else warnings


def _targets_cut(counts: record_counts.Counts, settings: Settings, *, labelled: bool) -> list[str]:
    """Warn of cut targets: a model learns to stop in the middle, and a cut label is not a word any more."""
    if counts.targets_cut <= (0 if labelled else MANY_TARGETS_CUT * counts.examples):
        return []
    longest = counts.targets_worst[0].tokens
    return [
        f"{counts.targets_cut / max(1, counts.examples):.0%} of the targets are longer than {settings.target_length} tokens and "
        f"are cut, so a model learns to stop early. Prepare with --target-length {longest} to keep all of them whole"
    ]


def _badly_packed(counts: record_counts.Counts, settings: Settings) -> list[str]:
    """Warn of rows with one side full and the other mostly padding, and say how long one of the sides should be.

    The full side is made longer, unless that would more than double it: then the other side is made shorter.
    """
    room = {"input": settings.input_length, "target": settings.target_length}
    tokens = {"input": counts.inputs, "target": counts.targets}
    filled = {side: tokens[side] / max(1, counts.records * room[side]) for side in room}
    full, empty = sorted(filled, key=lambda side: filled[side], reverse=True)
    if filled[empty] > EMPTY_SHARE or filled[full] < FULL_SHARE:
        return []
    longer = -(-room[empty] * tokens[full] // max(1, tokens[empty]))
    change = f"--{full}-length {longer} to fill both"
    if full == "input" and longer > 2 * room[full]:
        longest = max(map(len, counts.labels or ()), default=0)
        shorter = max(longest, math.ceil(SPARE * tokens[empty] / max(1, counts.records)))
        if shorter >= room[empty]:
            return []
        change = f"--{empty}-length {shorter}, which leaves room enough"
    return [
        f"packed rows are full of {full}s while {1 - filled[empty]:.0%} of their {empty}s is padding. Prepare with {change}"
    ]


def _markup(total: record_counts.Counts, label_name: Callable[[Sequence[int]], str], *, remedy: str) -> list[str]:
    """Warn of markup that gives the label away, in numbers; `remedy` is the option that takes the markup out."""
    labels = total.labels
    if not labels or (strength := record_counts.association(labels)) < STRONG_ASSOCIATION:
        return []
    shares = ", ".join(
        f"{marked / (marked + plain):.0%} of {label_name(ids)}" for ids, (marked, plain) in sorted(labels.items())
    )
    return [
        f"markup tells the label (Cramér's V {strength:.2f}): {shares} hold HTML tags, so a model can read the label off "
        f"them instead of the text. {f'Prepare without markup: {remedy}' if remedy else 'Take it out of the source.'}"
    ]


def rejected_rows(rows: int, rejected: Mapping[str, int], words: Mapping[str, int]) -> Iterator[str]:
    """Yield what to say of `rows` rows of which some were rejected: by reason, and by the reason in all its `words`."""
    total = sum(rejected.values())
    if total > MANY_REJECTED * rows:
        most = max(sorted(rejected), key=lambda reason: rejected[reason])
        yield (
            f"{100 * total // rows}% of all rows were rejected, most often for: "
            f"{_commonest(most, rejected[most], words) or f'{most} ({rejected[most]:,})'}. All are in rejected.jsonl"
        )
    if other := rejected.get("not utf-8"):
        yield (
            f"{other:,} rows hold bytes that are not UTF-8 and were rejected. If the files are in another encoding, say it, "
            "as in --encoding cp1252"
        )


def _commonest(reason: str, rows: int, words: Mapping[str, int]) -> str:
    """Return the whole words of a reason that half of its rows share, and how many these are, or "".

    They say which value it is, and the option that mends it.
    """
    fitting = {text: number for text, number in words.items() if text.partition(":")[0] == reason}
    most = max(fitting, key=lambda text: fitting[text], default="")
    return f"{most} ({fitting[most]:,})" if most and 2 * fitting[most] >= rows else ""


def one_target(examples: int, labels: Collection[object] | None, *, rejected: bool) -> Iterator[str]:
    """Yield what to say of examples that all have one target; `labels` are the different ones, None where they are many.

    >>> list(one_target(2, ["yes"], rejected=False))
    ['all 2 examples have the same target, so a model will always answer that. Is a class missing?']
    """
    if labels is not None and len(labels) == 1 and examples > 1:
        yield (
            f"all {examples:,} examples have the same target, so a model will always answer that. Is a class missing?"
            f"{' See what was rejected in rejected.jsonl' if rejected else ''}"
        )


def empty_splits(asked: Collection[str], there: Collection[str]) -> Iterator[str]:
    """Yield what to say of splits that were asked for and have no record.

    >>> list(empty_splits(["train", "validation"], ["train"]))
    ['no row fell into the split validation, so that there is nothing to evaluate on. Give it a larger share: --splits']
    """
    for split in asked:
        if split not in there:
            nothing = "train on" if split == "train" else "evaluate on"
            yield (
                f"no row fell into the split {split}, so that there is nothing to {nothing}. Give it a larger share: --splits"
            )

"""Warn about rows: too many without an example, a class that is missing, a split without rows."""

from collections.abc import Collection, Iterator, Mapping

# So many rows without an example are hardly meant.
MANY_REJECTED = 0.1


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

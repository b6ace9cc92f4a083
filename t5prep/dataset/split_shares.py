"""Read how rows are divided into splits, as typed: `train=0.9,validation=0.1`, or `validation=15000`."""

from collections.abc import Mapping

from t5prep.errors import UsageError
from t5prep.tasks.example import is_split_name

_EXAMPLE = "Write it like this: --splits train=0.9,validation=0.1 or --splits validation=15000"


def parse_splits(text: str) -> dict[str, float]:
    """Return `train=0.9,validation=0.1` as shares that add up to 1; whole numbers above 1 are numbers of rows.

    Shares are of the rows that are left when those numbers are taken; without shares, these rows are for training.
    Raises UsageError.

    >>> parse_splits("train=0.9,validation=0.1")
    {'train': 0.9, 'validation': 0.1}
    >>> parse_splits("validation=15000")
    {'validation': 15000.0, 'train': 1.0}
    """
    splits: dict[str, float] = {}
    for item in text.split(","):
        name, _, share = item.strip().partition("=")
        try:
            splits[name] = float(share)
        except ValueError:
            raise UsageError(f'--splits "{text}": "{item}" is not name=share or name=rows. {_EXAMPLE}') from None
        if not is_split_name(name) or not _is_size(splits[name]):
            raise UsageError(
                f'--splits "{text}": "{item}" is not a name and a share between 0 and 1, or a number of rows. {_EXAMPLE}'
            )
    rest = [size for size in splits.values() if size <= 1]
    twice = len(splits) != text.count(",") + 1
    if counts(splits) and not rest and "train" not in splits:
        splits["train"], rest = 1.0, [1.0]
    if twice or abs(sum(rest) - 1) > 1e-6:
        raise UsageError(f'--splits "{text}": each name once, and the shares must add up to 1. {_EXAMPLE}')
    return splits


def parse_held_out(text: str) -> float:
    """Return a share between 0 and 1, or a whole number of rows. Raises UsageError.

    >>> parse_held_out("0.05"), parse_held_out("500")
    (0.05, 500.0)
    """
    try:
        size = float(text)
    except ValueError:
        size = 0
    if not _is_size(size) or size == 1:
        raise UsageError(f'--held-out "{text}": it is a share, as in --held-out 0.05, or rows, as in --held-out 500')
    return size


def counts(splits: Mapping[str, float]) -> dict[str, int]:
    """Return the splits that are given as numbers of rows."""
    return {name: int(size) for name, size in splits.items() if size > 1}


def _is_size(size: float) -> bool:
    """Check whether a number is a share of rows, or a number of rows."""
    return 0 < size <= 1 or (1 < size < float("inf") and size == int(size))

"""Compute word and character accuracy of restored text."""

from collections.abc import Sequence

from t5prep.train.metrics.answers import References, with_references


def diacritics(references: Sequence[References], predictions: Sequence[str]) -> dict[str, float]:
    """Return word and character accuracy of restored text: the share in both texts, in order, over the whole corpus.

    Missing and additional words both count as errors: the share is of the longer of the two texts.

    >>> diacritics(["și țara"], ["si țara"])
    {'word_accuracy': 0.5, 'char_accuracy': 0.8571428571428571}
    """
    pairs = [(right[0], predicted) for right, predicted in with_references(references, predictions)]
    words = [(right.split(), predicted.split()) for right, predicted in pairs]
    return {"word_accuracy": _share_in_common(words), "char_accuracy": _share_in_common(pairs)}


def _share_in_common(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    longest = sum(max(len(one), len(other)) for one, other in pairs)
    return sum(common_length(one, other) for one, other in pairs) / longest if longest else 1.0


def common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, a bit for each item (Hyyrö 2004): linear for sentences."""
    places: dict[str, int] = {}
    for at, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << at
    whole = (1 << len(one)) - 1
    rows = whole
    for item in other:
        met = rows & places.get(item, 0)
        rows = (rows + met | rows - met) & whole
    return len(one) - rows.bit_count()

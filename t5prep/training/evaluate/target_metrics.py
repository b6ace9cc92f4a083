"""Score answers that are no texts: spans marked by tags of words, sets of labels, numbers, and rankings."""

import re
from collections.abc import Sequence

import numpy as np

# The tags of spans: O is outside; the others give the position in a span (begin, inside, end, single word) and its kind.
SPAN_TAG = re.compile(r"O|[BIES]-.+")
Span = tuple[str, int, int]


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans that tags mark: kind, first word, and last word. As in seqeval, a span may begin with I.

    >>> spans_of(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [('PER', 0, 1), ('LOC', 3, 3), ('LOC', 4, 4)]
    """
    spans: list[Span] = []
    begin, previous_position, kind = 0, "O", ""
    for number, tag in enumerate([*tags, "O"]):
        position, _, tag_kind = tag.partition("-")
        is_boundary = tag_kind != kind or position in "BSO" or previous_position in "ESO"
        if is_boundary and previous_position != "O":
            spans.append((kind, begin, number - 1))
        if is_boundary:
            begin = number
        previous_position, kind = position, tag_kind
    return spans


def of_spans(right: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return precision, recall and F1 over the spans of all rows: a span is right if its kind and both its ends are.

    >>> of_spans([["B-PER", "I-PER", "O"]], [["B-PER", "O", "B-LOC"]])["f1"]
    0.0
    """
    both = [
        (set(spans_of(targets)), set(spans_of(predicted_tags)))
        for targets, predicted_tags in zip(right, predicted, strict=True)
    ]
    hits, targets, predictions = (
        sum(map(len, span_sets)) for span_sets in ((a & b for a, b in both), *zip(*both, strict=True))
    )
    return {
        "precision": hits / predictions if predictions else 0.0,
        "recall": hits / targets if targets else 0.0,
        "f1": 2 * hits / (targets + predictions) if targets + predictions else 0.0,
    }


def of_labels(right: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return F1 over all labels (micro), the mean of each label's (macro), and the share of rows with all labels right.

    Both are 0 or 1, int[rows, labels]. A label that is neither a target nor predicted counts as 0, as in scikit-learn.

    >>> of_labels(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [1, 0]]))
    {'micro_f1': 0.8, 'macro_f1': 0.5, 'exact_match': 0.5}
    """
    hits, both = (right & predicted).sum(axis=0), right.sum(axis=0) + predicted.sum(axis=0)
    return {
        "micro_f1": float(2 * hits.sum() / max(both.sum(), 1)),
        "macro_f1": float((2 * hits / np.maximum(both, 1)).mean()),
        "exact_match": float((right == predicted).all(axis=1).mean()),
    }


def of_numbers(right: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the mean squared error, and the correlations of Pearson and of Spearman; 0 where all are one number.

    >>> of_numbers(np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 9.0]))["spearman"]
    1.0
    """
    return {
        "mse": float(np.mean((right - predicted) ** 2)),
        "pearson": _correlation(right, predicted),
        "spearman": _correlation(_ranks(right), _ranks(predicted)),
    }


RANKED = 10  # the number of first texts of a query whose order counts


def of_rankings(queries: Sequence[bytes], right: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return MRR@10 and NDCG@10 of each query's texts, ranked by their predicted numbers; {} if no query counts.

    A text is relevant if its right number is above 0; that number is its gain in NDCG. Means are over the queries that have
    several texts, at least one of them relevant. Of equal predictions the less relevant text ranks first, so a model that
    predicts one number for all texts does not look good.

    >>> of_rankings([b"q", b"q", b"q"], np.array([0.0, 2.0, 1.0]), np.array([0.9, 0.5, 0.1]))["mrr_at_10"]
    0.5
    """
    discounts = 1.0 / np.log2(np.arange(RANKED) + 2.0)
    gains = np.maximum(right, 0.0)
    places: dict[bytes, list[int]] = {}
    for row, query in enumerate(queries):
        places.setdefault(query, []).append(row)
    reciprocals, shares = [], []
    for rows in places.values():
        order = np.lexsort((gains[rows], -predicted[rows]))
        ranked_gains, best = gains[rows][order][:RANKED], np.sort(gains[rows])[::-1][:RANKED]
        if len(rows) < 2 or not best[0]:
            continue
        first = np.flatnonzero(ranked_gains)
        reciprocals.append(1.0 / (first[0] + 1.0) if len(first) else 0.0)
        shares.append(ranked_gains @ discounts[: len(ranked_gains)] / (best @ discounts[: len(best)]))
    both = {"mrr_at_10": reciprocals, "ndcg_at_10": shares}
    return {name: float(np.mean(values)) for name, values in both.items() if values}


def _correlation(right: np.ndarray, predicted: np.ndarray) -> float:
    right, predicted = right - right.mean(), predicted - predicted.mean()
    scale = float(np.sqrt((right**2).sum() * (predicted**2).sum()))
    return float((right * predicted).sum() / scale) if scale else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, from 1; equal values all get the mean of their ranks."""
    _, of, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray = (ends - (counts - 1) / 2)[of]
    return ranks

"""Compute accuracy, precision, recall, F1 and the confusion matrix of class words."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from t5prep.train.metrics.answers import References, with_references


def classification(
    references: Sequence[References], predictions: Sequence[str], *, classes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return accuracy, precision, recall and F1 (macro, weighted, of each class), and the confusion matrix.

    Words are compared without surrounding spaces; with several references the first counts. `labels` are the `classes` in
    their order, and then others that occur, in alphabetical order. `confusion` has a row and a column for each, and a last
    column for predictions that are not a label; `per_class` holds `precision`, `recall`, `f1` and `support` of each. The
    macro means are over labels that are a target at least once; the weighted means weigh each by its support.

    >>> classification(["low", "high"], ["low", "none"])["confusion"]
    [[0, 0, 1], [0, 1, 0]]
    """
    pairs = [(right[0].strip(), predicted.strip()) for right, predicted in with_references(references, predictions)]
    labels = list(dict.fromkeys([*classes, *sorted({right for right, _ in pairs})]))
    at = {label: place for place, label in enumerate(labels)}
    confusion = np.zeros((len(labels), len(labels) + 1), np.int64)
    for right, predicted in pairs:
        confusion[at[right], at.get(predicted, len(labels))] += 1
    hits, support, chosen = confusion.diagonal(), confusion.sum(axis=1), confusion[:, :-1].sum(axis=0)
    each = {
        "precision": hits / np.maximum(chosen, 1),
        "recall": hits / np.maximum(support, 1),
        "f1": 2 * hits / np.maximum(support + chosen, 1),
    }
    occurs = support > 0
    means = {f"macro_{name}": float(values[occurs].mean()) for name, values in each.items()}
    means |= {f"weighted_{name}": float((values * support).sum() / len(pairs)) for name, values in each.items()}
    rows = zip(labels, *(values.tolist() for values in (*each.values(), support)), strict=True)
    return {
        "accuracy": float(hits.sum() / len(pairs)),
        **means,
        "labels": labels,
        "confusion": confusion.tolist(),
        "per_class": {label: dict(zip((*each, "support"), values, strict=True)) for label, *values in rows},
    }

"""Compute exact match and token F1 of answers, as the script of SQuAD does."""

from collections import Counter
from collections.abc import Sequence

from t5prep.train.metrics.answers import References, normalize_answer, with_references


def squad(references: Sequence[References], predictions: Sequence[str]) -> dict[str, float]:
    """Return exact match and token F1 of normalized answers: the best over an item's references, then the mean.

    Two texts that are both empty after normalization ("the" and "a!") are equal: 1 in both, as in SQuAD's script.

    >>> squad([["the tape", "a head"], "a"], ["Tape.", "the"])
    {'em': 1.0, 'f1': 1.0}
    """
    pairs = with_references(references, predictions)
    exact = [max(normalize_answer(one) == normalize_answer(predicted) for one in right) for right, predicted in pairs]
    overlap = [max(_token_f1(one, predicted) for one in right) for right, predicted in pairs]
    return {"em": sum(exact) / len(exact), "f1": sum(overlap) / len(overlap)}


def _token_f1(reference: str, prediction: str) -> float:
    right, predicted = normalize_answer(reference).split(), normalize_answer(prediction).split()
    shared = (Counter(right) & Counter(predicted)).total()
    return 2 * shared / (len(right) + len(predicted)) if right or predicted else 1.0

"""Compute ROUGE-1, -2 and -L."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from t5prep.train.metrics.answers import References, normalize_answer, with_references

BOOTSTRAP_SAMPLES = 1000  # as in rouge-score

_WORD = re.compile(r"[^\W_]+")


def rouge(
    references: Sequence[References],
    predictions: Sequence[str],
    *,
    normalize: bool = False,
    bootstrap: bool = False,
    seed: int = 0,
) -> dict[str, float]:
    """Return F1 of ROUGE-1, -2 and -L without stemming, and -L's precision and recall: plain means over the items.

    Words are runs of letters and digits of any script (rouge-score's own tokenizer drops "ă" and splits the word);
    on ASCII both agree. `normalize` compares normalized answers, as the Webis evaluation of CausalQA does.
    `bootstrap` adds the ends of the 95 % interval, `_low` and `_high`, from 1,000 resamplings.

    >>> rouge(["Soarele răsare azi"], ["soarele răsare"])["rougeL_precision"]
    1.0
    """
    from rouge_score import rouge_scorer

    kinds = ("rouge1", "rouge2", "rougeL")
    scorer = rouge_scorer.RougeScorer(kinds, tokenizer=_Words())
    prepared: Callable[[str], str] = normalize_answer if normalize else str
    scores = [
        scorer.score_multi([prepared(one) for one in right], prepared(predicted))
        for right, predicted in with_references(references, predictions)
    ]
    columns = {f"{kind}_f1": [score[kind].fmeasure for score in scores] for kind in kinds}
    columns["rougeL_precision"] = [score["rougeL"].precision for score in scores]
    columns["rougeL_recall"] = [score["rougeL"].recall for score in scores]
    values = {name: float(np.mean(column)) for name, column in columns.items()}
    if bootstrap:
        drawn = np.random.Generator(np.random.PCG64(seed)).integers(0, len(scores), (BOOTSTRAP_SAMPLES, len(scores)))
        for name, column in columns.items():
            low, high = np.percentile(np.asarray(column)[drawn].mean(axis=1), (2.5, 97.5))
            values |= {f"{name}_low": float(low), f"{name}_high": float(high)}
    return values


class _Words:
    """Split text of any script into words as rouge-score does: lower case, runs of letters and digits."""

    def tokenize(self, text: str) -> list[str]:
        return _WORD.findall(text.lower())

"""Compute metrics of predictions: `(references, predictions)` → `{name: value}`.

Each item has one correct reference or several; with several, the best match counts. Shares lie between 0 and 1
(BLEU between 0 and 100, as usual). A missing or additional prediction is an error: nothing is cut to fit.
"""

import functools
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from t5prep.errors import UsageError, did_you_mean

# The correct answers of one item.
References = str | Sequence[str]

IGNORE = -100  # the label of positions without a target token
BOOTSTRAP_SAMPLES = 1000  # as in rouge-score

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORD = re.compile(r"[^\W_]+")


def normalize_answer(text: str) -> str:
    """Return text in lower case, without ASCII punctuation and English articles, with single spaces.

    This is what the script of SQuAD does (Rajpurkar et al. 2016).

    >>> normalize_answer("  The  Turing-machine's tape! ")
    'turingmachines tape'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def squad(references: Sequence[References], predictions: Sequence[str]) -> dict[str, float]:
    """Return exact match and token F1 of normalized answers: the best over an item's references, then the mean.

    Two texts that are both empty after normalization ("the" and "a!") are equal: 1 in both, as in SQuAD's script.

    >>> squad([["the tape", "a head"], "a"], ["Tape.", "the"])
    {'em': 1.0, 'f1': 1.0}
    """
    pairs = _items(references, predictions)
    exact = [max(normalize_answer(one) == normalize_answer(predicted) for one in right) for right, predicted in pairs]
    overlap = [max(_token_f1(one, predicted) for one in right) for right, predicted in pairs]
    return {"em": sum(exact) / len(exact), "f1": sum(overlap) / len(overlap)}


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
        for right, predicted in _items(references, predictions)
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


def bleu(references: Sequence[References], predictions: Sequence[str]) -> dict[str, float]:
    """Return corpus BLEU, 0 to 100, by sacrebleu's defaults (13a tokenizer, mixed case, exponential smoothing)."""
    import sacrebleu

    pairs = _items(references, predictions)
    most = max(len(right) for right, _ in pairs)
    # sacrebleu takes a list of first references, one of second ones, ...; an item with fewer has None in later lists.
    columns: Any = [[right[at] if at < len(right) else None for right, _ in pairs] for at in range(most)]
    return {"bleu": sacrebleu.corpus_bleu([predicted for _, predicted in pairs], columns).score}


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
    pairs = [(right[0].strip(), predicted.strip()) for right, predicted in _items(references, predictions)]
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


def diacritics(references: Sequence[References], predictions: Sequence[str]) -> dict[str, float]:
    """Return word and character accuracy of restored text: the share in both texts, in order, over the whole corpus.

    Missing and additional words both count as errors: the share is of the longer of the two texts.

    >>> diacritics(["și țara"], ["si țara"])
    {'word_accuracy': 0.5, 'char_accuracy': 0.8571428571428571}
    """
    pairs = [(right[0], predicted) for right, predicted in _items(references, predictions)]
    words = [(right.split(), predicted.split()) for right, predicted in pairs]
    return {"word_accuracy": _share_in_common(words), "char_accuracy": _share_in_common(pairs)}


def token_accuracy(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Return the share of target tokens that are predicted correctly: both `int[..., length]`, label -100 is not a target.

    >>> token_accuracy([[5, 1, -100]], [[5, 7, 0]])
    {'token_accuracy': 0.5}
    """
    right, predicted = np.asarray(labels), np.asarray(predictions)
    if right.shape != predicted.shape:
        raise ValueError(f"labels have shape {list(right.shape)}, predictions {list(predicted.shape)}")
    targets = right != IGNORE
    return {"token_accuracy": float((right == predicted)[targets].mean()) if targets.any() else 0.0}


def perplexity(losses: ArrayLike, tokens: ArrayLike) -> dict[str, float]:
    """Return the mean loss (nats) over all target tokens and its exponential, from summed losses and token counts.

    >>> perplexity([math.log(2) * 3, math.log(2)], [3, 1])
    {'loss': 0.6931471805599453, 'perplexity': 2.0}
    """
    loss = float(np.sum(losses) / np.sum(tokens))
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}


# The metrics that a task may name: name → function on texts.
METRICS: dict[str, Callable[..., dict[str, Any]]] = {
    "squad": squad,
    "rouge": rouge,
    "normalized_rouge": functools.partial(rouge, normalize=True),
    "bleu": bleu,
    "classification": classification,
    "diacritics": diacritics,
}


def compute(
    names: Iterable[str],
    *,
    references: Sequence[References],
    predictions: Sequence[str],
    classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the values of these metrics in one dictionary; `classes` are the words of a classification, in order.

    Raises UsageError for an unknown metric.
    """
    values: dict[str, Any] = {}
    for name in names:
        if name not in METRICS:
            raise UsageError(f'there is no metric "{name}".{did_you_mean(name, METRICS)} All: {", ".join(METRICS)}.')
        ordered = {"classes": classes} if name == "classification" else {}
        values |= METRICS[name](references, predictions, **ordered)
    return values


# Metrics that are means over items; BLEU and confusion need the whole corpus.
_PER_ITEM = ("squad", "rouge", "normalized_rouge", "diacritics")


def of_each(
    names: Iterable[str], *, references: Sequence[References], predictions: Sequence[str]
) -> list[dict[str, float]]:
    """Return the values of these metrics for each item alone, for the metrics that are means over items.

    >>> of_each(["squad", "bleu"], references=["the tape", "a head"], predictions=["Tape.", "no"])
    [{'em': 1.0, 'f1': 1.0}, {'em': 0.0, 'f1': 0.0}]
    """
    own = [name for name in names if name in _PER_ITEM]
    return [
        compute(own, references=[right], predictions=[predicted])
        for right, predicted in zip(references, predictions, strict=True)
    ]


def _items(references: Sequence[References], predictions: Sequence[str]) -> list[tuple[list[str], str]]:
    """Return each item's references, at least one, with its prediction."""
    if len(references) != len(predictions) or not predictions:
        raise ValueError(
            f"{len(references)} references and {len(predictions)} predictions; as many of both, at least one"
        )
    return [
        ([right] if isinstance(right, str) else list(right) or [""], predicted)
        for right, predicted in zip(references, predictions, strict=True)
    ]


def _token_f1(reference: str, prediction: str) -> float:
    right, predicted = normalize_answer(reference).split(), normalize_answer(prediction).split()
    shared = (Counter(right) & Counter(predicted)).total()
    return 2 * shared / (len(right) + len(predicted)) if right or predicted else 1.0


def _share_in_common(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    longest = sum(max(len(one), len(other)) for one, other in pairs)
    return sum(_common(one, other) for one, other in pairs) / longest if longest else 1.0


def _common(one: Sequence[str], other: Sequence[str]) -> int:
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


class _Words:
    """Split text of any script into words as rouge-score does: lower case, runs of letters and digits."""

    def tokenize(self, text: str) -> list[str]:
        return _WORD.findall(text.lower())

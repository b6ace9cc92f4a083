"""Compute the metrics of texts and classes, and list them in METRICS, where a new metric of texts goes.

Metrics of other targets are in target_metrics.py, and `objectives` chooses among all.
"""

import dataclasses
import functools
import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from t5prep.dataset.manifest import Manifest
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.errors import UsageError, did_you_mean
from t5prep.io.installation import python
from t5prep.json_values import JSON
from t5prep.tokens import scripts

# The correct answers of one item: one, or several of which the best match counts.
References = str | Sequence[str]

MOST_CLASSES = 100  # a confusion matrix of more words than this helps nobody
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Return text in lower case, without ASCII punctuation and English articles, with single spaces.

    The evaluation script of SQuAD does the same (Rajpurkar et al. 2016).

    >>> normalize_answer("  The  Turing-machine's tape! ")
    'turingmachines tape'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def with_references(references: Sequence[References], predictions: Sequence[str]) -> list[tuple[list[str], str]]:
    """Return each item's references, as a list of at least one, with its prediction.

    Raises ValueError if the numbers of references and predictions differ, or are 0.
    """
    if len(references) != len(predictions) or not predictions:
        raise ValueError(
            f"{len(references)} references and {len(predictions)} predictions; as many of both, at least one"
        )
    return [
        ([right] if isinstance(right, str) else list(right) or [""], predicted)
        for right, predicted in zip(references, predictions, strict=True)
    ]


def token_accuracy(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Return the share of target tokens that are predicted correctly.

    Both arguments are int[..., length]; a label of -100 is no target. Raises ValueError if their shapes differ.

    >>> token_accuracy([[5, 1, -100]], [[5, 7, 0]])
    {'token_accuracy': 0.5}
    """
    right, predicted = np.asarray(labels), np.asarray(predictions)
    if right.shape != predicted.shape:
        raise ValueError(f"labels have shape {list(right.shape)}, predictions {list(predicted.shape)}")
    targets = right != IGNORED_LABEL
    return {"token_accuracy": float((right == predicted)[targets].mean()) if targets.any() else 0.0}


def perplexity(losses: ArrayLike, tokens: ArrayLike) -> dict[str, float]:
    """Return the mean loss (nats) of a target token and its exponential, from each row's summed loss and token count.

    >>> perplexity([math.log(2) * 3, math.log(2)], [3, 1])
    {'loss': 0.6931471805599453, 'perplexity': 2.0}
    """
    loss = float(np.sum(losses) / np.sum(tokens))
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}  # math.exp(710) overflows


def classification(
    references: Sequence[References], predictions: Sequence[str], *, classes: Sequence[str] = ()
) -> dict[str, JSON]:
    """Return accuracy, precision, recall and F1 (macro, weighted, of each class), and the confusion matrix.

    Words are compared without surrounding spaces, and only the first reference of an item counts. In the result:

    * `labels` holds the `classes` in their order, then all other targets in alphabetical order.
    * `confusion` has a row and a column for each label, and a last column for predictions that are no label.
    * `per_class` holds `precision`, `recall`, `f1` and `support` of each label.
    * Macro means are over the labels that occur as a target. Weighted means weigh each label by its support.

    >>> classification(["low", "high"], ["low", "none"])["confusion"]
    [[0, 0, 1], [0, 1, 0]]
    """
    pairs = [(right[0].strip(), predicted.strip()) for right, predicted in with_references(references, predictions)]
    labels = list(dict.fromkeys([*classes, *sorted({right for right, _ in pairs})]))
    label_indices = {label: index for index, label in enumerate(labels)}
    confusion = np.zeros((len(labels), len(labels) + 1), np.int64)
    for right, predicted in pairs:
        confusion[label_indices[right], label_indices.get(predicted, len(labels))] += 1
    hits, support, chosen = confusion.diagonal(), confusion.sum(axis=1), confusion[:, :-1].sum(axis=0)
    class_scores = {
        "precision": hits / np.maximum(chosen, 1),
        "recall": hits / np.maximum(support, 1),
        "f1": 2 * hits / np.maximum(support + chosen, 1),
    }
    occurs = support > 0
    means = {f"macro_{name}": float(values[occurs].mean()) for name, values in class_scores.items()}
    means |= {f"weighted_{name}": float((values * support).sum() / len(pairs)) for name, values in class_scores.items()}
    rows = zip(labels, *(values.tolist() for values in (*class_scores.values(), support)), strict=True)
    return {
        "accuracy": float(hits.sum() / len(pairs)),
        **means,
        "labels": labels,
        "confusion": confusion.tolist(),
        "per_class": {label: dict(zip((*class_scores, "support"), values, strict=True)) for label, *values in rows},
    }


def squad(references: Sequence[References], predictions: Sequence[str]) -> dict[str, float]:
    """Return exact match and token F1 of normalized answers: the best over an item's references, then the mean.

    Two texts that are both empty after normalization ("the" and "a!") are equal: 1 in both, as in SQuAD's script.

    >>> squad([["the tape", "a head"], "a"], ["Tape.", "the"])
    {'em': 1.0, 'f1': 1.0}
    """
    pairs = with_references(references, predictions)
    exact = [
        max(normalize_answer(reference) == normalize_answer(predicted) for reference in right)
        for right, predicted in pairs
    ]
    overlap = [max(_token_f1(reference, predicted) for reference in right) for right, predicted in pairs]
    return {"em": sum(exact) / len(exact), "f1": sum(overlap) / len(overlap)}


def _token_f1(reference: str, prediction: str) -> float:
    right, predicted = normalize_answer(reference).split(), normalize_answer(prediction).split()
    shared = (Counter(right) & Counter(predicted)).total()
    return 2 * shared / (len(right) + len(predicted)) if right or predicted else 1.0


BOOTSTRAP_SAMPLES = 1000  # as in rouge-score


def rouge(
    references: Sequence[References],
    predictions: Sequence[str],
    *,
    normalize: bool = False,
    ascii_words: bool = False,
    bootstrap: bool = False,
    seed: int = 0,
) -> dict[str, float]:
    """Return F1 of ROUGE-1, -2, -L and -Lsum without stemming, and -L's precision and recall: plain means over the items.

    Words of all scripts are found by `scripts.words_of`. With `ascii_words` rouge-score's own tokenizer finds them, which
    drops letters such as "ă" and splits words there; the names of the numbers then contain `_ascii`. `normalize` compares
    normalized answers, as the Webis evaluation of CausalQA does. ROUGE-Lsum compares sentences, which end at newlines and at
    " . ", as in T5's own evaluation. `bootstrap` adds the ends of the 95 % interval, `_low` and `_high`, from 1,000
    resamplings drawn by `seed`.

    >>> rouge(["Soarele răsare azi"], ["soarele răsare"])["rougeL_precision"]
    1.0
    """
    from rouge_score import rouge_scorer

    kinds = ("rouge1", "rouge2", "rougeL", "rougeLsum")
    scorer = rouge_scorer.RougeScorer(kinds, tokenizer=None if ascii_words else _Words())
    of = "_ascii" if ascii_words else ""

    def prepared(text: str) -> str:
        return (normalize_answer(text) if normalize else text).replace(" . ", " .\n")

    scores = [
        scorer.score_multi([prepared(reference) for reference in right], prepared(predicted))
        for right, predicted in with_references(references, predictions)
    ]
    columns = {f"{kind}{of}_f1": [score[kind].fmeasure for score in scores] for kind in kinds}
    columns[f"rougeL{of}_precision"] = [score["rougeL"].precision for score in scores]
    columns[f"rougeL{of}_recall"] = [score["rougeL"].recall for score in scores]
    values = {name: float(np.mean(column)) for name, column in columns.items()}
    if bootstrap:
        sample_indices = np.random.Generator(np.random.PCG64(seed)).integers(
            0, len(scores), (BOOTSTRAP_SAMPLES, len(scores))
        )
        for name, column in columns.items():
            low, high = np.percentile(np.asarray(column)[sample_indices].mean(axis=1), (2.5, 97.5))
            values |= {f"{name}_low": float(low), f"{name}_high": float(high)}
    return values


class _Words:
    """Split text of any script into words; rouge-score requires an object with this method."""

    def tokenize(self, text: str) -> list[str]:
        return scripts.words_of(text)


# The metric's name → the tokenizer of sacrebleu, apart from the default, 13a. T5's own evaluation uses "intl".
TOKENIZERS = {
    f"bleu_{name.replace('-', '_')}": name
    for name in ("intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200")
}


def bleu(references: Sequence[References], predictions: Sequence[str], *, metric: str = "bleu") -> dict[str, float]:
    """Return corpus BLEU and chrF2, 0 to 100, by sacrebleu's defaults (mixed case, exponential smoothing).

    `metric` selects the tokenizer (TOKENIZERS). By default words are cut at spaces and punctuation, which does not work for
    Chinese and Japanese. Raises UsageError if a tokenizer's package or model is missing.
    """
    import sacrebleu

    pairs = with_references(references, predictions)
    max_references = max(len(right) for right, _ in pairs)
    # sacrebleu takes a list of first references, one of second ones, ...; an item with fewer has None in later lists.
    columns: Any = [
        [right[index] if index < len(right) else None for right, _ in pairs] for index in range(max_references)
    ]
    answers = [predicted for _, predicted in pairs]
    try:
        score = sacrebleu.corpus_bleu(answers, columns, tokenize=TOKENIZERS.get(metric, "13a")).score
    except (ImportError, RuntimeError, OSError, SystemExit) as error:
        tokenizer = TOKENIZERS.get(metric, "")
        package = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}.get(tokenizer)
        fix = (
            f'Install it: {python()} -m pip install "{package}"'
            if package
            else "Connect this machine to download it once, or use --metric bleu."
        )
        raise UsageError(
            f"{metric} needs sacrebleu's tokenizer {tokenizer}, which is missing ({type(error).__name__}). {fix}",
            code="install.extra-missing",
        ) from error
    return {metric: score, "chrf": sacrebleu.corpus_chrf(answers, columns).score}


def diacritics(references: Sequence[References], predictions: Sequence[str]) -> dict[str, float]:
    """Return word and character accuracy of restored text, over the whole corpus.

    Each is the total length of the longest common subsequences, divided by the total length of the longer texts. Missing and
    additional words both count as errors.

    >>> diacritics(["și țara"], ["si țara"])
    {'word_accuracy': 0.5, 'char_accuracy': 0.8571428571428571}
    """
    pairs = [(right[0], predicted) for right, predicted in with_references(references, predictions)]
    words = [(right.split(), predicted.split()) for right, predicted in pairs]
    return {"word_accuracy": _share_in_common(words), "char_accuracy": _share_in_common(pairs)}


def _share_in_common(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    longest = sum(max(len(reference), len(prediction)) for reference, prediction in pairs)
    return sum(common_length(reference, prediction) for reference, prediction in pairs) / longest if longest else 1.0


def common_length(reference: Sequence[str], prediction: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, by one bit for each item (Hyyrö 2004).

    Operations on integers of a few words are so fast that the time is linear in practice for sentences.
    """
    places: dict[str, int] = {}
    for index, item in enumerate(reference):
        places[item] = places.get(item, 0) | 1 << index
    mask = (1 << len(reference)) - 1
    rows = mask
    for item in prediction:
        met = rows & places.get(item, 0)
        rows = (rows + met | rows - met) & mask
    return len(reference) - rows.bit_count()


@dataclasses.dataclass(frozen=True)
class Number:
    """One number of an evaluation. `hub` is the name of its metric on the Hub; "" if model cards do not report it."""

    hub: str = ""
    lower_is_better: bool = False


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of texts. `compute` maps `(references, predictions)` to `{name: value}`, which includes `numbers`.

    `of_each_item` names the numbers that exist for a single item: None for all, as in a mean over items; empty for BLEU,
    which needs the whole corpus. `takes_classes`: whether `compute` also takes `classes`.
    """

    compute: Callable[..., Mapping[str, JSON]]
    numbers: Mapping[str, Number]
    of_each_item: Sequence[str] | None = None
    takes_classes: bool = False


_ROUGE, _ROUGE_ASCII = (
    {
        **{f"rouge{kind}{of}_f1": Number(hub="rouge") for kind in ("1", "2", "L", "Lsum")},
        f"rougeL{of}_precision": Number(),
        f"rougeL{of}_recall": Number(),
    }
    for of in ("", "_ascii")
)
OF_CLASSES = {
    "accuracy": Number(hub="accuracy"),
    **{f"{mean}_{name}": Number() for mean in ("macro", "weighted") for name in ("precision", "recall", "f1")},
    "macro_f1": Number(hub="f1"),
}
# The metrics that a task may name.
METRICS: Mapping[str, Metric] = {
    "squad": Metric(squad, {"em": Number(hub="exact_match"), "f1": Number(hub="f1")}),
    "rouge": Metric(rouge, _ROUGE),
    "normalized_rouge": Metric(functools.partial(rouge, normalize=True), _ROUGE),
    "rouge_ascii": Metric(functools.partial(rouge, ascii_words=True), _ROUGE_ASCII),
    "normalized_rouge_ascii": Metric(functools.partial(rouge, normalize=True, ascii_words=True), _ROUGE_ASCII),
    **{
        name: Metric(
            functools.partial(bleu, metric=name),
            {name: Number(hub="sacrebleu"), "chrf": Number(hub="chrf")},
            of_each_item=(),
        )
        for name in ("bleu", *TOKENIZERS)
    },
    "classification": Metric(classification, OF_CLASSES, of_each_item=("accuracy",), takes_classes=True),
    "diacritics": Metric(diacritics, {"word_accuracy": Number(), "char_accuracy": Number()}),
}
DEFAULT_METRICS = ("squad", "rouge")  # for a task that names none
# The numbers of every evaluation, which need no answers (`perplexity`, `token_accuracy`).
TOKEN_NUMBERS: Mapping[str, Number] = {
    "loss": Number(lower_is_better=True),
    "perplexity": Number(hub="perplexity", lower_is_better=True),
    "token_accuracy": Number(),
}


def compute(
    names: Iterable[str],
    *,
    references: Sequence[References],
    predictions: Sequence[str],
    classes: Sequence[str] = (),
) -> dict[str, JSON]:
    """Return the values of the metrics `names` in one dictionary. Raises UsageError for an unknown metric.

    `classes` holds the words of a classification, in order.
    """
    values: dict[str, JSON] = {}
    for name in check(names):
        metric = METRICS[name]
        ordered = {"classes": classes} if metric.takes_classes else {}
        values |= metric.compute(references, predictions, **ordered)
    return values


def check(names: Iterable[str]) -> list[str]:
    """Return the metric names without repetitions. Raises UsageError for an unknown one."""
    metric_names = list(dict.fromkeys(names))
    for name in metric_names:
        if name not in METRICS:
            raise UsageError(
                f'No metric is named "{name}".{did_you_mean(name, METRICS)} Choose one of: {", ".join(METRICS)}.',
                code="option.unknown-choice",
            )
    return metric_names


def of_each(
    names: Iterable[str], *, references: Sequence[References], predictions: Sequence[str]
) -> list[dict[str, float]]:
    """Return the values of the metrics `names` for each single item; for classes, whether the answer is right.

    >>> of_each(["squad", "bleu"], references=["the tape", "a head"], predictions=["Tape.", "no"])
    [{'em': 1.0, 'f1': 1.0}, {'em': 0.0, 'f1': 0.0}]
    >>> of_each(["classification"], references=["low", "high"], predictions=["low", "low"])
    [{'accuracy': 1.0}, {'accuracy': 0.0}]
    """
    metrics = [METRICS[name] for name in names]
    # Metrics that have no number for a single item, such as BLEU, are not computed.
    computed = [
        (metric.compute, metric.numbers if metric.of_each_item is None else metric.of_each_item) for metric in metrics
    ]
    scores: list[dict[str, float]] = []
    for right, predicted in zip(references, predictions, strict=True):
        item: dict[str, float] = {}
        for compute_one, numbers in computed:
            values = compute_one([right], [predicted]) if numbers else {}
            item |= {name: value for name in numbers if isinstance(value := values[name], int | float)}
        scores.append(item)
    return scores


def also_scored(number: str, metric_names: Sequence[str]) -> list[str]:
    """Return, in a list, the metric that computes `number` if none of `metric_names` does; else an empty list.

    The list is also empty if `metric_names` is, because such a task has no answers to score.

    >>> also_scored("chrf", ["squad", "rouge"]), also_scored("em", ["squad"]), also_scored("bleu", [])
    (['bleu'], [], [])
    """
    if not metric_names or any(number in METRICS[name].numbers for name in metric_names):
        return []
    giving = (name for name, metric in METRICS.items() if number in metric.numbers and not metric.takes_classes)
    return list(itertools.islice(giving, 1))


def possible(dataset: Manifest, *, split: str, generate: bool, metric: str = "") -> tuple[str, ...]:
    """Return the names of all numbers that an evaluation of `split`, of texts or classes, may have.

    `generate`: whether answers are generated. `metric`: the number that picks the best checkpoint; the metric that computes
    it is added if the task does not name one. The manifest counts target lengths in steps of four tokens. So a split whose
    targets have up to four tokens may be scored as single tokens or as texts, and has the names of both.
    """
    metric_names = of_answers(dataset)
    metric_names += also_scored(metric, metric_names)
    names = dict.fromkeys(TOKEN_NUMBERS)
    of_texts = [name for metric in metric_names or DEFAULT_METRICS for name in METRICS[metric].numbers]
    if may_be_single_tokens(dataset, split=split):
        # An evaluation of a head's few classes has no metrics of texts.
        has_few_classes = 0 < len(dataset.target.classes) <= MOST_CLASSES
        names |= dict.fromkeys(OF_CLASSES if has_few_classes else (*OF_CLASSES, *of_texts))
    if generate and metric_names and not dataset.settings.is_packed and dataset.settings.target_length > 2:
        names |= dict.fromkeys((*of_texts, *(OF_CLASSES if dataset.splits[split].labels else ())))
    return tuple(names)


def of_answers(dataset: Manifest) -> list[str]:
    """Return the metrics that score answers to a dataset; an empty list if its task names only loss and token accuracy."""
    task_metrics = dataset.task.metrics
    return [name for name in task_metrics if name in METRICS] if task_metrics else list(DEFAULT_METRICS)


def may_be_single_tokens(dataset: Manifest, *, split: str) -> bool:
    """Check, by the manifest alone, whether all targets of a split may be one token and EOS.

    One forward pass would then give the answers. `evaluator._are_single_tokens` reads the exact lengths.
    """
    if dataset.settings.is_packed:
        return False
    if dataset.settings.target_length <= 2:
        return True
    lengths = dataset.splits[split].lengths
    step = lengths.get("step", (16, 4))[1]
    return all(targets <= max(step, 2) for _, targets, _ in lengths.get("joint", ()))

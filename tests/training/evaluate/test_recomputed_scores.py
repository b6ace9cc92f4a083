"""The metrics beside the programs that define them: scikit-learn, sacrebleu, rouge-score, and SQuAD's rules written anew.

The answers are drawn from words of this repository's pages: with punctuation, articles, capitals and letters beyond ASCII.
"""

import random
import re
import string

import numpy as np
import pytest
from readme import TEXT

from t5prep.training.evaluate import metrics

CLASSES = ["none", "low", "high", "never chosen"]


def _draw_answers(count: int, *, max_references: int) -> tuple[list[list[str]], list[str]]:
    """Return the right answers of each item, up to `max_references` of them, and an answer that is often nearly one of them."""
    random.seed(7)
    words = [*TEXT.split(), *["the", "a", "An", "țară", "și", "naïve"] * 50]
    texts = [" ".join(random.choices(words, k=random.randint(0, 12))) for _ in range(count)]
    right = [[text, *(random.choice(texts) for _ in range(random.randint(0, max_references - 1)))] for text in texts]
    predictions = []
    for answers in right:
        parts = random.choice(answers).split()
        if random.random() < 0.3:
            parts.reverse()
        predictions.append(" ".join(word for word in parts if random.random() < 0.85))
    return right, predictions


def _normalized(text: str) -> str:
    """Return text by the four rules of SQuAD's script: lower case, no punctuation, no articles, single spaces."""
    letters = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", letters).split())


def _overlap(right: str, prediction: str) -> float:
    """Return the F1 of two answers' words, each word as often as it occurs in both; empty answers are equal or not."""
    ours, theirs = _normalized(right).split(), _normalized(prediction).split()
    if not ours or not theirs:
        return float(ours == theirs)
    remaining_words, shared = list(ours), 0
    for word in theirs:
        if word in remaining_words:
            remaining_words.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(theirs), shared / len(ours)
    return 2 * precision * recall / (precision + recall)


def test_exact_match_and_f1_are_those_of_squads_rules() -> None:
    references, predictions = _draw_answers(400, max_references=3)
    pairs = list(zip(references, predictions, strict=True))
    exact = [
        max(_normalized(reference) == _normalized(prediction) for reference in right) for right, prediction in pairs
    ]
    overlap = [max(_overlap(reference, prediction) for reference in right) for right, prediction in pairs]
    assert metrics.squad(references, predictions) == pytest.approx(
        {"em": np.mean(exact), "f1": np.mean(overlap)}, abs=1e-12
    )
    assert 0.1 < np.mean(exact) < np.mean(overlap) < 0.95


def test_bleu_is_sacrebleus_own() -> None:
    import sacrebleu

    references, predictions = _draw_answers(300, max_references=3)
    first = [right[0] for right in references]
    assert metrics.bleu(first, predictions)["bleu"] == sacrebleu.corpus_bleu(predictions, [first]).score
    columns = [[right[index] if index < len(right) else None for right in references] for index in range(3)]
    several = sacrebleu.corpus_bleu(predictions, columns).score
    assert metrics.bleu(references, predictions)["bleu"] == several
    assert 5 < several < 95


@pytest.mark.parametrize("normalize", [False, True])
def test_rouge_is_the_mean_of_rouge_scores_own(normalize: bool) -> None:
    """Of the best reference. The benchmark of causal_qa normalizes both sides before."""
    from rouge_score import rouge_scorer

    references, predictions = _draw_answers(300, max_references=3)
    prepare = _normalized if normalize else str
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"])

    def sentences(text: str) -> str:
        return prepare(text).replace(" . ", " .\n")

    scores = [
        scorer.score_multi([sentences(reference) for reference in right], sentences(prediction))
        for right, prediction in zip(references, predictions, strict=True)
    ]
    expected = {f"{kind}_ascii_f1": np.mean([score[kind].fmeasure for score in scores]) for kind in scores[0]}
    expected |= {
        f"rougeL_ascii_{side}": np.mean([getattr(score["rougeL"], side) for score in scores])
        for side in ("precision", "recall")
    }
    ours = metrics.rouge(references, predictions, normalize=normalize, ascii_words=True)
    assert ours == pytest.approx(expected, abs=1e-12)
    words = {"normalize": normalize}
    assert metrics.rouge([["ночь"]], ["ночь"], **words)["rougeL_f1"] == 1.0
    assert metrics.rouge([["ночь"]], ["ночь"], ascii_words=True, **words)["rougeL_ascii_f1"] == 0.0


@pytest.mark.extra("sklearn")
@pytest.mark.parametrize("unknown", [False, True])
def test_scores_of_classes_are_those_of_scikit_learn(unknown: bool) -> None:
    """With `unknown`, some answers are no class: a wrong answer, in a last column of the confusion matrix."""
    from sklearn import metrics as theirs

    random.seed(3)
    right = random.choices(CLASSES[:3], weights=[5, 2, 1], k=500)
    predictions = [
        target if random.random() < 0.7 else random.choice([*CLASSES[:3], *["<extra_id_0>"] * unknown])
        for target in right
    ]
    ours = metrics.classification(right, predictions, classes=CLASSES)
    assert ours["accuracy"] == pytest.approx(theirs.accuracy_score(right, predictions))
    matrix = theirs.confusion_matrix(right, predictions, labels=[*CLASSES, "<extra_id_0>"])
    assert np.array_equal(ours["confusion"], matrix[:-1])
    assert np.array(ours["confusion"])[:, -1].any() == unknown
    class_scores = theirs.precision_recall_fscore_support(right, predictions, labels=CLASSES, zero_division=0)
    for index, name in enumerate(("precision", "recall", "f1", "support")):
        assert [ours["per_class"][label][name] for label in CLASSES] == pytest.approx(class_scores[index].tolist())
    for mean in ("macro", "weighted"):
        expected = theirs.precision_recall_fscore_support(
            right, predictions, labels=CLASSES[:3], average=mean, zero_division=0
        )
        assert [ours[f"{mean}_{name}"] for name in ("precision", "recall", "f1")] == pytest.approx(expected[:3])

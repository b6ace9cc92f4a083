"""Spans, sets of labels and numbers are scored as seqeval, scikit-learn and SciPy score them."""

import random
from typing import Any

import numpy as np
import pytest

from t5prep.tasks.targets import TagsTarget
from t5prep.training.evaluate.scoring import Results
from t5prep.training.evaluate.target_metrics import of_labels, of_numbers, of_rankings, of_spans, spans_of
from t5prep.training.objectives import TagsObjective

TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC", "A-B"))]


def draw_tags(rows):
    choose = random.Random(3)
    right = [[choose.choice(TAGS) for _ in range(choose.randint(1, 12))] for _ in range(rows)]
    return right, [[choose.choice(TAGS) if choose.random() < 0.4 else tag for tag in row_tags] for row_tags in right]


@pytest.mark.extra("seqeval")
def test_spans_are_those_of_seqeval():
    from seqeval import metrics as scores
    from seqeval.metrics.sequence_labeling import get_entities

    right, predicted = draw_tags(2_000)
    assert [spans_of(tags) for tags in right] == [get_entities(tags) for tags in right]
    expected = {name: getattr(scores, f"{name}_score")(right, predicted) for name in ("precision", "recall", "f1")}
    assert of_spans(right, predicted) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tags", "spans"),  # what seqeval 1.2.2 gives
    [
        ("O B-PER I-PER", [("PER", 1, 2)]),
        ("I-PER I-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 2)]),
        ("B-PER B-PER O I-PER", [("PER", 0, 0), ("PER", 1, 1), ("PER", 3, 3)]),
        ("B-PER E-PER E-PER S-PER I-PER", [("PER", 0, 1), ("PER", 2, 2), ("PER", 3, 3), ("PER", 4, 4)]),
        ("O O", []),
    ],
)
def test_spans_begin_and_end_where_seqeval_has_them(tags, spans):
    assert spans_of(tags.split()) == spans


def test_nothing_found_is_zero_and_no_error():
    assert of_spans([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


@pytest.mark.extra("sklearn")
def test_labels_are_scored_as_by_scikit_learn():
    from sklearn import metrics as sklearn

    generator = np.random.default_rng(0)
    right, predicted = generator.integers(0, 2, (2, 200, 5))
    right[:, 3] = predicted[:, 3] = 0
    expected = {
        f"{mean}_f1": sklearn.f1_score(right, predicted, average=mean, zero_division=0) for mean in ("micro", "macro")
    }
    assert of_labels(right, predicted) == pytest.approx(
        {**expected, "exact_match": sklearn.accuracy_score(right, predicted)}
    )


def test_numbers_are_scored_as_by_scipy():
    import scipy.stats as stats

    generator = np.random.default_rng(1)
    right, predicted = np.round(generator.normal(size=(2, 300)), 1)  # with equal ones
    actual = of_numbers(right, predicted)
    assert actual["pearson"] == pytest.approx(stats.pearsonr(right, predicted).statistic)
    assert actual["spearman"] == pytest.approx(stats.spearmanr(right, predicted).statistic)
    assert of_numbers(right, np.ones(300))["pearson"] == 0.0


@pytest.mark.extra("sklearn")
def test_rankings_are_scored_as_by_scikit_learn():
    from sklearn import metrics as sklearn

    generator = np.random.default_rng(2)
    right, predicted = generator.integers(0, 4, (30, 15)).astype(float), generator.normal(size=(30, 15))
    queries = [bytes([row]) for row in range(30) for _ in range(15)]
    actual = of_rankings(queries, right.ravel(), predicted.ravel())
    assert actual["ndcg_at_10"] == pytest.approx(sklearn.ndcg_score(right, predicted, k=10))


def test_rankings_count_queries_with_several_texts_and_a_relevant_one():
    queries = [b"a", b"b", b"b", b"c", b"c", *[b"d"] * 12]
    right = np.array([1.0, 0.0, 2.0, 0.0, 0.0, *[0.0] * 11, 1.0])
    predicted = np.array([0.1, 0.7, 0.7, 0.2, 0.1, *np.arange(12, 0, -1.0)])
    # b: of equal predictions the irrelevant text is first; d: the relevant text is the twelfth
    actual = of_rankings(queries, right, predicted)
    assert actual == pytest.approx({"mrr_at_10": (1 / 2 + 0) / 2, "ndcg_at_10": (1 / np.log2(3) + 0) / 2})
    assert of_rankings([b"a", b"b"], np.ones(2), np.ones(2)) == {}


def test_tags_that_mark_no_spans_have_no_spans():
    text_metrics: Any = None  # metrics of texts
    results = Results(np.array([[0, -100, 1]]), np.array([[0, 1, 0]]))
    scored = TagsObjective(TagsTarget(("NOUN", "VERB"))).score(results, text_metrics)
    assert (scored.values, scored.references, scored.answers) == ({}, [["NOUN VERB"]], ["NOUN NOUN"])
    scored = TagsObjective(TagsTarget(("B-X", "O"))).score(results, text_metrics)
    assert scored.values["f1"] == pytest.approx(2 / 3)

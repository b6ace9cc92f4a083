import math
import sys
import unicodedata

import extras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raised import raises

from t5prep.errors import UsageError
from t5prep.tasks import task
from t5prep.training import objectives
from t5prep.training.evaluate import metrics, target_metrics
from t5prep.training.evaluate.metrics import (
    bleu,
    classification,
    common_length,
    diacritics,
    normalize_answer,
    rouge,
    squad,
)

# Their tokenizers come with packages of their own, or are downloaded.
ELSEWHERE = ("bleu_ja_mecab", "bleu_ko_mecab", "bleu_flores101", "bleu_flores200")
LOCAL_METRICS = [name for name in metrics.METRICS if name not in ELSEWHERE]


def test_a_task_may_name_each_metric_and_no_other():
    assert {*task.METRICS} == {*metrics.METRICS, *metrics.TOKEN_NUMBERS}


@pytest.fixture(scope="module")
def large():
    """1,000 predictions and targets of rouge-score's own tests."""
    return tuple(
        (extras.DATA / "metrics" / f"{name}_large.txt").read_text(encoding="utf-8").splitlines()
        for name in ("target", "prediction")
    )


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The  Turing-machine's tape!", "turingmachines tape"),
        ("an apple a day", "apple day"),
        ("theatre anthem", "theatre anthem"),
        ("a.b, c", "ab c"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes, as in the seed
        ("the", ""),
        ("", ""),
        ("țara\tmea\n", "țara mea"),
    ],
)
def test_normalize_answer(text, normalized):
    assert normalize_answer(text) == normalized


@pytest.mark.parametrize(
    ("reference", "prediction", "em", "f1"),
    [
        ("the cat sat", "a cat sat", 1, 1.0),
        ("cat sat down", "cat", 0, 0.5),
        ("cat cat dog", "cat cat cat", 0, 2 / 3),
        ("cat", "dog", 0, 0.0),
        ("cat", "", 0, 0.0),
        ("the", "a", 1, 1.0),
        ("", "", 1, 1.0),
        (["dog", "red cat", "cat"], "cat", 1, 1.0),
        (["dog", "red cat"], "cat", 0, 2 / 3),
        ([], "cat", 0, 0.0),
    ],
)
def test_squad(reference, prediction, em, f1):
    assert squad([reference], [prediction]) == {"em": em, "f1": pytest.approx(f1)}


def test_squad_is_the_mean_over_items():
    assert squad(["a cat", "dog"], ["cat", "cow"]) == {"em": 0.5, "f1": 0.5}


@pytest.mark.parametrize(("references", "predictions"), [(["a"], []), ([], []), (["a"], ["a", "b"])])
@pytest.mark.parametrize("name", metrics.METRICS)
def test_nothing_is_cut_to_fit(name, references, predictions):
    with pytest.raises(ValueError, match="as many of both"):
        metrics.compute([name], references=references, predictions=predictions)


@pytest.mark.extra("seeds")
def test_rouge_agrees_with_rouge_score_on_real_predictions(large):
    from rouge_score import rouge_scorer

    targets, predictions = large
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"])
    # T5's own evaluation ends sentences so before rouge-score sees them.
    sentences = [[text.replace(" . ", " .\n") for text in side[:200]] for side in (targets, predictions)]
    scores = [scorer.score(*pair) for pair in zip(*sentences, strict=True)]
    ours = rouge(targets[:200], predictions[:200])
    for kind in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        assert ours[f"{kind}_f1"] == pytest.approx(np.mean([score[kind].fmeasure for score in scores]))
    assert ours["rougeL_precision"] == pytest.approx(np.mean([score["rougeL"].precision for score in scores]))
    assert ours["rougeL_recall"] == pytest.approx(np.mean([score["rougeL"].recall for score in scores]))


def test_rouge_keeps_letters_of_every_script():
    scores = rouge(["Țara în care răsare soarele"], ["Țara in care rasare soarele"])
    assert scores["rouge1_f1"] == pytest.approx(3 / 5)
    assert rouge(["мама мыла раму"], ["мама мыла раму"])["rougeL_f1"] == 1.0


DIFFERENT = {
    "Hindi": ("हिन्दी", "हिन्दू"),
    "Tamil": ("நான் வந்தேன்", "நீன் வந்தான்"),
    "Arabic": ("كَتَبَ", "كُتُبٌ"),
    "Hebrew": ("שָׁלוֹם", "שַׁלֶּם"),
    "Bengali": ("কিতাব", "কিতাবে"),
    "French, decomposed": ("pe\u0301che\u0301", "pe\u0302che"),
    "Vietnamese, decomposed": (unicodedata.normalize("NFD", "tiếng"), unicodedata.normalize("NFD", "tiệng")),
}


@pytest.mark.parametrize("language", DIFFERENT)
def test_rouge_tears_no_word_at_a_combining_mark(language: str) -> None:
    text, other_text = DIFFERENT[language]
    assert rouge([text], [other_text])["rouge1_f1"] == 0.0
    assert rouge([text], [text])["rougeLsum_f1"] == 1.0


@pytest.mark.parametrize("text", ["élève", "Việt Nam", "हिन्दी क़लम", "ガラス", "각하", "שָׁלוֹם", "İstanbul"])
def test_rouge_of_canonically_equal_texts_is_one(text: str) -> None:
    composed, decomposed_text = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    assert rouge([composed], [decomposed_text])["rougeL_f1"] == 1.0


@pytest.mark.parametrize(
    ("right", "prediction", "overlap"),
    [
        ("今天天气很好", "今天天气不好", 5 / 6),
        ("ข้าวเช้า", "ข้าวเย็น", 4 / 6),
        ("私は行く", "私は来る", 2 / 4),
        ("ខ្ញុំទៅ", "ខ្ញុំមក", 4 / 7),
    ],
)
def test_rouge_compares_letters_with_their_marks_where_words_are_not_divided(
    right: str, prediction: str, overlap: float
) -> None:
    """Such a clause was one word, or was torn at its vowels."""
    assert rouge([right], [prediction])["rouge1_f1"] == pytest.approx(overlap)


@pytest.mark.parametrize("name", [name for name in LOCAL_METRICS if name.startswith("bleu")])
def test_bleu_and_chrf_are_sacrebleu_s(name: str) -> None:
    import sacrebleu

    right = ["今天天气很好，我们去公园吧。", "The cat sat, as it were, on the mat.", "私は寿司が好きです。"]
    predictions = ["今天天气很好，我们去公园玩。", "A cat sat, as it is, on the mat.", "私は寿司が嫌いです。"]
    tokenize = {"bleu_zh": "zh", "bleu_intl": "intl", "bleu_char": "char"}.get(name, "13a")
    values = metrics.compute([name], references=right, predictions=predictions)
    assert values[name] == sacrebleu.corpus_bleu(predictions, [right], tokenize=tokenize).score
    assert values["chrf"] == sacrebleu.corpus_chrf(predictions, [right]).score


def test_a_tokenizer_that_is_missing_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from sacrebleu.tokenizers import tokenizer_ja_mecab, tokenizer_spm

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with raises(UsageError, "install.extra-missing", "RuntimeError", "bleu_ja_mecab", "ja-mecab"):
        metrics.compute(["bleu_ja_mecab"], references=["寿司"], predictions=["寿司"])

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(tokenizer_spm, "download_file", refuse)
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", "/nowhere")
    with raises(UsageError, "install.extra-missing", "OSError", "bleu_flores200", "flores200"):
        metrics.compute(["bleu_flores200"], references=["寿司"], predictions=["寿司"])


def test_rouge_takes_the_best_reference_and_normalizes_when_asked():
    assert rouge([["nothing alike", "rain falls"]], ["rain falls"])["rougeL_f1"] == 1.0
    assert rouge(["the rain"], ["rain"])["rougeL_f1"] < 1
    assert metrics.compute(["normalized_rouge"], references=["the rain"], predictions=["rain"])["rougeL_f1"] == 1.0


@pytest.mark.extra("seeds")
def test_bootstrap_surrounds_the_mean_and_is_the_same_each_time(large):
    targets, predictions = (side[:50] for side in large)
    scores = rouge(targets, predictions, bootstrap=True)
    assert scores == rouge(targets, predictions, bootstrap=True)
    assert scores != rouge(targets, predictions, bootstrap=True, seed=1)
    assert scores["rougeL_f1_low"] < scores["rougeL_f1"] < scores["rougeL_f1_high"]


def test_bleu():
    texts = ["The rain falls on the plain in Spain.", "Nothing else matters to us now."]
    assert bleu(texts, texts)["bleu"] == pytest.approx(100)
    assert bleu(texts, ["x y z w v", "p q r s t"])["bleu"] < 5
    import sacrebleu

    predictions = ["The rain falls on a plain in Spain.", "Nothing matters to us."]
    both = [[texts[0], "Rain falls on a plain in Spain."], [texts[1]]]
    expected = sacrebleu.corpus_bleu(predictions, [texts, ["Rain falls on a plain in Spain.", None]]).score
    assert bleu(both, predictions)["bleu"] == pytest.approx(expected)
    assert bleu(texts, predictions)["bleu"] < expected


def test_classification():
    scores = classification(["none", "low", "high", "high"], ["none ", "high", "high", "<extra_id_0>"])
    assert scores["labels"] == ["high", "low", "none"]
    assert scores["confusion"] == [[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert scores["accuracy"] == 0.5
    assert scores["macro_f1"] == pytest.approx((2 / 4 + 0 + 1) / 3)
    assert scores["per_class"] == {
        "high": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2},
        "low": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1},
        "none": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1},
    }


def test_classes_have_the_order_of_their_task():
    references, predictions = ["none", "low", "high", "none"], ["none", "high", "high", "x"]
    scores = metrics.compute(
        ["classification"], references=references, predictions=predictions, classes=["none", "low", "edit", "high"]
    )
    assert scores["labels"] == ["none", "low", "edit", "high"]
    assert scores["confusion"] == [[1, 0, 0, 0, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]]
    assert scores["per_class"]["edit"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    # scikit-learn 1.7's precision_recall_fscore_support over the three labels that occur.
    assert scores["macro_precision"] == pytest.approx((1 + 0 + 1 / 2) / 3)
    assert scores["weighted_recall"] == pytest.approx((2 * 1 / 2 + 0 + 1) / 4)
    assert scores["weighted_f1"] == pytest.approx((2 * 2 / 3 + 0 + 2 / 3) / 4)


@pytest.mark.parametrize(
    ("reference", "prediction", "words", "chars"),
    [
        ("și ei", "și ei", 1, 1),
        ("și ei", "si ei", 1 / 2, 4 / 5),
        ("și ei", "ei", 1 / 2, 2 / 5),
        ("ei", "și ei", 1 / 2, 2 / 5),
        ("", "", 1, 1),
        ("ei", "", 0, 0),
    ],
)
def test_diacritics(reference, prediction, words, chars):
    scores = diacritics([reference], [prediction])
    assert scores == {"word_accuracy": pytest.approx(words), "char_accuracy": pytest.approx(chars)}


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_common_is_the_longest_common_subsequence(first_text, second_text):
    table = [[0] * (len(second_text) + 1) for _ in range(len(first_text) + 1)]
    for row, left in enumerate(first_text):
        for column, right in enumerate(second_text):
            table[row + 1][column + 1] = (
                table[row][column] + 1 if left == right else max(table[row][column + 1], table[row + 1][column])
            )
    assert common_length(first_text, second_text) == table[-1][-1]


def test_token_accuracy_ignores_padding():
    labels = np.array([[5, 6, 1, -100], [7, 1, -100, -100]])
    assert metrics.token_accuracy(labels, np.array([[5, 0, 1, 0], [7, 1, -100, 9]])) == {"token_accuracy": 0.8}
    assert metrics.token_accuracy([[-100]], [[-100]]) == {"token_accuracy": 0.0}
    with pytest.raises(ValueError, match="shape"):
        metrics.token_accuracy(labels, labels[:, :2])


def test_perplexity_weighs_tokens_not_batches():
    scores = metrics.perplexity([10.0, 1.0], [10, 4])
    assert scores["loss"] == pytest.approx(11 / 14)
    assert scores["perplexity"] == pytest.approx(math.exp(11 / 14))
    assert metrics.perplexity([1e6], [1])["perplexity"] == math.inf


def test_rouge_with_ascii_words_is_rouge_score_s_own():
    from rouge_score import rouge_scorer

    right, prediction = "Soarele răsare azi", "soarele rasare azi"
    theirs = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"]).score(right, prediction)
    ours = rouge([right], [prediction], ascii_words=True)
    for kind, score in theirs.items():
        assert ours[f"{kind}_ascii_f1"] == score.fmeasure
    assert ours["rougeL_ascii_f1"] != rouge([right], [prediction])["rougeL_f1"]


def test_an_unknown_metric_is_a_sentence():
    with raises(UsageError, "option.unknown-choice", "rogue", "rouge"):
        metrics.compute(["rogue"], references=["a"], predictions=["a"])


def test_the_numbers_to_pick_by_are_those_that_there_are():
    scores = metrics.compute(LOCAL_METRICS, references=["low", "high"], predictions=["low", "none"])
    scores |= metrics.perplexity([1.0], [1]) | metrics.token_accuracy([[5]], [[5]])
    unit_array = np.array([[1]])
    scores |= (
        target_metrics.of_spans([["O"]], [["O"]])
        | target_metrics.of_labels(unit_array, unit_array)
        | target_metrics.of_numbers(unit_array, unit_array)
        | target_metrics.of_rankings([b"query", b"query"], np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    )
    assert set(objectives.NUMBERS) - set(ELSEWHERE) == {
        name for name, value in scores.items() if isinstance(value, float)
    }


def test_importing_metrics_loads_no_heavy_library():
    import subprocess

    code = "import sys, t5prep.training.evaluate.metrics; assert not {'rouge_score', 'sacrebleu', 'nltk'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", LOCAL_METRICS)
def test_a_metric_gives_the_numbers_that_the_table_says(name: str) -> None:
    values = metrics.compute([name], references=["a b", "c"], predictions=["a b", "d"])
    assert {key for key, value in values.items() if isinstance(value, float)} == set(metrics.METRICS[name].numbers)

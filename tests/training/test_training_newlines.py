"""A model of data that kept its newlines: what it is given, what it answers and what it is scored on have lines."""

from pathlib import Path

import copying_model
import pytest
import small_corpora
import tensorflow as tf

from t5prep.dataset.prepared import Dataset
from t5prep.options.models import EvaluateOptions
from t5prep.tokens import newlines
from t5prep.training.evaluate import evaluator, splits
from t5prep.training.predict import predictions, predictor
from t5prep.training.run import run
from t5prep.training.run.run import TINY, Model
from t5prep.training.runtime.devices import open_layout

WORDS = copying_model.WORDS


def test_an_answer_has_its_lines_where_the_data_kept_them() -> None:
    ids = [
        *WORDS.encode("why"),
        WORDS.sentinel(newlines.SENTINEL_NUMBER),
        *WORDS.encode("so"),
        WORDS.eos_id,
        WORDS.pad_id,
    ]
    assert predictor.answer(ids, WORDS, keep_newlines=True) == "why\nso"
    assert predictor.answer(ids, WORDS) == "why <extra_id_2> so"


@pytest.mark.parametrize("keep_newlines", [True, False])
def test_lines_come_back_in_scores_and_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_newlines: bool
) -> None:
    rows = [{"id": str(i), "q": f"question {i}\nwhy so", "a": f"because\nof {i}"} for i in range(12)]
    source = small_corpora.write_csv(tmp_path / "rows.csv", rows)
    manifest = small_corpora.prepared(
        source, tmp_path / "data", task="text2text", tokenizer="sample:", keep_newlines=keep_newlines,
        options={"inputs_column": "q", "targets_column": "a", "id_column": "id"},
        splits={"validation": 1.0}, input_length=16, target_length=8,
    )  # fmt: skip
    newline = "\n" if keep_newlines else " "
    copying_model.no_model(monkeypatch, copying_model.echo)
    score = evaluator.Evaluator(
        TINY, layout=open_layout(), opened=Dataset(tmp_path / "data").split("validation"), batch=4,
        tokenizer=WORDS, dtype=tf.float32,
    )  # fmt: skip
    scored = score({}).predictions
    assert len(scored) == 12
    for prediction in scored:
        assert prediction["references"] == [f"because{newline}of {prediction['id']}"]
        assert prediction["prediction"] == f"question {prediction['id']}{newline}why so"

    monkeypatch.setattr(run, "open_model", lambda name, checkpoint: Model(name, TINY, {}, WORDS, (manifest,)))
    monkeypatch.setattr(predictor, "Device", copying_model.Copies)
    (table := tmp_path / "new.csv").write_text('id,q\n0,"question 0\nwhy so"\n')
    (prediction,) = predictions.Predictions("toy", str(table))
    assert prediction.prediction == f"question 0{newline}why so"

    loaded = splits.Loaded(Model("toy", TINY, {}, WORDS, (manifest,)), open_layout(), {})
    evaluation = splits.score_split(loaded, EvaluateOptions(batch=4), Dataset(tmp_path / "data"), split="validation")
    assert {name for prediction in evaluation.predictions for name in prediction["scores"]} >= {
        "em",
        "f1",
        "rougeL_precision",
    }
    for name in ("f1", "rougeL_f1", "rougeL_recall"):
        scores = [prediction["scores"][name] for prediction in evaluation.predictions]
        assert evaluation.metrics[name] == pytest.approx(sum(scores) / len(scores))

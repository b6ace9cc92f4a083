"""An encoder from rows to predictions: prepared, trained, evaluated, exported, loaded by transformers, asked."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import t5prep
from t5prep.errors import UsageError
from t5prep.train.class_names import logits_order
from t5prep.train.export import export_hf
from t5prep.train.model.encoder_config import EncoderConfig
from tests import encoders
from tests.preparing import prepared

GOOD, BAD = "a gorgeous , witty movie .", "unflinchingly bleak and desperate"
SHAPE = {
    "model_type": "bert",
    "vocab_size": 200,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
SETTINGS = {
    "weights": "random",
    "steps": 30,
    "batch": 16,
    "optimizer": "adamw",
    "learning_rate": 0.02,
    "dropout": 0.0,
    "eval_every": 30,
    "log_every": 30,
    "tensorboard": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    rows = [(f"{GOOD} {number}", "positive") for number in range(40)]
    rows += [(f"{BAD} {number}", "negative") for number in range(40)]
    (folder / "rows.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    bert = encoders.bert(folder / "bert")
    (bert / "config.json").write_text(json.dumps(SHAPE))
    prepared(folder / "rows.tsv", folder / "data", tokenizer=bert, task="sst2", input_length=16)
    t5prep.train(data=str(folder / "data"), model=str(bert), out=str(folder / "run"), settings=SETTINGS)
    return folder


def test_it_learns_and_counts_every_class(run):
    scores = t5prep.evaluate(str(run / "run"))
    assert scores.metrics["accuracy"] == 1.0
    assert set(scores.metrics["per_class"]) == {"negative", "positive"}
    assert {one["prediction"] for one in scores.predictions} == {"negative", "positive"}


def test_it_answers_with_the_names_of_classes(run):
    answers = list(t5prep.predict(str(run / "run"), [GOOD, BAD], answers=2, beams=2))
    assert [answer.prediction for answer in answers] == ["positive", "negative"]
    (other, score) = answers[0].others[0]
    assert other == "negative"
    assert np.exp(answers[0].score) + np.exp(score) == pytest.approx(1.0, abs=1e-5)


LOADED = """
import json, sys
from transformers import AutoModelForSequenceClassification, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1])
logits = model(**tokenizer(json.loads(sys.argv[2]), return_tensors="pt", padding=True)).logits
print(json.dumps([model.config.id2label[int(row.argmax())] for row in logits]))
"""


def test_transformers_loads_what_is_exported_and_so_do_we(run):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    exported = run / "exported"
    export_hf(str(run / "run"), out=str(exported))
    texts = [GOOD, BAD]
    shown = subprocess.run(
        [sys.executable, "-c", LOADED, str(exported), json.dumps(texts)], check=True, capture_output=True, text=True
    )
    assert json.loads(shown.stdout) == ["positive", "negative"]
    assert [answer.prediction for answer in t5prep.predict(str(exported), texts)] == ["positive", "negative"]
    assert t5prep.evaluate(str(exported), data=str(run / "data")).metrics["accuracy"] == 1.0
    assert "text-classification" in (exported / "README.md").read_text()


def test_a_t5_does_not_train_on_numbers_of_classes(run, tmp_path):
    t5 = {"model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text(json.dumps(t5))
    with pytest.raises(UsageError, match="is a T5, which writes texts"):
        t5prep.train(data=str(run / "data"), model=str(tmp_path / "t5"), out=str(tmp_path / "out"), settings=SETTINGS)


def test_classes_of_the_same_names_are_compared_by_name():
    config = EncoderConfig(classes=("POSITIVE", "NEGATIVE"))
    assert logits_order(config, ["negative", "positive"], data="data") == [1, 0]
    assert logits_order(EncoderConfig(), ["negative", "positive"], data="data") == [0, 1]
    with pytest.raises(UsageError, match="has 3 classes"):
        logits_order(config, ["a", "b", "c"], data="data")
    with pytest.raises(UsageError, match="has texts as targets"):
        logits_order(config, [], data="data")

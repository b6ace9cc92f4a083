"""T5's encoder with a head from rows to predictions: prepared, trained, evaluated, exported, loaded by transformers."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch_process
from raised import raises

import t5prep
from t5prep import report
from t5prep.errors import TokenizerError, UsageError
from t5prep.options.models import PlanOptions
from t5prep.planning import interface
from t5prep.planning.model_shapes import shape_of
from t5prep.training.model.architecture import ModelConfig, training_flops
from t5prep.training.model.lora import trained_layouts
from t5prep.training.model.weights import load_config, random_weights, save_weights
from t5prep.training.publish.export import export_hf, export_saved_model
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.step import shape_of as trained_shape
from tests import encoders, two_classes
from tests.small_corpora import prepared
from tests.two_classes import BAD, GOOD, SETTINGS

SHAPE = ModelConfig(vocab_size=8192, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_decoder_layers=1, num_heads=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that began from a T5 that writes texts."""
    folder = tmp_path_factory.mktemp("run")
    rows = two_classes.write(folder / "rows.tsv")
    prepared(rows, folder / "data", tokenizer="sample:", task="sst2", target="class", input_length=24)
    save_weights(folder / "t5", SHAPE, random_weights(SHAPE))
    (folder / "t5" / "config.json").write_text(json.dumps(SHAPE.to_json()))
    t5prep.train(data=str(folder / "data"), model=str(folder / "t5"), out=str(folder / "run"), settings=SETTINGS)
    export_hf(str(folder / "run"), out=str(folder / "exported"))
    return folder


def test_it_learns_and_counts_every_class(run: Path) -> None:
    scores = t5prep.evaluate(str(run / "run"))
    assert scores.metrics["accuracy"] == 1.0
    assert set(scores.metrics["per_class"]) == {"negative", "positive"}
    config = load_config(run / "run")
    assert isinstance(config, ModelConfig)
    assert config.classes == ("negative", "positive")


def test_it_answers_with_the_names_of_classes(run: Path) -> None:
    answers = list(t5prep.predict(str(run / "run"), [GOOD, BAD], answers=2, beams=2))
    assert [answer.prediction for answer in answers] == ["positive", "negative"]
    ((other_class, score),) = answers[0].alternatives
    assert other_class == "negative"
    assert np.exp(answers[0].score) + np.exp(score) == pytest.approx(1.0, abs=1e-5)


LOADED = """
import json, sys
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model, info = AutoModelForTokenClassification.from_pretrained(sys.argv[1], output_loading_info=True)
texts = tokenizer(json.loads(sys.argv[2]), return_tensors="pt", padding=True)
tokens = texts["attention_mask"][..., None]
with torch.no_grad():
    logits = (model(**{name: texts[name] for name in ("input_ids", "attention_mask")}).logits * tokens).sum(1) / tokens.sum(1)
scores = torch.log_softmax(logits, dim=-1).max(dim=-1)
print(json.dumps({
    "names": [model.config.id2label[int(best)] for best in scores.indices],
    "scores": scores.values.tolist(),
    "keys": [sorted(info["missing_keys"]), sorted(info["unexpected_keys"])],
}))
"""


@pytest.mark.extra("torch")
def test_transformers_loads_what_is_exported_and_so_do_we(run: Path) -> None:
    texts = [GOOD, BAD]
    output = json.loads(torch_process.pytorch_code(LOADED, run / "exported", json.dumps(texts)))
    answers = list(t5prep.predict(str(run / "exported"), texts))
    assert output["names"] == [answer.prediction for answer in answers] == ["positive", "negative"]
    assert output["scores"] == pytest.approx([answer.score for answer in answers], abs=1e-4)
    assert output["keys"] == [[], []]
    assert t5prep.evaluate(str(run / "exported"), data=str(run / "data")).metrics["accuracy"] == 1.0
    card = (run / "exported" / "README.md").read_text()
    assert "text-classification" in card
    assert "AutoModelForTokenClassification" in card


def test_what_is_exported_trains_on(run: Path) -> None:
    settings = {**SETTINGS, "steps": 1, "eval_every": 1}
    out = str(run / "again")
    t5prep.train(data=str(run / "data"), model=str(run / "exported"), out=out, settings=settings)
    assert t5prep.evaluate(out).metrics["accuracy"] == 1.0


def test_adapters_of_the_encoder_alone_are_trained_with_a_head() -> None:
    shape = trained_shape(TrainConfig(lora=2), dataclasses.replace(SHAPE, classes=("negative", "positive")))
    kinds = {(name.partition(".")[0], "lora" in name) for name in trained_layouts(shape)}
    assert kinds == {("encoder", True), ("head", False)}


def test_a_report_shows_the_run(run: Path) -> None:
    report.write(str(run / "run"), out=str(run / "report.html"))
    assert "accuracy" in (run / "report.html").read_text()


def test_plan_asks_about_the_encoder_alone(run: Path) -> None:
    options = PlanOptions(model="t5-base", batch=(8,), data=str(run / "data"))
    (question,), _ = interface.resolve_questions(options, tpus=["v5e"])
    assert (question.shape.classes, question.target_length) == (("negative", "positive"), 1)
    full_flops = training_flops(shape_of("t5-base"), input_length=24, target_length=1)
    assert training_flops(question.shape, input_length=24, target_length=1) < full_flops


def test_what_does_not_go_together_is_a_sentence(run: Path, tmp_path: Path) -> None:
    data, model, out = str(run / "data"), str(run / "t5"), str(tmp_path / "out")
    with raises(UsageError, "dataset.target-mismatch"):
        t5prep.evaluate(model, data=data)
    with raises(UsageError, "option.inapplicable"):
        export_saved_model(str(run / "run"), out=out)
    texts = prepared(run / "rows.tsv", tmp_path / "texts", tokenizer="sample:", task="sst2", input_length=24)
    assert texts.settings.target == "text"
    with raises(UsageError, "dataset.target-mismatch"):
        t5prep.train(data=str(tmp_path / "texts"), model=str(run / "exported"), out=out, settings=SETTINGS)
    bert = encoders.bert(tmp_path / "bert")
    prepared(run / "rows.tsv", tmp_path / "of_bert", tokenizer=bert, task="sst2", input_length=24)
    random = {**SETTINGS, "weights": "random"}
    with raises(TokenizerError, "dataset.tokenizer-mismatch", "t5prep prepare sst2 --target class --tokenizer"):
        t5prep.train(data=str(tmp_path / "of_bert"), model=model, out=out, settings=random)

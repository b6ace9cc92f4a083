"""An encoder from rows to predictions: prepared, trained, evaluated, exported, loaded by transformers, asked."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch_process
from raised import raises

import t5prep
from t5prep.errors import UsageError
from t5prep.tasks.targets import ClassTarget, NumberTarget, TextTarget
from t5prep.training.evaluate.evaluator import logits_order
from t5prep.training.model.architecture import EncoderConfig
from t5prep.training.model.weight_layout import MATRICES
from t5prep.training.model.weights import for_classes, random_weights
from t5prep.training.publish.export import export_hf
from t5prep.training.run.run import open_model
from tests import encoders, two_classes
from tests.small_corpora import prepared
from tests.two_classes import BAD, GOOD, SETTINGS

SHAPE = {
    "model_type": "bert",
    "vocab_size": 200,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    bert = encoders.bert(folder / "bert")
    (bert / "config.json").write_text(json.dumps(SHAPE))
    prepared(two_classes.write(folder / "rows.tsv"), folder / "data", tokenizer=bert, task="sst2", input_length=16)
    t5prep.train(
        data=str(folder / "data"), model=str(bert), out=str(folder / "run"), settings={**SETTINGS, "weights": "random"}
    )
    return folder


def test_it_learns_and_counts_every_class(run):
    scores = t5prep.evaluate(str(run / "run"))
    assert scores.metrics["accuracy"] == 1.0
    assert set(scores.metrics["per_class"]) == {"negative", "positive"}
    assert {prediction["prediction"] for prediction in scores.predictions} == {"negative", "positive"}


def test_it_answers_with_the_names_of_classes(run):
    answers = list(t5prep.predict(str(run / "run"), [GOOD, BAD], answers=2, beams=2))
    assert [answer.prediction for answer in answers] == ["positive", "negative"]
    (other_class, score) = answers[0].alternatives[0]
    assert other_class == "negative"
    assert np.exp(answers[0].score) + np.exp(score) == pytest.approx(1.0, abs=1e-5)


LOADED = """
import json, sys
from transformers import AutoModelForSequenceClassification, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1])
logits = model(**tokenizer(json.loads(sys.argv[2]), return_tensors="pt", padding=True)).logits
print(json.dumps([model.config.id2label[int(row.argmax())] for row in logits]))
"""


@pytest.mark.extra("torch")
def test_transformers_loads_what_is_exported_and_so_do_we(run):
    exported = run / "exported"
    export_hf(str(run / "run"), out=str(exported))
    texts = [GOOD, BAD]
    assert json.loads(torch_process.pytorch_code(LOADED, exported, json.dumps(texts))) == ["positive", "negative"]
    assert [answer.prediction for answer in t5prep.predict(str(exported), texts)] == ["positive", "negative"]
    assert t5prep.evaluate(str(exported), data=str(run / "data")).metrics["accuracy"] == 1.0
    assert "text-classification" in (exported / "README.md").read_text()


def test_adapters_and_the_head_are_trained_and_merged(run, tmp_path):
    settings = {**SETTINGS, "weights": "random", "lora": 4, "seed": 3}
    out, exported = str(tmp_path / "run"), str(tmp_path / "exported")
    t5prep.train(data=str(run / "data"), model=str(run / "bert"), out=out, settings=settings)
    opened = open_model(out)
    first = random_weights(opened.config, seed=3)
    changed = {name for name, value in opened.weights.items() if not np.array_equal(value, first[name])}
    matrices = {f"layers.0.{name}" for name in MATRICES}
    assert changed == matrices | {name for name in first if name.startswith("head.")}
    export_hf(out, out=exported)
    assert not list(Path(exported).glob("adapter*"))
    scores = [t5prep.evaluate(path, data=str(run / "data")).metrics for path in (out, exported)]
    assert scores[0]["accuracy"] == 1.0
    assert scores[0]["loss"] == pytest.approx(scores[1]["loss"], abs=1e-6)


# Models as someone else publishes them: made and saved by transformers alone, each with its tokenizer and names of its own.
PUBLISHED = """
import json, sys
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
named = {"id2label": {0: "POSITIVE", 1: "NEGATIVE"}, "label2id": {"POSITIVE": 0, "NEGATIVE": 1}}
for place, out, shape in json.loads(sys.argv[1]):
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(place)
    config = AutoConfig.for_model(**shape, **named, pad_token_id=tokenizer.pad_token_id)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    asked = tokenizer(json.loads(sys.argv[2]), return_tensors="pt", padding=True)
    with torch.no_grad():  # half of the texts are of each class
        lead = sorted((model(**asked).logits @ torch.tensor([1.0, -1.0])).tolist())
        last = getattr(model.classifier, "out_proj", model.classifier)
        last.bias[1] += sum(lead[len(lead) // 2 - 1 :][:2]) / 2
        logits = model(**asked).logits
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    print(json.dumps([model.config.id2label[int(row.argmax())].lower() for row in logits]))
"""
KINDS = ["bert", "roberta", "xlm_roberta", "modernbert", "mmbert"]
TEXTS = [text.strip() for text in encoders.SENTENCES[:5]] + ["bleak", "a gorgeous film", "the leads", "movie ."]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return the folder of each kind's model, and what it predicts. One process makes them all: its start takes longest."""
    folder = tmp_path_factory.mktemp("published")
    sizes = {**SHAPE, "vocab_size": 450, "num_hidden_layers": 2, "max_position_embeddings": 66}
    requests = []
    for kind in KINDS:
        shape = {**sizes, "model_type": {"mmbert": "modernbert"}.get(kind, kind.replace("_", "-"))}
        requests.append([str(getattr(encoders, kind)(folder / f"{kind}-words")), str(folder / kind), shape])
    lines = torch_process.pytorch_code(PUBLISHED, json.dumps(requests), json.dumps(TEXTS)).splitlines()
    return {kind: (model, json.loads(line)) for kind, (_, model, _), line in zip(KINDS, requests, lines, strict=True)}


@pytest.mark.extra("torch")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_someone_elses_model_evaluates_to_its_own_predictions(published, tmp_path, kind):
    """Models that transformers alone makes and saves, each with its own tokenizer, are evaluated untrained."""
    model, theirs = published[kind]
    rows = "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(TEXTS))
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n" + rows)
    assert len(set(theirs)) == 2
    splits = {"validation": 1.0}
    prepared(tmp_path / "dev.tsv", tmp_path / "data", tokenizer=model, task="sst2", input_length=64, splits=splits)
    scores = t5prep.evaluate(model, data=str(tmp_path / "data"))
    predictions = {
        int(prediction["id"].rpartition(":")[2]): prediction["prediction"] for prediction in scores.predictions
    }
    assert [predictions[number] for number in sorted(predictions)] == theirs
    right = ["positive" if number % 2 else "negative" for number in range(len(TEXTS))]
    agreeing = sum(map(str.__eq__, theirs, right))
    assert scores.metrics["accuracy"] == pytest.approx(agreeing / len(TEXTS))


def test_classes_of_the_same_names_are_compared_by_name():
    config = EncoderConfig(classes=("POSITIVE", "NEGATIVE"))
    assert logits_order(config, ClassTarget(("negative", "positive")), data="data") == [1, 0]
    assert logits_order(EncoderConfig(), ClassTarget(("negative", "positive")), data="data") == [0, 1]
    with raises(UsageError, "dataset.class-mismatch", "has 3 classes"):
        logits_order(config, ClassTarget(("a", "b", "c")), data="data")
    with raises(UsageError, "dataset.target-mismatch", "text", "class"):
        logits_order(config, TextTarget(), data="data")
    with raises(UsageError, "dataset.target-mismatch", "number", "class"):
        logits_order(config, NumberTarget(), data="data")
    # Names that differ only by case are those of two classes.
    both = EncoderConfig(classes=("a", "A"))
    assert logits_order(both, ClassTarget(("A", "a")), data="data") == [1, 0]


NAMES = {
    "the same order": (("negative", "positive"), ["negative", "positive"], [0, 1], ""),
    "another order": (("POSITIVE", "NEGATIVE"), ["negative", "positive"], [1, 0], ""),
    "names that differ by case": (("a", "A"), ["A", "a"], [1, 0], ""),
    "no names": (("LABEL_0", "LABEL_1"), ["negative", "positive"], [0, 1], ""),
    "other names": (("joy", "anger"), ["ham", "spam"], [0, 1], "joy is ham, anger is spam"),
    "more classes": (("joy", "anger"), ["anger", "fear", "joy"], None, "joy, anger"),
}


@pytest.mark.parametrize("case", NAMES)
def test_training_from_a_classifier_takes_the_columns_of_its_head_by_name(case):
    model_names, names, order, sentence = NAMES[case]
    config = EncoderConfig(
        vocab_size=8, d_model=4, d_ff=4, num_layers=1, num_heads=1, max_positions=4, classes=model_names
    )
    weights = random_weights(config, seed=5)
    messages = []
    changed, new_weights = for_classes(config, weights, names, seed=6, say=messages.append)
    assert changed.classes == tuple(names)
    assert sentence in "".join(messages)
    assert bool(sentence) == bool(messages)
    if order is None:
        assert new_weights["head.classifier"].shape == (4, 3)
    else:
        np.testing.assert_array_equal(new_weights["head.classifier"], weights["head.classifier"][:, order])
        np.testing.assert_array_equal(new_weights["head.classifier_bias"], weights["head.classifier_bias"][order])
        assert logits_order(config, ClassTarget.of(names), data="data") == order

"""Tags, labels and a number from rows to predictions: prepared, trained, evaluated, asked, exported, loaded by transformers."""

import json
import random

import numpy as np
import pytest
import torch_process

import t5prep
from t5prep.training.predict.predictions import Predictions
from t5prep.training.publish.export import export_hf
from tests import encoders
from tests.small_corpora import prepared
from tests.training.test_encoder_runs import SHAPE
from tests.two_classes import SETTINGS

KINDS = {
    "tags": {"inputs_column": "words", "tags_column": "tags"},
    "labels": {"inputs_column": "text", "labels_column": "labels"},
    "number": {"inputs_column": "text", "second_column": "other", "number_column": "number"},
}
# What is better than a baseline: no span (0), all labels (0.67 to 0.78), and the mean of all numbers (no correlation).
BETTER = {"tags": ("f1", 0.9), "labels": ("micro_f1", 0.9), "number": ("pearson", 0.8)}
LEARNED = {
    "tags": {"steps": 60, "eval_every": 60},
    "labels": {"steps": 600, "eval_every": 600, "learning_rate": 2e-3},
    "number": {"steps": 200, "eval_every": 200},
}
ROW = {"words": "a journeys charming movie .", "text": "a gorgeous movie", "other": "witty witty film"}
ANSWERS = {"tags": "O B-X I-X O O", "labels": "g", "number": None}


def rows(count):
    """Rows whose names, labels and numbers their words say."""
    choose = random.Random(1)
    for _ in range(count):
        words, tags = [], []
        for _ in range(choose.randint(2, 6)):
            name = choose.random() < 0.3
            words += ["journeys", "charming"] if name else [choose.choice(["a", "movie", ".", "film"])]
            tags += ["B-X", "I-X"] if name else ["O"]
        label_words = [word for word in ("gorgeous", "witty") if choose.random() < 0.5]
        other_words = ["witty"] * choose.randint(0, 4)
        text = " ".join(choose.sample([*label_words, "a", "movie"], len(label_words) + 2))
        yield {
            "words": words,
            "tags": tags,
            "text": text,
            "labels": [word[0] for word in label_words],
            "other": " ".join([*other_words, "film"]),
            "number": len(other_words) / 2,
        }


@pytest.fixture(scope="module", params=KINDS)
def run(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp(request.param)
    bert = encoders.bert(folder / "bert")
    (bert / "config.json").write_text(json.dumps({**SHAPE, "hidden_size": 32 if request.param == "labels" else 16}))
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows(400)))
    columns = KINDS[request.param]
    group = {"group_column": "text"} if request.param == "number" else {}
    prepared(source, folder / "data", tokenizer=bert, task="text2text", input_length=24, options=columns, **group)
    settings = {**SETTINGS, "weights": "random", **LEARNED[request.param]}
    t5prep.train(data=str(folder / "data"), model=str(bert), out=str(folder / "run"), settings=settings)
    return request.param, folder


def advice_on_long_rows(folder):
    """Return what is said of a row that is too long."""
    (folder / "long.jsonl").write_text(json.dumps({name: f"{text} " * 30 for name, text in ROW.items()}))
    predictions = Predictions(str(folder / "run"), str(folder / "long.jsonl"))
    assert [prediction.tokens_lost > 0 for prediction in predictions] == [True]
    return " ".join(predictions.sentences())


LOADED = """
import json, sys
import torch, transformers
config = json.load(open(sys.argv[1] + "/config.json"))
model, said = getattr(transformers, config["architectures"][0]).from_pretrained(sys.argv[1], output_loading_info=True)
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
row = json.loads(sys.argv[2])
if model.config.problem_type is None:
    batch = tokenizer([row["words"].split()], is_split_into_words=True, return_tensors="pt")
else:
    batch = tokenizer(*row["texts"], return_tensors="pt")
with torch.no_grad():
    logits = model.eval()(**batch).logits[0]
first = [place for place, word in enumerate(batch.word_ids()) if word is not None and batch.word_ids()[place - 1] != word]
print(json.dumps([logits.tolist(), first, sorted(said["missing_keys"]), model.config.problem_type, model.config.id2label]))
"""


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_it_learns_answers_and_is_loaded_by_transformers(run):
    """Tags, labels and a number, each from rows to transformers' logits of the export."""
    kind, folder = run
    scores = t5prep.evaluate(str(folder / "run"))
    name, least = BETTER[kind]
    assert scores.metrics[name] > least
    if kind == "number":  # eight texts in any order have 0.81
        assert scores.metrics["ndcg_at_10"] > 0.86
    (answer,) = t5prep.predict(str(folder / "run"), [ROW])
    assert "split" not in advice_on_long_rows(folder)
    export_hf(str(folder / "run"), out=str(folder / "exported"))
    texts = [ROW["text"], ROW["other"]] if kind == "number" else [ROW["text"]]
    output = torch_process.pytorch_code(LOADED, folder / "exported", json.dumps({**ROW, "texts": texts}))
    logits, first, missing, problem, names = json.loads(output)
    assert missing == []
    if kind == "tags":
        tags = [names[str(int(np.argmax(logits[index])))] for index in first]
        assert answer.prediction == " ".join(tags) == ANSWERS[kind]
    elif kind == "labels":
        assert problem == "multi_label_classification"
        chosen = [names[str(index)] for index, logit in enumerate(logits) if logit > 0]
        assert answer.prediction == ",".join(chosen) == ANSWERS[kind]
    else:
        assert problem == "regression"
        assert float(answer.prediction) == pytest.approx(logits[0], abs=1e-4)
        assert float(answer.prediction) == pytest.approx(1.0, abs=0.4)
    export_scores = t5prep.evaluate(str(folder / "exported"), data=str(folder / "data"))
    assert export_scores.metrics[name] == pytest.approx(scores.metrics[name])

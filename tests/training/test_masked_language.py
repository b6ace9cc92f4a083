"""The pre-training of encoders: PyTorch's gradients and training steps, exports that transformers reads, and a model that learns."""

import json
from pathlib import Path

import encoders
import numpy as np
import pytest
import small_corpora
import tensorflow as tf
import torch_process
from click.testing import CliRunner
from raised import raises
from safetensors import safe_open
from torch_masked import NAMES

import t5prep
from t5prep import cli
from t5prep.errors import UsageError
from t5prep.tasks.targets import HiddenTokensTarget
from t5prep.training.model.architecture import CLASS_NAMES, EncoderConfig
from t5prep.training.model.forward import forward
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import for_classes, load_weights, random_weights, save_weights
from t5prep.training.run import run
from tests import adamw_steps


def lines(folder: Path, *, count: int = 400) -> Path:
    """Sentences whose words follow from each other, so that a hidden one can be told from its neighbours."""
    words = ["a gorgeous movie", "the film is bleak", "an affecting journey", "it 's a charming performance"]
    indices = np.random.default_rng(0).integers(len(words), size=(count, 3))
    path = folder / "lines.txt"
    path.write_text("\n".join(" . ".join(words[index] for index in row) for row in indices))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("masked")
    data_path = folder / "data"
    words = encoders.bert(folder / "words")
    small_corpora.prepared(
        lines(folder), data_path, task="masked_language", tokenizer=str(words), input_length=32, shards=1,
    )  # fmt: skip
    return str(data_path)


def test_a_dataset_has_its_targets_where_tokens_are_hidden(data: str) -> None:
    manifest = t5prep.load(data)
    assert manifest.target == HiddenTokensTarget()
    assert manifest.features["labels"].shape == manifest.features["input_ids"].shape == [32]
    rows = small_corpora.records(Path(data))["train"]
    for row in rows[:-1]:
        hidden = np.array(row["labels"]) != -100
        assert hidden.sum() == round(0.15 * 30)
        assert row["input_ids"][0] == 2
        assert row["input_ids"][-1] == 3


def test_what_hides_tokens_and_what_fills_them_belong_together(data: str, tmp_path: Path) -> None:
    with raises(UsageError, "tokenizer.encoder-required", "sample"):
        small_corpora.prepared(lines(tmp_path), tmp_path / "t5", task="masked_language", tokenizer="sample:")
    model_folder = tmp_path / "t5"
    model_folder.mkdir()
    shape = {
        "model_type": "t5",
        "vocab_size": 256,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 16,
        "num_layers": 1,
        "num_heads": 2,
    }
    (model_folder / "config.json").write_text(json.dumps(shape))
    with raises(UsageError, "dataset.target-mismatch"):
        t5prep.train(
            data=data, out=str(tmp_path / "run"), model=str(model_folder), settings={"steps": 1, "weights": "random"}
        )


def test_a_pretrained_model_begins_a_classifier(tmp_path: Path) -> None:
    shape = EncoderConfig(vocab_size=64, d_model=8, d_ff=8, num_layers=1, num_heads=2, classes=(), masked=True)
    weights = random_weights(shape)
    config, classifier_weights = for_classes(shape, dict(weights), ["up", "down", "flat"], seed=0)
    assert (config.masked, config.classes) == (False, ("up", "down", "flat"))
    assert classifier_weights.keys() == weight_layouts(config).keys()
    np.testing.assert_array_equal(classifier_weights["embeddings.word"], weights["embeddings.word"])


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_gradients_are_those_of_pytorch_and_it_loads_the_export(tmp_path: Path) -> None:
    """The heads that fill masks, of each kind of encoder; test_encoders has the heads for classes."""
    published, exported = tmp_path / "published", tmp_path / "exported"
    torch_process.pytorch("torch_masked.py", published)
    for name in NAMES:
        reference_arrays = np.load(published / name / "reference.npz")
        config, weights = load_weights(published / name, masked=True)
        inputs = {
            "input_ids": reference_arrays["ids"],
            "attention_mask": reference_arrays["mask"],
            "labels": reference_arrays["labels"],
        }
        batch = {key: tf.constant(value, tf.int32) for key, value in inputs.items()}
        real = reference_arrays["mask"] > 0  # padding has positions of its own in PyTorch's RoBERTa, and no targets
        expected, logits = reference_arrays["logits"][real], forward(weights, config, batch).numpy()[real]
        np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max(), err_msg=name)
        loss, gradients = adamw_steps.gradients_of(config, weights, batch)
        np.testing.assert_allclose(loss, reference_arrays["losses"][0], rtol=1e-4, err_msg=name)
        save_weights(tmp_path, config, gradients)
        with safe_open(tmp_path / "model.safetensors", "np") as file:
            for tensor in file.keys():  # noqa: SIM118 - it is no dict
                expected = reference_arrays[f"gradient/{tensor}"]
                atol = 1e-4 * max(1.0, np.abs(expected).max())
                np.testing.assert_allclose(file.get_tensor(tensor), expected, atol=atol, err_msg=f"{name} {tensor}")
        export_folder = exported / name
        export_folder.mkdir(parents=True)
        save_weights(export_folder, config, weights)
        (export_folder / "config.json").write_text(json.dumps(config.to_json()))
    torch_process.pytorch("torch_masked.py", published, exported)
    for name in NAMES:
        report = json.loads((exported / name / "said.json").read_text())
        kind = CLASS_NAMES[json.loads((exported / name / "config.json").read_text())["model_type"]]
        assert report == {"class": f"{kind}ForMaskedLM", "missing_keys": [], "unexpected_keys": []}
        reference_arrays = np.load(published / name / "reference.npz")
        real = reference_arrays["mask"] > 0
        expected, exported_logits = (
            reference_arrays["logits"][real],
            np.load(exported / name / "said.npz")["logits"][real],
        )
        np.testing.assert_allclose(exported_logits, expected, atol=1e-5 * np.abs(expected).max(), err_msg=name)


LEARNS = {
    "weights": "random", "steps": 100, "batch": 16, "optimizer": "adamw", "learning_rate": 3e-3, "dropout": 0.0,
    "schedule": "warmup_constant", "warmup": 20,
}  # fmt: skip


def loss_of_frequencies(data: str) -> float:
    """The loss on validation of who only knows how often each token is a target in training."""
    targets = {
        split: np.array([token for row in rows for token in row["labels"] if token >= 0])
        for split, rows in small_corpora.records(Path(data)).items()
    }
    vocabulary = max(512, *(max(tokens) + 1 for tokens in targets.values()))  # each token gets a share, seen or not
    counts = np.bincount(targets["train"], minlength=vocabulary) + 1.0
    return float(-np.log(counts / counts.sum())[targets["validation"]].mean())


@pytest.mark.slow
def test_a_t5_learns_from_hidden_spans_more_than_how_often_tokens_occur(tmp_path: Path) -> None:
    """From UL2's mixture, one part of which are the spans of `span_corruption`."""
    data = str(tmp_path / "data")
    small_corpora.prepared(lines(tmp_path), Path(data), task="ul2", tokenizer="sample:", input_length=32, shards=1)
    settings = {**LEARNS, "steps": 60, "batch": 8, "learning_rate": 5e-3}
    result = t5prep.train(data=data, out=str(tmp_path / "run"), model="tiny", settings=settings)
    assert result.evaluation is not None
    assert result.evaluation.metrics["loss"] < 0.5 * loss_of_frequencies(data)


@pytest.mark.slow
def test_a_model_learns_more_than_how_often_tokens_occur(data: str, tmp_path: Path) -> None:
    """The whole way of the pre-training of an encoder, to its export's score."""
    result = t5prep.train(data=data, out=str(tmp_path / "run"), model="tiny", settings=LEARNS)
    assert result.evaluation is not None
    assert result.evaluation.metrics["loss"] < 0.95 * loss_of_frequencies(data)
    settings = [part for name, value in LEARNS.items() for part in ("--set", f"{name}={value}")]
    arguments = ["train", "--data", data, "--out", str(tmp_path / "run"), "--model", "tiny", *settings]
    output = CliRunner().invoke(cli.main, arguments, catch_exceptions=False).output  # it has ended, and says so again
    assert f"next: t5prep export --model {tmp_path / 'run'}" in output
    from t5prep.training.publish.export import export_hf

    export_hf(str(tmp_path / "run"), out=str(tmp_path / "exported"))
    exported_config = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert exported_config["architectures"] == ["BertForMaskedLM"]
    assert "fill-mask" in (tmp_path / "exported" / "README.md").read_text()
    exported_model = run.open_model(str(tmp_path / "exported"))
    assert isinstance(exported_model.config, EncoderConfig)
    assert exported_model.config.masked
    scores = t5prep.evaluate(str(tmp_path / "exported"), data=data)
    np.testing.assert_allclose(scores.metrics["loss"], result.evaluation.metrics["loss"], rtol=1e-4)
    with raises(UsageError, "answer.pretrained-encoder"):
        t5prep.predict(str(tmp_path / "run"), ["a text"], as_text=True)

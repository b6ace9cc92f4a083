"""Whole runs on toys: interrupted and gone on with, scored, asked, exported; and what is refused before the first step."""

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_corpora
import tensorflow as tf
import torch_process
import toy_runs
from click.testing import CliRunner
from raised import assert_error, raises, refused

from t5prep import cli
from t5prep.dataset import manifest
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError, OutputError, T5prepError, TokenizerError, UsageError
from t5prep.options.models import PredictOptions
from t5prep.training import log, trainer
from t5prep.training.evaluate.evaluator import Evaluation, Evaluator
from t5prep.training.evaluate.splits import load
from t5prep.training.model.weights import load_weights
from t5prep.training.predict.predictions import Predictions
from t5prep.training.predict.predictor import answer
from t5prep.training.publish import export
from t5prep.training.run import checkpoints, run
from t5prep.training.runtime import devices


def test_a_run_ends_with_its_best_checkpoint_scored(finished_run: trainer.Result, data: str) -> None:
    assert finished_run.steps == 12
    assert finished_run.evaluation
    dataset_manifest = manifest.load(data)
    ids = small_corpora.records(Path(data))["validation"]
    # Every record of the split, once.
    assert sorted(prediction["id"] for prediction in finished_run.evaluation.predictions) == sorted(
        r["id"][0].decode() for r in ids
    )
    assert sum(map(sum, finished_run.evaluation.metrics["confusion"])) == dataset_manifest.splits["validation"].records
    _, state = checkpoints.best(finished_run.run)
    for name, value in state.metrics.items():
        assert finished_run.evaluation.metrics[name] == pytest.approx(value, rel=1e-6), name
    assert sorted(toy_runs.losses(finished_run.run)) == list(range(1, 13))


def test_stopped_and_killed_and_started_again_the_losses_are_the_same(
    toys: Path, data: str, shape: str, finished_run: trainer.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_runs.config(data, shape, toys / "disturbed")
    line = log.RunLog.line

    def terminated(log: log.RunLog, step: int, **metrics: float) -> None:
        line(log, step, **metrics)
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    def killed(log: log.RunLog, step: int, **metrics: float) -> None:
        line(log, step, **metrics)
        if step == 11:
            raise KeyboardInterrupt  # nothing is saved any more, as by kill -9

    monkeypatch.setattr(log.RunLog, "line", terminated)
    with raises(T5prepError, "run.interrupted", "4", "SIGTERM"):
        trainer.train(config)
    assert checkpoints.last(config.out)[1].step == 4  # type: ignore[index]
    monkeypatch.setattr(log.RunLog, "line", killed)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(config)
    assert checkpoints.last(config.out)[1].step == 8  # type: ignore[index]
    monkeypatch.setattr(log.RunLog, "line", line)
    result = trainer.train(config)
    assert toy_runs.losses(config.out) == toy_runs.losses(finished_run.run)
    assert result.evaluation == finished_run.evaluation
    uninterrupted_model, resumed_model = (
        run.open_model(finished_run.run, checkpoint="last"),
        run.open_model(config.out, checkpoint="last"),
    )
    assert all(
        np.array_equal(uninterrupted_model.weights[name], resumed_model.weights[name])
        for name in uninterrupted_model.weights
    )


def test_a_finished_run_only_says_how_it_ended(finished_run: trainer.Result, data: str, shape: str) -> None:
    earlier_losses = toy_runs.losses(finished_run.run)
    result = trainer.train(toy_runs.config(data, shape, finished_run.run))
    assert (result.steps, result.evaluation) == (finished_run.steps, finished_run.evaluation)
    assert toy_runs.losses(finished_run.run) == earlier_losses


def test_scoring_a_run_from_its_directory(finished_run: trainer.Result, data: str, tmp_path: Path) -> None:
    out = tmp_path / "scores.json"
    arguments = ["eval", "--model", finished_run.run, "--batch", "7", "--predictions", str(out)]
    result = CliRunner().invoke(cli.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    scores = json.loads(out.read_text())
    assert scores["checkpoint"] == finished_run.best
    assert finished_run.evaluation
    assert {p["id"]: p["prediction"] for p in scores["predictions"]} == {
        p["id"]: p["prediction"] for p in finished_run.evaluation.predictions
    }
    assert scores["metrics"]["loss"] == pytest.approx(finished_run.evaluation.metrics["loss"], rel=1e-5)
    assert scores["metrics"]["confusion"] == finished_run.evaluation.metrics["confusion"]
    losses = [row["loss"] for row in scores["worst"]]
    assert losses == sorted(losses, reverse=True)


def test_predictions_are_those_of_the_evaluation(finished_run: trainer.Result, data: str) -> None:
    """Raw rows, through the run's own task and tokenizer, are answered as the prepared records are."""
    assert finished_run.evaluation
    expected = {p["id"]: p["prediction"] for p in finished_run.evaluation.predictions}
    prediction_run = Predictions(finished_run.run, str(Path(data).with_suffix(".csv")), PredictOptions(batch=8))
    answers = list(prediction_run)
    assert len(answers) == 90
    assert {prediction.id: prediction.prediction for prediction in answers if prediction.id in expected} == expected


def test_another_run_starts_from_the_best_weights_of_one(finished_run: trainer.Result) -> None:
    config = toy_runs.config("d", finished_run.run, "o", weights="pretrained")
    shape, weights, tokenizer = run.start_from(config, ids=8100)
    best = run.open_model(finished_run.run)
    assert shape == best.config
    assert all(np.array_equal(weights[name], best.weights[name]) for name in weights)
    assert tokenizer
    assert tokenizer.sha256 == best.tokenizer.sha256  # type: ignore[union-attr]
    with raises(UsageError, "tokenizer.vocabulary-mismatch", "9,000"):
        run.start_from(config, ids=9000)


@pytest.mark.parametrize("piped", [b"a\n\xff\xfe\n", b"a\ncaf\xe9\n"])
def test_input_that_is_no_text_is_one_sentence(finished_run: trainer.Result, piped: bytes) -> None:
    result = CliRunner().invoke(cli.main, ["predict", "--model", finished_run.run], input=piped)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert_error(result.stderr, "file.wrong-encoding", "utf-8", "0x", "--encoding")


def test_an_export_holds_the_best_weights_bit_for_bit(finished_run: trainer.Result, tmp_path: Path) -> None:
    out = tmp_path / "exported"
    assert export.export_hf(finished_run.run, out=str(out)) == finished_run.best
    config, weights = load_weights(out)
    best = run.open_model(finished_run.run)
    assert config == best.config
    assert all(np.array_equal(weights[name], best.weights[name]) for name in weights)
    card = (out / "README.md").read_text()
    digest = best.manifests[0].digest
    assert digest in card
    assert "| accuracy |" in card
    reopened = run.open_model(str(out))
    assert reopened.tokenizer
    assert reopened.tokenizer.sha256 == best.tokenizer.sha256  # type: ignore[union-attr]
    assert reopened.manifests[0].digest == digest
    with raises(OutputError, "output.exists"):
        export.export_hf(finished_run.run, out=str(out))
    assert [path.name for path in tmp_path.iterdir()] == ["exported"]


@pytest.mark.slow
def test_a_saved_model_takes_ids_and_gives_ids(finished_run: trainer.Result, data: str, tmp_path: Path) -> None:
    """A SavedModel gives the evaluation's answers in TensorFlow alone."""
    export.export_saved_model(finished_run.run, out=str(tmp_path / "saved"))
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    from t5prep.training.data import eval_batches, open_datasets

    best = run.open_model(finished_run.run)
    answers = []
    for batch in eval_batches(open_datasets.open_split(Dataset(data), "validation"), batch=5):
        ids = serve(input_ids=batch["input_ids"])["output_ids"].numpy()
        assert best.tokenizer
        for id, row in zip(batch["id"], ids, strict=True):
            answers += [(id.decode(), answer(row, best.tokenizer))] if id else []
    assert finished_run.evaluation
    assert answers == [
        (prediction["id"], prediction["prediction"]) for prediction in finished_run.evaluation.predictions
    ]


THEIRS = """
import json, sys
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1]).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
out = []
for row in json.load(open(sys.argv[2])):
    with torch.no_grad():
        given = tokenizer(row, padding="max_length", max_length=16, return_tensors="pt")
        ids = model.generate(given["input_ids"], attention_mask=given["attention_mask"])
    said = {"text": tokenizer.decode(ids[0], skip_special_tokens=True), "given": given["input_ids"][0].tolist()}
    out.append(said | {"ids": ids[0, 1:].tolist()})
json.dump(out, open(sys.argv[3], "w"))
"""


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_pytorch_predicts_the_same_from_the_export(toys: Path, shape: str, tmp_path: Path) -> None:
    """From a text to an answer of several tokens, by the exported tokenizer and model on the validation split."""
    from t5prep.training.data import eval_batches, open_datasets

    data = toy_runs.sentences(toys / "sentences")
    long = {"steps": 60, "eval_every": 60, "log_every": 30}
    config = toy_runs.config(data, shape, tmp_path / "run", learning_rate=0.02, generate=True, **long)
    result = trainer.train(config)
    export.export_hf(result.run, out=str(tmp_path / "exported"))
    read = eval_batches(open_datasets.open_split(Dataset(data), "validation"), batch=1)
    rows = [row for batch in read for row in batch["input_ids"].tolist()]
    words = run.open_model(result.run).tokenizer
    assert words
    (tmp_path / "texts.json").write_text(json.dumps([answer(row, words) for row in rows]))
    files = [tmp_path / "exported", tmp_path / "texts.json", tmp_path / "said.json"]
    torch_process.pytorch_code(THEIRS, *files)
    assert result.evaluation
    ours = [prediction["prediction"] for prediction in result.evaluation.predictions]
    theirs = json.loads((tmp_path / "said.json").read_text())
    assert [prediction["given"] for prediction in theirs] == rows
    assert [answer(prediction["ids"], words) for prediction in theirs] == ours
    # The two libraries decode alike but for an answer of spaces alone.
    assert [prediction["text"].strip() for prediction in theirs] == [text.strip() for text in ours]
    assert len(set(ours)) > 1
    assert {"em", "f1", "rougeL_f1"} <= result.evaluation.metrics.keys()


@pytest.mark.extra("seeds")
@pytest.mark.slow
def test_eight_sentences_of_sst2_are_learnt_to_zero_loss(toys: Path, shape: str, shared_data: Path) -> None:
    """A model memorises: nothing of the loss is out of its reach."""
    rows = (shared_data / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()[:9]
    (toys / "eight.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    choices = {"task": "sst2", "tokenizer": "sample:", "input_length": 64, "target_length": 2, "splits": {"train": 1.0}}
    dataset_manifest = small_corpora.prepared(toys / "eight.tsv", toys / "eight", shards=1, **choices)
    assert dataset_manifest.splits["train"].records == 8
    assert len(dataset_manifest.splits["train"].labels) == 2
    long = {"steps": 300, "log_every": 50}
    config = toy_runs.config(str(toys / "eight"), shape, toys / "learnt", learning_rate=0.02, z_loss=0.0, **long)
    trainer.train(config)
    assert toy_runs.losses(config.out)[300] < 1e-3


@pytest.mark.slow
def test_packed_rows_are_trained_on(toys: Path, shape: str) -> None:
    """A whole run on packed rows; other tests compare one packed batch."""
    packed = toy_runs.sentences(toys / "packed", layout="packed")
    result = trainer.train(toy_runs.config(packed, shape, toys / "of_packed", steps=20, eval_every=10))
    losses = toy_runs.losses(result.run)
    assert losses[20] < losses[1]
    _, state = checkpoints.best(result.run)
    assert {"loss", "token_accuracy"} <= state.metrics.keys()
    assert "em" not in state.metrics


@pytest.mark.slow
def test_a_mixture_draws_from_all_its_parts(toys: Path, data: str, shape: str) -> None:
    """A whole run on two datasets."""
    other_data = toy_runs.classes(toys / "other", seed=3)
    both = {"data": (data, other_data), "rates": (1, 3)}
    result = trainer.train(dataclasses.replace(toy_runs.config(data, shape, toys / "mixed", steps=4), **both))
    assert sorted(toy_runs.losses(result.run)) == [1, 2, 3, 4]
    assert len(checkpoints.best(result.run)[1].data) == 2


@pytest.mark.slow
def test_patience_ends_a_run_that_gets_no_better(
    toys: Path, data: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends early, and says so again. What it has evaluated it does not evaluate again at its end."""
    score, evaluated = Evaluator.__call__, []

    def counted(evaluator: Evaluator, *arguments: Any, **options: Any) -> Evaluation:
        evaluated.append(score(evaluator, *arguments, **options))
        return evaluated[-1]

    monkeypatch.setattr(Evaluator, "__call__", counted)
    config = toy_runs.config(data, shape, toys / "patient", learning_rate=0.0, eval_every=2, patience=2, metric="loss")
    result = trainer.train(config)
    assert result.stopped_early
    assert result.steps == 6  # the first evaluation is the best so far, and two more are none the better
    assert len(evaluated) == 3
    assert result.evaluation is evaluated[0]
    again = trainer.train(config)
    assert again.stopped_early
    assert len(evaluated) == 4
    assert again.evaluation == result.evaluation


def test_what_is_refused_before_the_first_step(
    toys: Path, data: str, shape: str, finished_run: trainer.Result, tmp_path: Path
) -> None:
    config = toy_runs.config(data, shape, tmp_path / "run")
    with raises(UsageError, "option.missing", "--model", "model"):
        trainer.train(dataclasses.replace(config, model=""))
    with raises(UsageError, "setting.missing-length"):
        trainer.train(dataclasses.replace(config, steps=0))
    with raises(DatasetError, "dataset.missing-manifest", "manifest"):
        trainer.train(dataclasses.replace(config, data=(str(tmp_path),)))
    with raises(TokenizerError, "dataset.tokenizer-unavailable"):
        trainer.train(dataclasses.replace(config, tokenizer=str(tmp_path / "none.model")))
    with raises(UsageError, "checkpoint.settings-mismatch"):
        trainer.train(dataclasses.replace(config, out=finished_run.run, batch=4))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("")
    with raises(OutputError, "output.foreign-file"):
        trainer.train(dataclasses.replace(config, out=str(tmp_path / "other")))
    with raises(UsageError, "weights.unpublished"):
        trainer.train(dataclasses.replace(config, model="tiny", weights="pretrained"))
    assert not (tmp_path / "run").exists()


def test_a_tpu_that_is_not_there_is_one_sentence() -> None:
    arguments = ["train", "--recipe", "tiny", "--data", "d", "--out", "o", "--tpu"]
    result = CliRunner().invoke(cli.main, arguments)
    if Path("/dev/accel0").exists() or Path("/dev/vfio/0").exists():
        pytest.skip("this machine has a TPU")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert_error(result.stderr, "device.missing-tpu", "--tpu", "/dev/accel*")


def test_a_tpu_is_used_from_its_own_vm() -> None:
    with raises(UsageError, "device.remote-tpu", "t5"):
        devices.open_layout(tpu="t5")


def test_gpus_that_are_not_there_are_one_sentence() -> None:
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    arguments = ["train", "--recipe", "tiny", "--data", "d", "--out", "o", "--gpus"]
    refused("install.extra-missing", "--gpus", "CUDA", command=arguments)
    refused("option.conflict", "--tpu", "--gpus", command=(*arguments, "--tpu"))


def test_scoring_what_is_no_run(tmp_path: Path) -> None:
    with raises(UsageError, "model.missing-config"):
        load(str(tmp_path))

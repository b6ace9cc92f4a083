"""Several splits and datasets in one call; a run's datasets are found from any folder, or the advice is --data."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from raised import raises, refused
from small_corpora import prepared, questions, write_csv

from t5prep import cli
from t5prep.dataset.prepared import Dataset
from t5prep.errors import UsageError
from t5prep.options.models import EvaluateOptions, ModelOptions
from t5prep.training.evaluate import splits
from t5prep.training.evaluate.evaluator import Evaluation, Wrong

loads: list[str] = []
received_options: list[EvaluateOptions] = []


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on two datasets, and in place of a model what is known of each split."""
    for name in ("one", "two"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "manifest.json").write_text("{}")
    (tmp_path / "runs" / "both").mkdir(parents=True)
    state = SimpleNamespace(data=[{"uri": "data/one"}, {"uri": "data/two"}])
    monkeypatch.setattr(splits.run, "is_run", lambda name: name.endswith("both"))
    monkeypatch.setattr(splits.checkpoints, "choose", lambda name, checkpoint: ("runs/both/7", state))

    def load(model: str, options: ModelOptions) -> SimpleNamespace:
        loads.append(model)
        return SimpleNamespace(opened=SimpleNamespace(name="runs/both/7", manifests=()))

    def evaluate(loaded: Any, options: EvaluateOptions, dataset: Any, *, split: str) -> Evaluation:
        received_options.append(options)
        loss = len(split) + dataset.folder.endswith("two")
        predictions = [{"id": "a", "prediction": "x", "references": ["y"], "scores": {"f1": 0.5}}]
        wrong_sample = [Wrong(id, "in", target, "x", 0.5) for id, target in (("b", "y"), ("c", "y"), ("d", "z"))]
        return Evaluation({"loss": float(loss)}, predictions, [Wrong("a", "in", "y", "x", 1.0)], wrong_sample)

    loads.clear()
    received_options.clear()
    monkeypatch.setattr(splits, "load", load)
    monkeypatch.setattr(splits, "score_split", evaluate)
    monkeypatch.setattr(splits, "Dataset", lambda data, tokenizer: SimpleNamespace(folder=data))
    return tmp_path


@pytest.mark.parametrize("folder", [".", "runs", "runs/both"])
def test_all_splits_of_all_datasets_from_any_folder(scored: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(scored / folder)
    model = os.path.relpath(scored / "runs" / "both") if folder != "runs/both" else str(scored / "runs" / "both")
    command = ["eval", "--model", model, "--split", "test", "--split", "train", "--json"]
    report = json.loads(CliRunner().invoke(cli.main, command, catch_exceptions=False).stdout)
    losses = [(Path(part["data"]).name, part["split"], part["metrics"]["loss"]) for part in report["evaluations"]]
    assert losses == [
        ("one", "test", 4.0), ("one", "train", 5.0), ("two", "test", 5.0), ("two", "train", 6.0)
    ]  # fmt: skip
    assert report["metrics"] == {"loss": 5.0}
    assert loads == [model]  # once for the four
    assert report["checkpoint"] == "runs/both/7"
    assert report["evaluations"][0]["predictions"] == [{"id": "a", "prediction": "x", "references": ["y"]}]


def test_one_split_is_as_it_was_and_scores_are_asked_for(scored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scored)
    command = ["eval", "--model", "m", "--data", "data/two", "--json", "--scores"]
    report = json.loads(CliRunner().invoke(cli.main, command, catch_exceptions=False).stdout)
    assert report["metrics"] == {"loss": 11.0}
    assert report["predictions"][0]["scores"] == {"f1": 0.5}
    assert report["worst"][0]["id"] == "a"
    lines = CliRunner().invoke(cli.main, [*command[:5], "--data", "data/one"], catch_exceptions=False).stdout
    assert "data/two, validation\nloss" in lines
    assert "data/one, validation\nloss" in lines
    _, _, sample_text = lines.partition("Wrong answers drawn at random, of each class:")
    assert (
        sample_text.index("b: predicted x, expected y")
        < sample_text.index("d: predicted x, expected z")
        < sample_text.index("c: predicted x")
    )


def test_data_that_is_gone_is_asked_for(scored: Path) -> None:
    (scored / "data" / "two" / "manifest.json").unlink()
    with raises(UsageError, "run.missing-data", "data/two"):
        splits.datasets_of(str(scored / "runs" / "both"))
    with raises(UsageError, "option.missing", "--data"):
        splits.datasets_of(str(scored))
    with raises(UsageError, "run.not-found", "boht", "both"):
        splits.datasets_of(str(scored / "runs" / "boht"))


def test_a_place_for_predictions_is_checked_before_anything_is_scored(scored: Path) -> None:
    (scored / "file").write_text("")
    command = ["eval", "--model", str(scored / "runs" / "both"), "--predictions"]
    for path in (scored, scored / "file" / "a.json"):
        received_options.clear()
        refused("output.unwritable", str(path), "--predictions", command=(*command, path))
        assert not received_options
    (scored / "manifest.json").write_text("{}\n")
    refused("output.foreign-file", "manifest.json", "--predictions", command=(*command, scored / "manifest.json"))
    assert (scored / "manifest.json").read_text() == "{}\n"


def test_options_of_generating_and_a_limit_are_taken(scored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scored)
    command = ["eval", "--model", "m", "--data", "data/two", "--limit", "5", "--beams", "4", "--no-repeat-ngram", "2"]
    CliRunner().invoke(cli.main, command, catch_exceptions=False)
    assert (
        received_options[0].limit,
        received_options[0].generation.beams,
        received_options[0].generation.no_repeat_ngram,
    ) == (5, 4, 2)
    refused("option.missing-prerequisite", "--top-k", "--sample", command=(*command, "--top-k", "3"))


def test_a_dataset_of_another_task_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(9))
    learned = prepared(source, tmp_path / "learned", tokenizer="sample:")
    columns = {"inputs_column": "Title", "targets_column": "Y"}
    prepared(source, tmp_path / "other", task="text2text", tokenizer="sample:", options=columns)
    opened = SimpleNamespace(name="runs/one", manifests=(learned,))
    splits._warn_of_unrelated(opened, [Dataset(tmp_path / "learned")])  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
    splits._warn_of_unrelated(opened, [Dataset(tmp_path / "other")])  # type: ignore[arg-type]
    warning = capsys.readouterr().err
    assert f"runs/one was trained on so_quality, but {tmp_path / 'other'} is of the task text2text" in warning

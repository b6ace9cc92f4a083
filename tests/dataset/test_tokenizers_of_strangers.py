"""The Hub is not asked for a tokenizer that only the author of a dataset has named."""

import dataclasses
from pathlib import Path

import pytest
from raised import raises, refused
from servers.internet import Internet
from small_corpora import prepared, questions, write_csv

import t5prep
from t5prep.dataset import manifest
from t5prep.dataset.prepared import Dataset
from t5prep.errors import TokenizerError
from t5prep.report import explore
from t5prep.sources import sample
from t5prep.training.data import open_datasets
from t5prep.training.settings import train_config

NAME = "somebody/some-t5"


@pytest.fixture
def data(internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of somebody else, whose manifest names the tokenizer of a repository on the Hub."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    internet.hub.models[NAME] = {"spiece.model": sample.tokenizer_path().read_bytes()}
    facts = prepared(write_csv(tmp_path / "rows.csv", questions(20)), tmp_path / "data", tokenizer="sample:")
    tokenizer = dataclasses.replace(facts.tokenizer, name=NAME)
    (tmp_path / "data" / manifest.NAME).write_text(dataclasses.replace(facts, tokenizer=tokenizer).sealed().dumps())
    return tmp_path / "data"


def config_of(data: Path, model: str) -> train_config.TrainConfig:
    return train_config.build({"data": (str(data),), "model": model, "out": "run"})


def test_no_command_asks_the_hub_for_a_name_that_this_user_never_used(
    internet: Internet, data: Path, tmp_path: Path
) -> None:
    code = "dataset.untrusted-tokenizer"
    for command in (
        ["inspect", data],
        ["table", data, tmp_path / "t.csv"],
        ["why", "1005", "--data", data],
        ["train", "--recipe", "tiny", "--data", data, "--out", tmp_path / "run"],
    ):
        refused(code, NAME, f"--tokenizer {NAME} ", command=command)
    with raises(TokenizerError, code):
        explore.Explorer(str(data))
    page = t5prep.report.write(data, out=tmp_path / "report.html").read_text()
    assert f"--tokenizer {NAME}" in page
    assert not internet.server.requests


def test_a_name_that_the_user_gives_is_fetched_and_remembered(internet: Internet, data: Path) -> None:
    assert Dataset(data, tokenizer=NAME).tokenizer.sha256 == Dataset(data).tokenizer.sha256
    assert internet.server.requests


def test_a_prepared_dataset_needs_no_option_afterwards(internet: Internet, data: Path, tmp_path: Path) -> None:
    prepared(tmp_path / "rows.csv", tmp_path / "own", tokenizer=NAME)
    assert t5prep.table(tmp_path / "own").read_all().num_rows == 20


def test_what_the_cache_has_is_read_without_a_request(
    internet: Internet, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ = Dataset(data, tokenizer=NAME).tokenizer
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    internet.server.requests.clear()
    assert Dataset(data).tokenizer.vocab_size > 0
    assert not internet.server.requests


@pytest.mark.parametrize("name", [NAME, "another/t5", "folder"])
def test_training_takes_the_tokenizer_of_its_model(internet: Internet, data: Path, tmp_path: Path, name: str) -> None:
    """On a machine that has only the dataset, such as a new TPU VM."""
    internet.hub.models["another/t5"] = internet.hub.models[NAME]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "spiece.model").write_bytes(sample.tokenizer_path().read_bytes())
    model = str(tmp_path / name) if name == "folder" else name
    (opened,) = open_datasets.open_training_splits(config_of(data, model))
    assert opened.dataset.tokenizer.sha256 == opened.manifest.tokenizer.sha256
    assert {NAME, "another/t5"} & {
        request.path.removeprefix("/api/models/") for request in internet.server.requests
    } == ({name} - {"folder"})


def test_a_model_with_another_tokenizer_is_no_help(internet: Internet, data: Path) -> None:
    internet.hub.models["another/t5"] = {"config.json": b"{}"}
    for model in ("another/t5", "tiny"):
        (opened,) = open_datasets.open_training_splits(config_of(data, model))
        with raises(TokenizerError, "dataset.untrusted-tokenizer", NAME):
            _ = opened.dataset.tokenizer

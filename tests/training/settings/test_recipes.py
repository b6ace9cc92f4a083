"""Every recipe is tried by a command, and starts from a model that lies on the Hub as the published one does."""

import json
import re
from pathlib import Path

import published_models
import pytest
import readme
from click.testing import CliRunner
from servers.corpora import publish
from servers.internet import Internet

from t5prep import cli
from t5prep.tokens import loading
from t5prep.training.run import run
from t5prep.training.settings import train_config

# Recipes that no command of docs/published-systems.md names. The others make a step and an evaluation by that command, in
# tests/test_published_table.py; the sample is learnt in tests/training/test_training_sample.py, encoders in test_encoder_runs.py.
OF_NO_SYSTEM = {"tiny", "tiny_bert", "tune_bert"}
BYT5 = "google/byt5-small"  # without a SentencePiece model


def test_every_recipe_is_tested() -> None:
    page = (readme.ROOT / "docs" / "published-systems.md").read_text(encoding="utf-8")
    assert set(re.findall(r"t5prep train --recipe (\w+)", page)) == set(train_config.recipes()) - OF_NO_SYSTEM
    models = {train_config.read_recipe(name)["model"] for name in set(train_config.recipes()) - OF_NO_SYSTEM}
    assert {name for name in models if "bert" not in name} <= set(published_models.NAMES)


@pytest.mark.parametrize("name", published_models.NAMES)
def test_a_model_as_it_is_published_is_read_with_its_own_tokenizer(
    internet: Internet, tmp_path: Path, name: str
) -> None:
    internet.hub.models[name] = published_models.files(name, tmp_path)
    words = loading.load(name)
    shape, weights, model_tokenizer = run.start_from(train_config.build({"model": name}), ids=words.size)
    assert model_tokenizer is not None
    assert model_tokenizer.sha256 == words.sha256
    # Where the vocabulary holds no more than the tokenizer's ids, it is not a multiple of 128.
    published_model = published_models.PUBLISHED[name]
    assert shape.vocab_size - words.size == published_model["config"]["vocab_size"] - published_model["tokenizer_ids"]
    assert weights["shared"].shape == (shape.vocab_size, shape.d_model)


@pytest.mark.parametrize("name", train_config.recipes())
def test_a_recipes_batch_can_be_cut_into_the_eight_cores_of_a_tpu(name: str) -> None:
    config = train_config.build(train_config.read_recipe(name))
    assert config.batch % (8 * config.accumulate) == 0
    assert (config.eval_batch or config.batch) % 8 == 0


@pytest.mark.slow
def test_a_recipe_starts_on_eight_devices_from_a_model_without_sentencepiece(
    internet: Internet, tmp_path: Path
) -> None:
    """A whole recipe from a folder that has tokenizer.json alone."""
    publish(internet)
    internet.hub.models[BYT5] = published_models.files(BYT5, tmp_path / "model")
    data = str(tmp_path / "data")
    prepared = ["prepare", "sst2", "--tokenizer", BYT5, "--out", data, "--workers", "1", "--target-length", "16"]
    trained = ["train", "--recipe", "sst2", "--replicas", "8", "--data", data, "--out", str(tmp_path / "run")]
    trained += ["--model", BYT5, "--set=weights=pretrained"]
    trained += [f"--set={setting}" for setting in ("steps=1", "warmup=0", "eval_every=1", "tensorboard=false")]
    for command in ([*prepared, "--input-length", "32"], trained):
        result = CliRunner().invoke(cli.main, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if "loss" in line]
    assert [line["validation_loss"] for line in lines if "validation_loss" in line]

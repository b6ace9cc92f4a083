"""Every recipe starts, on eight devices, from a model that lies on the Hub as the published one does."""

import json
from pathlib import Path

import published_models
import pytest
from click.testing import CliRunner
from servers.corpora import publish
from servers.internet import Internet

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep import cli
from t5prep.tokens import loading
from t5prep.train.run import run
from t5prep.train.settings import config as configs

# Recipes with their own models; with another model where that takes a path of its own: one without a SentencePiece model.
MODELS = {"sst2": "google/byt5-small"}
CASES = [
    pytest.param(name, MODELS.get(name, ""), marks=pytest.mark.slow)
    for name in sorted(configs.recipes())
    if "bert" not in name
]
# Recipes of encoders: tests/train/test_encoder_runs.py trains one.
OF_ENCODERS = {"sst2_bert", "tiny_bert", "tune_bert"}
SOURCES = {"tiny": ("so_quality", "sample:", "sample:")}


def _prepare(internet: Internet, name: str, model: str, out: Path) -> None:
    """The recipe's task from the address that it names itself, with the model's own tokenizer, cut short."""
    task, source, tokenizer = SOURCES.get(name, (name, "", model))
    if name == "span_corruption":
        lines = out.with_suffix(".txt")
        lines.write_text("\n".join(f"A line of text that says {number} and more of it." for number in range(300)))
        source = str(lines)
    options = ["--tokenizer", tokenizer, "--out", str(out), "--workers", "1"]
    options += ["--input-length", "96" if name == "diacritics_ro" else "32"]
    options += ["--source", source] if source else []
    options += ["--target-length", "96"] if name == "diacritics_ro" else []
    options += ["--target-length", "16"] if name in ("causal_qa", "sst2", "translate_en_ro") else []
    options += ["--splits", "train=0.8,validation=0.2"] if name in ("span_corruption", "tiny") else []
    options += ["--limit", "100"] if name == "tiny" else []
    done = CliRunner().invoke(cli.main, ["prepare", task, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_every_recipe_is_tested() -> None:
    assert {str(case.values[0]) for case in CASES} == set(configs.recipes()) - OF_ENCODERS
    named = {configs.read_recipe(name)["model"] for name in set(configs.recipes()) - OF_ENCODERS} - {"tiny"}
    assert named <= set(published_models.NAMES)


@pytest.mark.parametrize("name", published_models.NAMES)
def test_a_model_as_it_is_published_is_read_with_its_own_tokenizer(
    internet: Internet, tmp_path: Path, name: str
) -> None:
    internet.hub.models[name] = published_models.files(name, tmp_path)
    words = loading.load(name)
    shape, weights, own = run.start_from(configs.build({"model": name}), ids=words.size)
    assert own is not None
    assert own.sha256 == words.sha256
    # Where the vocabulary holds no more than the tokenizer's ids, it is not a multiple of 128.
    said = published_models.PUBLISHED[name]
    assert shape.vocab_size - words.size == said["config"]["vocab_size"] - said["tokenizer_ids"]
    assert weights["shared"].shape == (shape.vocab_size, shape.d_model)


@pytest.mark.parametrize("name", configs.recipes())
def test_a_recipes_batch_can_be_cut_into_the_eight_cores_of_a_tpu(name: str) -> None:
    config = configs.build(configs.read_recipe(name))
    assert config.batch % (8 * config.accumulate) == 0
    assert (config.eval_batch or config.batch) % 8 == 0


@pytest.mark.parametrize(("name", "model"), CASES)
def test_a_recipe_makes_a_step_and_an_evaluation(internet: Internet, tmp_path: Path, name: str, model: str) -> None:
    publish(internet)
    named = model or configs.read_recipe(name)["model"]
    if named != "tiny":
        internet.hub.models[named] = published_models.files(named, tmp_path / "model")
    _prepare(internet, name, named, tmp_path / "data")
    command = ["train", "--recipe", name, "--replicas", "8", "--data", str(tmp_path / "data")]
    command += ["--out", str(tmp_path / "run"), *(["--model", model] if model else [])]
    command += [f"--set={setting}" for setting in ("steps=1", "warmup=0", "eval_every=1", "tensorboard=false")]
    command += ["--set=weights=pretrained"] if model else []
    done = CliRunner().invoke(cli.main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if "loss" in line]
    assert [line["validation_loss"] for line in lines if "validation_loss" in line]

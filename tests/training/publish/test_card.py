"""The model card as the Hub's own reader understands it."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import toy_dataset
from huggingface_hub import ModelCard

from t5prep.training.model.architecture import EncoderConfig, ModelConfig
from t5prep.training.publish.model_card import model_card
from t5prep.training.run.checkpoints import State
from t5prep.training.run.run import Model
from t5prep.training.settings import train_config

METRICS = {"loss": 0.5, "accuracy": 0.9364, "macro_f1": 0.93, "rouge1_f1": 0.4, "rougeL_f1": 0.3, "confusion": {}}


def a_model(tmp_path: Path, *, uri: str = "hf:nyu-mll/glue@abc#sst2", **values: Any) -> Model:
    manifest = toy_dataset.write(tmp_path, {"train": [4], "validation": [4]})
    manifest = dataclasses.replace(manifest, source=dataclasses.replace(manifest.source, uri=uri))
    settings = dataclasses.asdict(train_config.build({"data": "d", "out": "o", "model": "google-t5/t5-base"}, values))
    state = State(step=7, config=settings, data=[], tokenizer="", metric="accuracy", metrics=METRICS)  # type: ignore[arg-type]
    return Model("o/checkpoints/7", ModelConfig(), {}, manifests=(manifest,), state=state)


def test_the_hub_reads_licence_base_model_datasets_and_metrics(tmp_path: Path) -> None:
    card = ModelCard(model_card(a_model(tmp_path), name="mine"))
    assert card.data.license == "apache-2.0"
    assert card.data.base_model == "google-t5/t5-base"
    assert card.data.datasets == ["nyu-mll/glue"]
    assert card.data.metrics == ["accuracy", "f1", "rouge"]
    assert card.data.library_name == "transformers"
    results = {result.metric_name: result for result in card.data.eval_results}
    assert results["accuracy"].metric_value == 0.9364
    assert (results["accuracy"].dataset_type, results["accuracy"].dataset_split) == ("nyu-mll/glue", "validation")
    assert set(results) == {"accuracy", "macro_f1", "rouge1_f1", "rougeL_f1"}
    assert "pypi" not in card.content


@pytest.mark.parametrize(
    ("values", "base", "licence"),
    [
        ({"model": "t5-base"}, "google-t5/t5-base", "apache-2.0"),
        ({"model": "somebody/some-t5"}, "somebody/some-t5", None),
        ({"model": "gs://bucket/runs/one"}, None, None),
        ({"model": "google/t5-v1_1-base", "weights": "random"}, None, None),
        ({"model": "tiny", "weights": "random"}, None, None),
    ],
)
def test_where_it_came_from(tmp_path: Path, values: dict, base: str | None, licence: str | None) -> None:
    card = ModelCard(model_card(a_model(tmp_path, **values), name="mine"))
    assert card.data.base_model == base
    assert card.data.license == licence
    mit_card = ModelCard(model_card(a_model(tmp_path / "again", **values), name="mine", licence="mit"))
    assert mit_card.data.license == "mit"


def test_data_of_other_hosts_are_not_named_as_the_hubs(tmp_path: Path) -> None:
    card = ModelCard(model_card(a_model(tmp_path, uri="kaggle:imoore/60k"), name="mine"))
    assert card.data.datasets is None
    assert "kaggle:imoore/60k" in card.content


def test_a_model_that_was_never_trained_here_has_a_card_too(tmp_path: Path) -> None:
    card = ModelCard(model_card(Model("m", ModelConfig(), {}), name='odd: "name" #1'))
    assert card.data.library_name == "transformers"


def test_a_classifiers_card_has_its_settings_and_no_perplexity(tmp_path: Path) -> None:
    model = a_model(tmp_path, z_loss=0.0, buckets=("32x1", "64x1"), dropout=0.0)
    assert model.state is not None
    metrics = {
        "loss": 0.3,
        "perplexity": 1.35,
        "token_accuracy": 0.8,
        "records": 872.0,
        "sst2/records": 872.0,
        "sst2/perplexity": 1.35,
        "macro_f1": 0.86,
        "accuracy": 0.87,
    }
    state = dataclasses.replace(model.state, metrics=metrics)
    card = model_card(dataclasses.replace(model, state=state, config=EncoderConfig(classes=("no", "yes"))), name="mine")
    assert "| records | 872 |" in card
    assert "| sst2/records | 872 |" in card
    table = card.partition("## Metrics")[2].splitlines()
    assert table[4] == "| accuracy | 0.8700 |"
    assert "perplexity" not in card
    assert "token_accuracy" not in card
    for line in ("| z_loss | 0.0 |", "| seed | 0 |", "| dropout | 0.0 |", "| buckets | 32x1 64x1 |"):
        assert line in card, line
    results = ModelCard(card).data.eval_results
    assert [result.metric_name for result in results] == ["accuracy", "macro_f1"]

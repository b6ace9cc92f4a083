"""An altered shard, and a model's numbers that no model has, are one sentence each."""

import itertools
import json
from pathlib import Path

import pytest
from raised import raises
from toy_dataset import write

from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError, UsageError
from t5prep.training.data import eval_batches, open_datasets
from t5prep.training.data.batches import Reading
from t5prep.training.model.architecture import EncoderConfig, ModelConfig, read_config


@pytest.mark.parametrize("change", ["flip", "cut"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_an_altered_shard_is_a_sentence_that_names_what_finds_it(tmp_path: Path, change: str, split: str) -> None:
    write(tmp_path / "data", {"train": [30], "validation": [30]})
    (shard,) = (tmp_path / "data").glob(f"{split}.*")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(content if change == "flip" else content[: len(content) // 2])
    data = str(tmp_path / "data")
    # A shard of another size is refused before it is read.
    with raises(DatasetError, "dataset.altered"):
        _read(data, split)


def _read(data: str, split: str) -> None:
    """Read some batches of a split."""
    if split == "train":
        list(
            itertools.islice(Reading(open_datasets.open_splits([data], "train"), global_batch=4, seed=0).batches(), 20)
        )
    else:
        list(eval_batches(open_datasets.open_split(Dataset(data), split), batch=4))


@pytest.mark.parametrize("value", [10**9, 1 << 40, -1, 0, 1.5, True])
def test_a_width_that_no_model_has_is_a_sentence(value: float) -> None:
    content = json.dumps({"model_type": "t5", "d_model": value}).encode()
    with raises(UsageError, "model.invalid-config", "d_model", "m/config.json"):
        read_config(content, location="m/config.json")


def test_an_encoder_without_heads_is_a_sentence() -> None:
    content = json.dumps({"model_type": "bert", "num_attention_heads": 0}).encode()
    with raises(UsageError, "model.invalid-config", "m/config.json"):
        read_config(content, location="m/config.json")


@pytest.mark.parametrize("config", [ModelConfig(), EncoderConfig()])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-6, "small"])
def test_an_epsilon_that_is_no_number_is_named(config: ModelConfig | EncoderConfig, value: object) -> None:
    """With NaN every answer would be nonsense, with exit code 0."""
    document = config.to_json()
    name = "layer_norm_epsilon" if "layer_norm_epsilon" in document else "layer_norm_eps"
    with raises(UsageError, "model.invalid-config", "layer_norm_epsilon", "m/config.json"):
        read_config(json.dumps({**document, name: value}).encode(), location="m/config.json")

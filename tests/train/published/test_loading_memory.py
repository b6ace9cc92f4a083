"""A published model is loaded within twice its size in memory, from each of the four formats."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import model_formats
import numpy as np
import published_models
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.weights import load_weights, random_weights, save_weights

# T5-base with every width divided by six: its largest tensor is the embeddings here too, and as large a share.
SHAPE = ModelConfig(vocab_size=5376, d_model=128, d_kv=16, d_ff=512, num_layers=12, num_decoder_layers=12, num_heads=8)
Write = Callable[[Path, dict[str, np.ndarray]], None]
WRITERS: dict[str, Write] = {
    "pytorch_model.bin": model_formats.write_pytorch,
    "flax_model.msgpack": model_formats.write_flax,
    "tf_model.h5": model_formats.write_hdf5,
}


@pytest.mark.parametrize("format", ["model.safetensors", *WRITERS])
def test_loading_takes_less_than_twice_the_models_size(tmp_path: Path, format: str) -> None:
    weights = random_weights(SHAPE)
    size = sum(value.nbytes for value in weights.values())
    (tmp_path / "config.json").write_text(json.dumps(SHAPE.to_json()))
    if format in WRITERS:
        WRITERS[format](tmp_path / format, published_models.tensors_of(SHAPE, weights))
    else:
        save_weights(tmp_path, SHAPE, weights)
    del weights
    tracemalloc.start()
    try:
        loaded = load_weights(tmp_path)[1]
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 20e6
    assert size == sum(value.nbytes for value in loaded.values()) <= held < 1.05 * size
    assert peak < 1.5 * size

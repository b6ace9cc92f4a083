"""A published model is read in parts: beside what the devices hold, one part and one tensor, in each of four formats."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import jax
import model_formats
import numpy as np
import published_models
import pytest

from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weights import load_weights, random_weights, save_weights
from t5prep.training.published.stored import LazyArray
from t5prep.training.runtime.layout import arrange

# T5-base with every width divided by six: its largest tensor is the embeddings here too, and as large a share.
SHAPE = ModelConfig(vocab_size=5376, d_model=128, d_kv=16, d_ff=512, num_layers=12, num_decoder_layers=12, num_heads=8)
Write = Callable[[Path, dict[str, np.ndarray]], None]
WRITERS: dict[str, Write] = {
    "pytorch_model.bin": model_formats.write_pytorch,
    "flax_model.msgpack": model_formats.write_flax,
}
OBJECTS = 1_000_000  # bytes of Python's own objects: names, paths, functions


@pytest.mark.parametrize("format", ["model.safetensors", *WRITERS])
def test_beside_the_devices_one_part_and_one_tensor_are_in_memory(tmp_path: Path, format: str) -> None:
    weights = random_weights(SHAPE)
    size = sum(value.nbytes for value in weights.values())
    (tmp_path / "config.json").write_text(json.dumps(SHAPE.to_json()))
    if format in WRITERS:
        WRITERS[format](tmp_path / format, published_models.tensors_of(SHAPE, weights))
    else:
        save_weights(tmp_path, SHAPE, weights)
    largest_part = max(value.nbytes for value in weights.values()) / 8
    tensor = 128 * 512 * 4  # of those that are not split along their first axis, which is read whole
    parts = arrange(jax.devices("cpu")[:8], shard=8).weights(SHAPE)
    tracemalloc.start()
    try:
        loaded = load_weights(tmp_path)[1]
        for name, array in weights.items():
            for index in parts[name].sharding.addressable_devices_indices_map(array.shape).values():
                assert np.array_equal(loaded[name][index], array[index])  # as `put_weights` reads them
        current_size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 20e6
    assert current_size < OBJECTS
    assert peak < 1.3 * (largest_part + tensor) + OBJECTS < size / 10


def test_a_part_is_what_the_whole_array_has_there() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    read_indices = []

    def read(index: tuple[slice, ...]) -> np.ndarray:
        read_indices.append(index)
        return array[index]

    lazy = LazyArray(array.shape, read)
    indices = [(), 1, np.int64(1), slice(1, None), (0, slice(1, 3)), (slice(None), 2), (1, 2, 3)]
    for index in indices:
        assert np.array_equal(lazy[index], array[index])
    assert read_indices[4] == (slice(0, 1), slice(1, 3), slice(0, 4))
    assert np.array_equal(np.asarray(lazy), array)
    for bad in ((..., 0), slice(None, None, 2), -1, (0, 0, 0, 0)):
        with pytest.raises(IndexError):
            lazy[bad]

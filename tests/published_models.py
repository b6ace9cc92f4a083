"""Tiny models that look as the published ones do on the Hub: the same files, names, dtypes and vocabulary.

What these are is in tests/data/published/recipes.json, with the revision each was read from.
"""

import json
from pathlib import Path
from typing import Any

import model_formats
import numpy as np

from t5prep.sources import sample
from t5prep.tokens import huggingface_files, model_proto
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import random_weights, save_weights

PUBLISHED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "published" / "recipes.json").read_text())
NAMES = [name for name in PUBLISHED if "/" in name]
TINY = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_heads": 2, "num_layers": 1, "decoder_start_token_id": 0}
TINY |= {"pad_token_id": 0, "eos_token_id": 1, "is_encoder_decoder": True}


def tokenizer_of(name: str) -> Tokenizer:
    """The sample's small tokenizer instead of the model's own; ByT5's is ByT5's."""
    if "byt5" in name:
        return Tokenizer(model_proto.model(), name=name)
    return Tokenizer(sample.tokenizer_path().read_bytes(), name=name)


def files(name: str, folder: Path) -> dict[str, bytes]:
    """The files of a tiny model by name. `folder` is a directory to write them in."""
    recipe = PUBLISHED[name]
    assert recipe["dtype"] == "float32"
    tokenizer = tokenizer_of(name)
    beyond = recipe["config"]["vocab_size"] - recipe["tokenizer_ids"]
    config = {**recipe["config"], **TINY, "vocab_size": tokenizer.size + beyond}
    shape = ModelConfig.from_json(config)
    weights = random_weights(shape, seed=3)
    tensors = tensors_of(shape, weights)
    folder.mkdir(parents=True, exist_ok=True)
    words = {"tokenizer_class": "ByT5Tokenizer" if tokenizer.is_bytes else "T5Tokenizer", "extra_ids": 100}
    contents = {"config.json": _json(config), "tokenizer_config.json": _json(words)}
    if "spiece.model" in recipe["files"]:
        contents["spiece.model"] = tokenizer.model
    if "tokenizer.json" in recipe["files"]:
        contents["tokenizer.json"] = _json(huggingface_files.tokenizer_json(tokenizer))
    # A tied model's old pickle has its one embedding under every name that it has in PyTorch.
    aliases = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    tied_names = dict.fromkeys([*aliases, *(["lm_head.weight"] if shape.tie_word_embeddings else [])], "shared.weight")
    model_formats.write_pytorch(folder / "pytorch_model.bin", tensors, aliases=tied_names)
    model_formats.write_flax(folder / "flax_model.msgpack", tensors)
    save_weights(folder, shape, weights)
    contents |= {path.name: path.read_bytes() for path in folder.iterdir() if path.name in recipe["files"]}
    return {file: contents.get(file, b"not read") for file in recipe["files"]}


def tensors_of(shape: ModelConfig, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights by PyTorch's names."""
    tensors = {}
    for name, layout in weight_layouts(shape).items():
        rows = weights[name].reshape(-1, *layout.shape[layout.stacked_axes :])
        tensors |= {t: row.T if layout.transposed else row for t, row in zip(layout.tensors, rows, strict=True)}
    return tensors


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()

"""Weights in and out of `model.safetensors` under their Hugging Face names, or drawn at random as T5 begins.

What comes in goes out bit for bit: float32 tensors are only stacked and transposed.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from t5prep.errors import UsageError
from t5prep.io import suggestions
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.weight_layout import WeightLayout, weight_layouts

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
# Other names of the input embedding: files written from shared memory keep any one of them.
EMBEDDING_ALIASES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# Written by old versions of transformers; no T5 ever used it.
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def find_model(name: str | Path) -> Path:
    """The directory of a model: `name` itself where it is one, else a snapshot from the Hub, fetched if need be.

    Raises UsageError when it is neither.
    """
    if Path(name).is_dir():
        return Path(name)
    if "/" in str(name) and (meant := suggestions.mistyped(name)):
        raise UsageError(f"{name} does not exist.{meant} Pass a run, a directory with config.json, or a Hub name.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(name), allow_patterns=["*.json", "*.safetensors", "*.model"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise UsageError(
            f'"{name}" is no directory, and the Hugging Face Hub gave no such model ({type(error).__name__}): pass a'
            " directory with config.json and model.safetensors, or a name such as google-t5/t5-base."
        ) from error


def load_config(name: str | Path) -> ModelConfig:
    """The config of a model: a directory, or a Hub name. Raises UsageError where there is none or of another kind."""
    path = find_model(name) / "config.json"
    if not path.is_file():
        if (path.parent / "manifest.json").is_file():
            raise UsageError(
                f"{path.parent} is a prepared dataset. A model is a run, an exported model, or a Hub name."
            )
        raise UsageError(f'"{path.parent}" holds no config.json: pass a directory in Hugging Face layout.')
    return ModelConfig.read(path.read_bytes(), where=path)


def load_weights(name: str | Path) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """A model's config and its weights, float32, in our layout (`weight_layout`).

    The file settles whether the embeddings are tied: they are when it has no `lm_head.weight`.
    Raises UsageError when there are no safetensors, or they are not a T5 of that config.
    """
    directory = find_model(name)
    config = load_config(directory)
    files = _tensor_files(directory)
    shared = next((alias for alias in EMBEDDING_ALIASES if alias in files), None)
    if shared is None and "lm_head.weight" in files:
        shared, tied = "lm_head.weight", True
    else:
        tied = "lm_head.weight" not in files or (config.tie_word_embeddings and _same(files, str(shared)))
    config = dataclasses.replace(config, tie_word_embeddings=tied)
    layouts = weight_layouts(config)
    wanted = {tensor for layout in layouts.values() for tensor in layout.tensors}
    known = wanted | {*EMBEDDING_ALIASES, "lm_head.weight", UNUSED}
    missing = sorted(wanted - files.keys() - {"shared.weight"}) + ([] if shared else ["shared.weight"])
    if missing or files.keys() - known:
        what = f"lacks {missing[0]}" if missing else f"has {sorted(files.keys() - known)[0]}, which no T5 has"
        raise UsageError(
            f'"{directory}" {what}: pass a checkpoint of T5ForConditionalGeneration or MT5ForConditionalGeneration.'
        )
    files["shared.weight"] = files[str(shared)]
    return config, {name: _stacked(layout, files, str(shared)) for name, layout in layouts.items()}


def random_weights(config: ModelConfig, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights as T5 begins, in our layout: normal, of each tensor's own deviation; the same for the same seed."""
    weights = {}
    for name, layout in weight_layouts(config).items():
        if layout.stddev is None:
            weights[name] = np.ones(layout.shape, np.float32)
            continue
        drawn = np.empty((len(layout.tensors), *layout.shape[layout.stacked_axes :]), np.float32)
        for tensor, values in zip(layout.tensors, drawn, strict=True):
            # Each tensor has a stream of its own, so that a deeper model begins with the same lower layers.
            generator = np.random.default_rng([seed, *tensor.encode()])
            generator.standard_normal(dtype=np.float32, out=values)
        weights[name] = (drawn * np.float32(layout.stddev)).reshape(layout.shape)
    return weights


def create_variables(weights: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
    """One variable for each weight; inside a strategy's scope, one copy on each of its replicas."""
    return {name: tf.Variable(value, name=name.replace(".", "_")) for name, value in weights.items()}


def save_weights(directory: str | Path, config: ModelConfig, weights: Mapping[str, Any]) -> Path:
    """Write `model.safetensors` in Hugging Face names, whole or not at all, and give its path.

    weights: arrays or variables in our layout. `config.json` is the exporter's: `config.to_json()`.
    """
    tensors = {}
    for name, layout in weight_layouts(config).items():
        values = np.asarray(weights[name], np.float32).reshape(-1, *layout.shape[layout.stacked_axes :])
        for tensor, value in zip(layout.tensors, values, strict=True):
            tensors[tensor] = np.ascontiguousarray(value.T if layout.transposed else value)
    path = Path(directory) / WEIGHTS_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        safetensors.numpy.save_file(tensors, part, metadata={"format": "pt"})
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _tensor_files(directory: Path) -> dict[str, Path]:
    """Which file holds each tensor, by name."""
    if (directory / WEIGHTS_NAME).is_file():
        files = [directory / WEIGHTS_NAME]
    elif (directory / INDEX_NAME).is_file():
        try:
            index = json.loads((directory / INDEX_NAME).read_bytes())
            files = sorted({directory / file for file in index["weight_map"].values()})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f'"{directory / INDEX_NAME}" is damaged ({error}): fetch it again.') from error
    elif any(directory.glob("pytorch_model*.bin")):
        raise UsageError(
            f'"{directory}" has its weights pickled (pytorch_model.bin), which can run code when opened: convert them'
            " once, where you trust them, with transformers:"
            " AutoModelForSeq2SeqLM.from_pretrained(DIR).save_pretrained(DIR)."
        )
    else:
        raise UsageError(f'"{directory}" holds no model.safetensors: pass a checkpoint in Hugging Face layout.')
    return {tensor: file for file in files for tensor in _names(file)}


def _names(file: Path) -> Iterator[str]:
    try:
        with safetensors.safe_open(file, framework="np") as opened:
            yield from opened.keys()
    except (OSError, safetensors.SafetensorError) as error:
        raise UsageError(f'"{file}" cannot be read as safetensors ({error}): fetch it again.') from error


def _read(file: Path, tensor: str) -> np.ndarray:
    with safetensors.safe_open(file, framework="np") as opened:
        return np.asarray(opened.get_tensor(tensor), np.float32)


def _same(files: Mapping[str, Path], shared: str) -> bool:
    return np.array_equal(_read(files[shared], shared), _read(files["lm_head.weight"], "lm_head.weight"))


def _stacked(layout: WeightLayout, files: Mapping[str, Path], shared: str) -> np.ndarray:
    weight = layout.shape[layout.stacked_axes :]
    stack = np.empty((len(layout.tensors), *weight), np.float32)
    for row, tensor in zip(stack, layout.tensors, strict=True):
        value = _read(files[tensor], shared if tensor == "shared.weight" else tensor)
        value = value.T if layout.transposed else value
        if value.shape != weight:
            raise UsageError(
                f'"{files[tensor]}" has {tensor} of shape {value.shape}, and config.json says {weight}: they are not of'
                " one model; fetch both again."
            )
        row[...] = value
    return stack.reshape(layout.shape)

"""Read a run's LoRA adapters, and write them in the layout of Hugging Face's peft.

A checkpoint of such a run holds only the adapters and the head. All other weights come from the *base*, the run's `model`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import google_crc32c
import numpy as np

from t5prep.errors import OutputError
from t5prep.io import atomic_files
from t5prep.json_values import JSON
from t5prep.training.model import lora
from t5prep.training.model.architecture import Config, ModelConfig
from t5prep.training.model.weight_layout import HEAD_PREFIXES, of_head
from t5prep.training.model.weights import write_layouts
from t5prep.training.published.peft_file import CONFIG_NAME, WEIGHTS_NAME
from t5prep.training.published.stored import Array
from t5prep.training.run import checkpoint_tensors
from t5prep.training.run.checkpoints import State


@dataclasses.dataclass(frozen=True)
class Adapter:
    """Adapters without their base: the config with their rank, and their matrices by our names."""

    base: str  # the user's name of the base
    config: Config
    weights: dict[str, np.ndarray]


def digest(weights: Mapping[str, Array]) -> str:
    """Return a digest of a model's weights without its head, which shows whether the base has changed.

    Every command that opens a run with adapters computes it, so it uses a fast checksum of each array.
    """
    sums = {name: _checksum(array) for name, array in weights.items() if not name.startswith(HEAD_PREFIXES)}
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


def _checksum(array: Array) -> int:
    """Return the CRC-32C of an array. One matrix at a time is in memory, and 4 Mi values of it are copied at a time."""
    checksum, size = 0, 1 << 22
    for index in np.ndindex(array.shape[:-2]):
        values = np.ascontiguousarray(array[index]).reshape(-1)
        for begin in range(0, len(values), size):
            checksum = google_crc32c.extend(checksum, values[begin : begin + size].tobytes())
    return checksum


def read(path: str, state: State, config: Config, weights: dict[str, Array]) -> Adapter:
    """Return the adapters of the checkpoint at `path`, and merge them and the checkpoint's head into `weights`.

    `config` and `weights` are those of the base. Raises OutputError if the adapters were trained with another base.
    """
    if state.base != digest(weights):
        raise OutputError(
            f"The adapters in {path} were trained with other weights than {state.config['model']} has "
            "now. Restore those weights, or train new adapters: t5prep train --set lora=8 ...",
            code="checkpoint.base-mismatch",
        )
    shape = dataclasses.replace(config, lora_rank=state.config["lora"], lora_alpha=state.config["lora_alpha"])
    lazy = checkpoint_tensors.read_weights(path, lora.adapter_layouts(shape))
    matrices = {name: np.asarray(array) for name, array in lazy.items()}
    lora.merge_arrays(weights, matrices, scale=shape.lora_alpha / shape.lora_rank)
    weights |= checkpoint_tensors.read_weights(path, of_head(shape))
    return Adapter(str(state.config["model"]), shape, matrices)


def write(folder: Path, adapter: Adapter, *, base: str, dtype: str) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`, which `PeftModel.from_pretrained` loads.

    base: the name of the base in the config. Raises OutputError.
    """
    layouts = lora.adapter_layouts(adapter.config)
    write_layouts(folder / WEIGHTS_NAME, layouts, adapter.weights, dtype=dtype)
    content = json.dumps(peft_config(adapter.config, base=base), indent=2) + "\n"
    atomic_files.write_whole(folder / CONFIG_NAME, content.encode())


def peft_config(config: Config, *, base: str) -> dict[str, JSON]:
    """Return the content of `adapter_config.json`, the fields of peft's LoraConfig."""
    tensors = [name for layout in lora.adapter_layouts(config).values() for name in layout.tensors]
    modules = {name.removesuffix(lora.PEFT_A).removesuffix(lora.PEFT_B).rpartition(".")[2] for name in tensors}
    # The vision tower of a T5Gemma 2 has modules of the same names, which would otherwise get adapters too.
    exclusions = (
        {"exclude_modules": config.traits.left_out}
        if isinstance(config, ModelConfig) and config.traits.left_out
        else {}
    )
    return {
        "peft_type": "LORA",
        "task_type": "SEQ_2_SEQ_LM",
        "base_model_name_or_path": base,
        "r": config.lora_rank,
        "lora_alpha": config.lora_alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(modules),
        **exclusions,
        "inference_mode": True,
    }

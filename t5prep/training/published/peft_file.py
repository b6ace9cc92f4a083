"""Read LoRA adapters that peft or this package wrote: `adapter_config.json` and `adapter_model.safetensors`."""

import dataclasses
import json

import numpy as np

from t5prep.errors import UsageError
from t5prep.io.model_files import ModelFiles
from t5prep.json_values import JSON, JSONObject
from t5prep.training.model.architecture import Config
from t5prep.training.model.lora import PEFT_A, adapter_layouts
from t5prep.training.published import safetensors_file
from t5prep.training.published.stored import UnreadableError, unreadable_code

CONFIG_NAME, WEIGHTS_NAME = "adapter_config.json", "adapter_model.safetensors"
# Options of peft's LoraConfig that change the meaning of adapters → the values with which adapters are plain and can be read.
PLAIN: dict[str, tuple[JSON, ...]] = {
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "bias": ("none", None),
    "modules_to_save": ([], None),
    "fan_in_fan_out": (False, None),
}


def base_of(files: ModelFiles) -> str:
    """Return the name of the base model of the adapters in `files`. Raises UsageError if none is named."""
    base = _config(files).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UsageError(
            f"{files.name}: {CONFIG_NAME} names no base model. Set base_model_name_or_path in this file.",
            code="weights.missing-base",
        )
    return base


def load(files: ModelFiles, base: Config) -> tuple[Config, dict[str, np.ndarray]]:
    """Return the config `base` with the adapters' rank, and the adapters in our layout; zeros for layers without one.

    Raises UsageError if the adapters are not plain LoRA, are damaged, or belong to another model.
    """
    adapter_config = _config(files)
    unsupported_keys = [key for key, plain in PLAIN.items() if adapter_config.get(key) not in plain]
    rank, alpha = adapter_config.get("r"), adapter_config.get("lora_alpha")
    if (
        adapter_config.get("peft_type") != "LORA"
        or unsupported_keys
        or type(rank) is not int
        or rank < 1
        or not isinstance(alpha, int | float)
    ):
        problem = (
            f"{unsupported_keys[0]}={adapter_config[unsupported_keys[0]]!r}"
            if unsupported_keys
            else f"peft_type={adapter_config.get('peft_type')!r}, r={rank!r}"
        )
        raise UsageError(
            f"{files.name} contains adapters with {problem}, but t5prep supports only plain LoRA. Merge "
            "the adapters with peft.",
            code="weights.unsupported-adapter",
        )
    shape = dataclasses.replace(base, lora_rank=rank, lora_alpha=float(alpha))
    try:
        tensors = safetensors_file.tensors(files.path(WEIGHTS_NAME))
        layouts = adapter_layouts(shape)
        adapter_tensors = {tensor for layout in layouts.values() for tensor in layout.tensors}
        if unknown_names := sorted(tensors.keys() - adapter_tensors):
            raise UsageError(
                f"{files.name} contains {unknown_names[0]}, which does not fit the model {base_of(files)}. Correct "
                "base_model_name_or_path.",
                code="weights.unknown-tensor",
            )
        adapters = {}
        for name, layout in layouts.items():
            weight = layout.shape[layout.stacked_axes :]
            stack = np.zeros((len(layout.tensors), *weight), np.float32)
            for row, tensor in zip(stack, layout.tensors, strict=True):
                if tensor not in tensors:
                    continue
                if tensors[tensor].shape != weight[::-1]:
                    matrix_name = "lora_A" if tensor.endswith(PEFT_A) else "lora_B"
                    raise UsageError(
                        f"{files.name} has a {matrix_name} of shape {tensors[tensor].shape}, but {base_of(files)} "
                        f"needs {weight[::-1]}. Correct base_model_name_or_path.",
                        code="weights.shape-mismatch",
                    )
                row[...] = tensors[tensor].read().T
            adapters[name] = stack.reshape(layout.shape)
    except (UnreadableError, OSError) as error:
        raise UsageError(
            f"{WEIGHTS_NAME} of {files.name} cannot be read: {error}. Fetch the file again.",
            code=unreadable_code(error),
        ) from error
    return shape, adapters


def _config(files: ModelFiles) -> JSONObject:
    try:
        return dict(json.loads(files.read(CONFIG_NAME)))
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{files.name}: {CONFIG_NAME} is damaged ({type(error).__name__}). Fetch the file again.",
            code="model.invalid-config",
        ) from error

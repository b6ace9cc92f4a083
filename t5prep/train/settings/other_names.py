"""Answer settings under the names of other trainers (transformers, T5X, ttt, simpletransformers) with ours."""

from typing import Any, Final

_EFFECT: Final = "batch counts the rows of a step over all devices and all parts of an accumulation"

# Their name → ours, and what a reader has to know before the value is moved over.
NAMES: Final[dict[str, tuple[str, str]]] = {
    "lr": ("learning_rate", ""),
    "max_lr": ("learning_rate", ""),
    "peak_lr": ("learning_rate", ""),
    "lr_scheduler_type": ("schedule", ""),
    "lr_scheduler": ("schedule", ""),
    "scheduler": ("schedule", ""),
    "warmup_steps": ("warmup", ""),
    "num_warmup_steps": ("warmup", ""),
    "warmup_ratio": ("warmup", "below 1 it is a share of all steps"),
    "lr_end": ("end_rate", ""),
    "num_train_epochs": ("epochs", ""),
    "num_epochs": ("epochs", ""),
    "max_epochs": ("epochs", ""),
    "max_steps": ("steps", ""),
    "train_steps": ("steps", ""),
    "num_train_steps": ("steps", ""),
    "total_steps": ("steps", ""),
    "gradient_accumulation_steps": ("accumulate", _EFFECT),
    "grad_accum": ("accumulate", _EFFECT),
    "per_device_train_batch_size": ("batch", _EFFECT),
    "per_device_batch_size": ("batch", _EFFECT),
    "train_batch_size": ("batch", _EFFECT),
    "batch_size": ("batch", _EFFECT),
    "per_device_eval_batch_size": ("eval_batch", "it counts the rows over all devices"),
    "eval_batch_size": ("eval_batch", "it counts the rows over all devices"),
    "eval_steps": ("eval_every", "it counts steps"),
    "eval_period": ("eval_every", "it counts steps"),
    "evaluation_strategy": ("eval_every", "it counts steps, and 0 is once an epoch"),
    "eval_strategy": ("eval_every", "it counts steps, and 0 is once an epoch"),
    "max_eval_samples": ("eval_rows", ""),
    "save_steps": ("save_every", "it counts steps"),
    "save_period": ("save_every", "it counts steps"),
    "save_strategy": ("save_every", "it counts steps, and 0 is with each evaluation"),
    "save_total_limit": ("keep", ""),
    "keep_ck_num": ("keep", ""),
    "logging_steps": ("log_every", "it counts steps"),
    "metric_for_best_model": ("metric", ""),
    "early_stopping_patience": ("patience", ""),
    "predict_with_generate": ("generate", ""),
    "num_beams": ("beams", ""),
    "generation_num_beams": ("beams", ""),
    "fp16": ("dtype", "float16 overflows in T5, bfloat16 does not"),
    "bf16": ("dtype", ""),
    "fp32": ("dtype", ""),
    "mixed_precision": ("dtype", ""),
    "precision": ("dtype", ""),
    "gradient_checkpointing": ("remat", ""),
    "max_grad_norm": ("clip_norm", ""),
    "grad_clip": ("clip_norm", ""),
    "gradient_clip_val": ("clip_norm", ""),
    "adam_beta1": ("beta1", ""),
    "adam_beta2": ("beta2", ""),
    "adam_epsilon": ("epsilon", ""),
    "optim": ("optimizer", ""),
    "label_smoothing_factor": ("label_smoothing", ""),
    "dropout_rate": ("dropout", ""),
    "model_name_or_path": ("model", ""),
    "output_dir": ("out", ""),
}

# Setting → their value → ours.
VALUES: Final[dict[str, dict[str, str]]] = {
    "schedule": {
        "constant_with_warmup": "warmup_constant",
        "warmupconstant": "warmup_constant",
        "warmuplinear": "linear",
        "warmup_linear": "linear",
        "constant_linear": "constantlinear",
        "rsqrt": "inverse_sqrt",
    },
    "optimizer": dict.fromkeys(("adam", "adamw_torch", "adamw_hf", "adamw_torch_fused"), "adamw"),
    "dtype": {
        **dict.fromkeys(("bf16", "bf16-mixed", "fp16", "float16", "half", "16-mixed"), "bfloat16"),
        **dict.fromkeys(("fp32", "float", "32"), "float32"),
    },
}

_PRECISION = {"fp16": ("bfloat16", "float32"), "bf16": ("bfloat16", "float32"), "fp32": ("float32", "bfloat16")}


def name_here(key: str, value: Any) -> str:
    """Return a sentence that says how we call the setting `key` of other trainers; "" where it is not known.

    >>> name_here("lr", "1e-4")
    'There is no setting "lr": it is learning_rate here. Write --set learning_rate=1e-4'
    """
    key = key.lower()
    if key not in NAMES:
        return ""
    ours, note = NAMES[key]
    note = f" ({note})" if note else ""
    return f'There is no setting "{key}": it is {ours} here{note}. Write --set {ours}={_moved(key, ours, value)}'


def value_here(key: str, value: str) -> str:
    """Return our word for another trainer's value of a setting, such as "linear" for the schedule "warmuplinear"; or "".

    >>> value_here("schedule", "warmuplinear"), value_here("schedule", "linear")
    ('linear', '')
    """
    return VALUES.get(key, {}).get(value.lower(), "")


def _moved(key: str, ours: str, value: Any) -> str:
    """Return the value as our setting takes it; N where a number of steps has to be chosen."""
    text = str(value).strip()
    on = text.lower() in ("true", "1", "yes", "on")
    if key in _PRECISION:
        return _PRECISION[key][0 if on else 1]
    if ours in ("remat", "generate"):
        return "true" if on else "false"
    if key.endswith("strategy"):
        return "0" if text in ("epoch", "steps") else "N"
    return value_here(ours, text) or text

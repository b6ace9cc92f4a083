"""Where a model computes: options that several commands share."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import click

from t5prep.errors import UsageError


def need_tensorflow() -> None:
    """Say what to install where TensorFlow is missing, and keeps its notes about its own build to itself."""
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            'TensorFlow is not installed here. Install it with the trainer: pip install "t5prep[train]" '
            '(on a TPU VM: "t5prep[tpu]").'
        )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # what fails is raised; the rest is noise about GPUs


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--tpu [local]` and `--gpus`."""
    tpu = click.option(
        "--tpu",
        is_flag=False,
        flag_value="auto",
        metavar="[local]",
        help="On the TPU of this machine, and of all others of its slice.",
    )
    gpus = click.option("--gpus", is_flag=True, help="On all GPUs of this machine.")
    return tpu(gpus(command))


which = click.option(
    "--checkpoint", "which", default="best", show_default=True, help="Of a run: best, last, or a step's number."
)
tokenizer = click.option("--tokenizer", default="", help="The tokenizer, where the manifest's name leads nowhere.")

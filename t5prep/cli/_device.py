"""Define the options that commands with a model share: its devices, checkpoint, tokenizer and code."""

from collections.abc import Callable
from typing import Any

import click

from t5prep.train import need_tensorflow as need_tensorflow


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
trust_code = click.option(
    "--trust-code",
    is_flag=True,
    help="Execute the Python file of a task that came with the model, though you have never run it: read it first.",
)
tokenizer = click.option(
    "--tokenizer", default="", help="The tokenizer, if the one that the manifest names cannot be found."
)

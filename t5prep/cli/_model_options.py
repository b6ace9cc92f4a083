"""Define the options that commands with a model share: devices, checkpoint, tokenizer, trusted code, generation."""

from collections.abc import Callable
from typing import Any

import click

from t5prep.cli._addresses import ADDRESS


def need_tensorflow() -> None:
    """Raise UsageError, with the install command, if TensorFlow is missing."""
    from t5prep.training import need_tensorflow as needed  # which loads Triton where it is installed: 0.1 s and 66 MB

    needed()


def recipe_names(context: click.Context, option: click.Parameter, begun: str) -> list[str]:
    """Return the recipes that complete what was typed for `--recipe`."""
    from t5prep.training.settings.config import recipes

    return [name for name in recipes() if name.startswith(begun)]


def setting_names(context: click.Context, option: click.Parameter, begun: str) -> list[str]:
    """Return the settings that complete what was typed for `--set`, each with its `=`."""
    import dataclasses

    from t5prep.training.settings.config import TrainConfig

    return [f"{field.name}=" for field in dataclasses.fields(TrainConfig) if field.name.startswith(begun)]


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
    help="Execute the Python file of a task that came with the model or the data, though you have never run it: read it first.",
)
tokenizer = click.option(
    "--tokenizer", type=ADDRESS, default="", help="The tokenizer, if the one that the manifest names cannot be found."
)


_OPTIONS = (
    click.option("--beams", default=1, show_default=True, type=click.IntRange(min=1), help="1 is greedy."),
    click.option(
        "--length-penalty",
        default=0.6,
        show_default=True,
        type=float,
        help="A score is the log-probability divided by the length to this power; 0.6 is T5's.",
    ),
    click.option(
        "--min-length", default=0, type=click.IntRange(min=0), help="The fewest tokens of an answer, with EOS."
    ),
    click.option("--max-length", default=0, type=click.IntRange(min=0), help="The most; as the run's by default."),
    click.option(
        "--no-repeat-ngram",
        default=0,
        type=click.IntRange(min=0),
        help="No n-gram of this size occurs twice; 0: any may.",
    ),
    click.option("--sample", is_flag=True, help="Draw each token instead of taking the likeliest."),
    click.option(
        "--temperature", default=1.0, show_default=True, type=float, help="When drawing: below 1 is less varied."
    ),
    click.option("--top-k", default=0, type=click.IntRange(min=0), help="When drawing: of the k likeliest; 0: of all."),
    click.option(
        "--top-p", default=1.0, show_default=True, type=float, help="When drawing: of those that have this share."
    ),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**63 - 1), help="When drawing."),
)

long = click.option(
    "--long",
    type=click.Choice(["cut", "split", "refuse"]),
    help="Inputs that do not fit: cut as in training, answered part by part, or left out  [default: as suits the task].",
)


def generation(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `t5prep.training.model.generation.Generation` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command

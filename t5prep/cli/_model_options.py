"""Define functions for the commands with a model: a check for TensorFlow, and shell completion of recipes and settings."""

import dataclasses
from collections.abc import Callable

import click

from t5prep.cli._options import AnyCommand


def need_tensorflow() -> None:
    """Raise UsageError with the install command if TensorFlow is missing."""
    # Imported here, because t5prep.training imports Triton if it is installed: 0.1 s and 66 MB.
    from t5prep.training import need_tensorflow as needed

    needed()


def recipe_names(context: click.Context, option: click.Parameter, prefix: str) -> list[str]:
    """Return the recipes that begin with `prefix`, for the shell completion of `--recipe`."""
    from t5prep.training.settings.train_config import recipes

    return [name for name in recipes() if name.startswith(prefix)]


def setting_names(context: click.Context, option: click.Parameter, prefix: str) -> list[str]:
    """Return the settings that begin with `prefix`, each with its `=`, for the shell completion of `--set`."""
    from t5prep.training.settings.train_config import TrainConfig

    return [f"{field.name}=" for field in dataclasses.fields(TrainConfig) if field.name.startswith(prefix)]


def settings(*, help: str) -> Callable[[AnyCommand], AnyCommand]:
    """Return the decorator that adds the option --set, whose values are the parameter `settings`."""
    return click.option(
        "--set", "settings", multiple=True, shell_complete=setting_names, metavar="KEY=VALUE", help=help
    )

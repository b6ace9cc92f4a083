"""Define what commands with a model share: the check for TensorFlow, and the completion of recipes and settings."""

import dataclasses

import click


def need_tensorflow() -> None:
    """Raise UsageError, with the install command, if TensorFlow is missing."""
    from t5prep.training import need_tensorflow as needed  # which loads Triton where it is installed: 0.1 s and 66 MB

    needed()


def recipe_names(context: click.Context, option: click.Parameter, prefix: str) -> list[str]:
    """Return the recipes that complete what was typed for `--recipe`."""
    from t5prep.training.settings.config import recipes

    return [name for name in recipes() if name.startswith(prefix)]


def setting_names(context: click.Context, option: click.Parameter, prefix: str) -> list[str]:
    """Return the settings that complete what was typed for `--set`, each with its `=`."""
    from t5prep.training.settings.config import TrainConfig

    return [f"{field.name}=" for field in dataclasses.fields(TrainConfig) if field.name.startswith(prefix)]

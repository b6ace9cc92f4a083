"""Choose by its config what a model is: a T5, its encoder with a classification head, or another encoder with one.

An architecture is a config, the layout of its weights, and a function from weights and a batch to logits
(`model.forward`). Training, evaluation, `plan` and export call these three; only generating text is T5's alone. A
config with `classes` is that of a model with a head. This module imports no TensorFlow, so that reports and questions to
`plan` begin at once.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from t5prep.errors import UsageError, did_you_mean
from t5prep.train.model.encoder_config import MODEL_TYPES as ENCODERS
from t5prep.train.model.encoder_config import EncoderConfig
from t5prep.train.model.encoder_layout import encoder_layouts
from t5prep.train.model.t5_config import MODEL_TYPES as T5S
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.weight_layout import WeightLayout, t5_layouts

Config = ModelConfig | EncoderConfig


def weight_layouts(config: Config) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order."""
    return encoder_layouts(config) if isinstance(config, EncoderConfig) else t5_layouts(config)


def read_config(content: bytes, *, where: object) -> Config:
    """Return the config of a `config.json`'s content. Raises UsageError, which names `where`, if it is of no known model."""
    try:
        model_type = str(json.loads(content)["model_type"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(f"{where} is not the configuration of a model ({error}): fetch it again.") from error
    if model_type in ENCODERS:
        return EncoderConfig.read(content, where=where)
    if model_type not in T5S:
        raise UsageError(
            f'The model is of type "{model_type}", and only {", ".join((*T5S, *ENCODERS))} can be trained: choose one of'
            f" those.{did_you_mean(model_type, (*T5S, *ENCODERS))}"
        )
    return ModelConfig.read(content, where=where)


def with_classes(config: Config, classes: Sequence[str]) -> Config:
    """Return the config of a model with these classes; of a T5 that writes texts, the config of its encoder."""
    if isinstance(config, EncoderConfig):
        return dataclasses.replace(config, classes=tuple(classes))
    return config.with_classes(classes)


def config_of(fields: Mapping[str, Any]) -> Config:
    """Return a config from its fields as JSON keeps them."""
    made = {**fields, "classes": tuple(fields["classes"])}
    return EncoderConfig(**made) if made["model_type"] in ENCODERS else ModelConfig(**made)

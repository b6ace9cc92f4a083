"""What a device cannot answer is one sentence: weights that are no numbers, more beams than fit, a closed input."""

import sys
from typing import Any

import click
import jax
import numpy as np
import pytest
from raised import raises

from t5prep.cli import main
from t5prep.errors import UsageError
from t5prep.options.generation import Generation
from t5prep.tokens import loading
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weights import random_weights
from t5prep.training.predict.device import Device
from t5prep.training.run.run import Model

WORDS = loading.load("sample:")
CONFIG = ModelConfig(
    vocab_size=WORDS.size, d_model=16, d_kv=16, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2
)


def device(weights: dict[str, Any] | None = None, **options: Any) -> Device:
    opened = Model("toy", CONFIG, weights or random_weights(CONFIG, seed=0), WORDS)
    return Device(opened, generation=Generation(max_length=4, **options), rows=2, tokenizer=WORDS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, -1])
def test_weights_that_are_not_numbers_are_named(value: float, index: int) -> None:
    """Wherever they stand: a minimum that XLA computes in steps of several values passes over some of them."""
    weights = random_weights(CONFIG, seed=0)
    name = max(weights, key=lambda name: weights[name].size)
    weights[name] = np.array(weights[name])
    weights[name].flat[index] = value
    with raises(UsageError, "weights.nonfinite", str(name)):
        device(weights)


def test_more_beams_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises(UsageError, "option.out-of-range"):
        device(beams=100_000)
    toy_device = device(beams=2)

    def full(*_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 59876198104 bytes.")

    monkeypatch.setattr(toy_device, "_answers", full)
    with raises(UsageError, "device.insufficient-memory", "2"):
        toy_device([np.array([5, 1])], 8)


def test_a_closed_standard_input_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with raises(click.ClickException, "source.stdin-closed"):
        main(["predict", "-", "--model", "none"], standalone_mode=False)

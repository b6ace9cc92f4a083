"""A step that does not fit is answered with the settings that would fix it."""

import jax
import pytest
from raised import raises

from t5prep.errors import T5prepError
from t5prep.training.settings import train_config
from t5prep.training.step import memory_advice
from t5prep.training.step.memory_advice import DeviceMemory

GIB = 2**30
OF_TPU = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 24.26G of 15.75G hbm."
OF_GPU = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."


def make_device_memory(**changes: int) -> DeviceMemory:
    fields = {"weights": GIB, "slots": 0, "capacity": 0, "rows": 16, "devices": 4, "shard": 1}
    return DeviceMemory(**{**fields, **changes})


@pytest.mark.parametrize(
    ("reason", "settings", "changes", "phrases"),
    [
        # 23.3 GiB of activations, 14.75 GiB of room: half of them, and the gradients' sum, fit.
        (OF_TPU, {}, {}, ["15.75 GiB", "accumulate=2,", "remat=true (", "1/2", "shard=2"]),
        # With weights of 6 GiB, 9.75 GiB of room: half of 18.3 GiB fits, but not with a sum of gradients beside it.
        (OF_TPU, {}, {"weights": 6 * GIB}, ["accumulate=8,", "remat=true", "1/2"]),
        (OF_TPU, {"remat": True}, {"rows": 1}, ["1/2, or --set shard=2"]),
        # Weights and slots alone are too large: only another optimizer or more devices help.
        (OF_TPU, {"optimizer": "adamw"}, {"weights": 6 * GIB, "slots": 12 * GIB}, ["too much", "adafactor, or"]),
        (OF_GPU, {}, {"capacity": 40 * GIB}, ["does not fit", "accumulate=2", "remat=true"]),
        (OF_GPU, {"remat": True}, {"weights": 50 * GIB, "capacity": 40 * GIB, "devices": 1}, ["larger devices"]),
    ],
)
def test_what_would_mend_it_is_named(reason: str, settings: dict, changes: dict, phrases: list[str]) -> None:
    sentence = memory_advice.sentence(
        reason, train_config.build({"batch": 64, **settings}), make_device_memory(**changes)
    )
    for words in phrases:
        assert words in sentence, sentence
    assert ("accumulate" in sentence) == any("accumulate" in words for words in phrases)


def test_running_out_of_memory_is_our_error_and_other_errors_stay() -> None:
    config = train_config.build({"batch": 64})
    with (
        raises(T5prepError, "device.insufficient-memory"),
        memory_advice.explained(config, make_device_memory()),
    ):
        raise jax.errors.JaxRuntimeError(OF_GPU)
    with (
        pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"),
        memory_advice.explained(config, make_device_memory()),
    ):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

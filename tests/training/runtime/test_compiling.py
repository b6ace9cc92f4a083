"""What is said before a step is compiled."""

import dataclasses

from t5prep.training.runtime import compiling
from t5prep.training.settings.train_config import TrainConfig


def test_a_step_of_very_many_tokens_is_said_before_it_is_compiled() -> None:
    config = TrainConfig(batch=100_000)
    assert "100,000 rows has 28,800,000 tokens on a device" in compiling.large_step(config, 2, (512, 64))
    assert not compiling.large_step(dataclasses.replace(config, accumulate=100), 2, (512, 64))

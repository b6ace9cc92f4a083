"""Check that a run may go on with another number of steps: the steps that it has made must be those of the longer run."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from t5prep.errors import UsageError
from t5prep.train.run.checkpoint import start_anew
from t5prep.train.settings.config import TrainConfig
from t5prep.train.step.step import schedule_of


def steps_of(config: TrainConfig, *, in_epoch: int) -> int:
    """Return how many steps a run has, of which `in_epoch` are an epoch. Raises UsageError where nothing says it."""
    steps = config.steps or math.ceil(config.epochs * in_epoch)
    if not steps:
        raise UsageError("The length of training is not set: --set epochs=3, or --set steps=10000.")
    return steps


def check(config: TrainConfig, stored: Mapping[str, Any], *, made: int, in_epoch: int, where: str) -> str:
    """Return a sentence about another length than the `stored` settings have, or "" where it is the same.

    `made`: how many steps the checkpoint `where` has. Raises UsageError where one of them had another learning rate than
    it would have in a run of the new length.
    """
    old_config = dataclasses.replace(config, steps=int(stored["steps"]), epochs=float(stored["epochs"]))
    before = steps_of(old_config, in_epoch=in_epoch)
    now = steps_of(config, in_epoch=in_epoch)
    if before == now:
        return ""
    old, new = schedule_of(config, steps=before), schedule_of(config, steps=now)
    differing = next((step for step in range(min(made, now)) if old(step) != new(step)), None)
    if differing is not None:
        raise UsageError(
            f"{where} is of a run of {before:,} steps, and now it has {now:,}: schedule={config.schedule} depends on that, so "
            f"step {differing + 1:,} had a rate of {old(differing):.3g} and should have had {new(differing):.3g}. Set it back, "
            f"or {start_anew(config)}."
        )
    if now <= made:
        return f"The run has {made:,} steps already, and {now:,} were asked for: it is only scored."
    return f"The run has {now:,} steps now, instead of {before:,}."

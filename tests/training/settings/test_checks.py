"""A run may get another number of steps where the steps that it has made would be the same."""

import dataclasses
import types
from typing import Any

import pytest
from raised import raises

from t5prep.errors import UsageError
from t5prep.tasks.targets import TagsTarget, target_of
from t5prep.training.settings import checks, train_config


def check(settings: dict, *, now: dict, checkpoint_step: int) -> str:
    stored = dataclasses.asdict(train_config.build({"steps": 2000, **settings}))
    config = train_config.build({"steps": 2000, **settings}, now)
    return checks.describe_new_length(
        config, stored, checkpoint_step=checkpoint_step, in_epoch=100, checkpoint_path="RUN/checkpoints/2"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "constant"},
        {"schedule": "inverse_sqrt", "warmup": 100},
        {"schedule": "warmup_constant", "warmup": 100},
        {"schedule": "warmup_inverse_sqrt", "warmup": 100},
    ],
)
def test_schedules_without_an_end_go_on(settings: dict) -> None:
    assert (
        check(settings, now={"steps": 3000}, checkpoint_step=2000) == "The run has 3,000 steps now, instead of 2,000."
    )
    assert check(settings, now={"epochs": 30}, checkpoint_step=2000) == "The run has 3,000 steps now, instead of 2,000."
    assert check(settings, now={"epochs": 20}, checkpoint_step=2000) == ""
    assert "1,000" in check(settings, now={"steps": 1000}, checkpoint_step=2000)


@pytest.mark.parametrize("name", ["linear", "cosine", "polynomial", "constantlinear"])
def test_a_schedule_with_an_end_goes_on_only_before_it_falls(name: str) -> None:
    settings = {"schedule": name, "warmup": 100}
    assert check(settings, now={"steps": 3000}, checkpoint_step=100)
    with raises(UsageError, "checkpoint.schedule-mismatch", str(name)):
        check(settings, now={"steps": 3000}, checkpoint_step=2000)


def test_a_warmup_that_is_a_share_of_all_steps_depends_on_them() -> None:
    with raises(UsageError, "checkpoint.schedule-mismatch", "1", "3.33e-06", "5e-06"):
        check({"schedule": "warmup_constant", "warmup": 0.1}, now={"steps": 3000}, checkpoint_step=50)


def test_buckets_of_tags_have_equal_sides() -> None:
    dataset = types.SimpleNamespace(target=TagsTarget(("O",)))
    with raises(UsageError, "setting.unequal-bucket"):
        checks.check_data(train_config.build({"buckets": ("32x32", "64x16")}), [dataset])  # type: ignore[list-item]


@pytest.mark.parametrize("target", ["labels", "number"])
def test_settings_of_a_softmax_are_refused_where_there_is_none(target: str) -> None:
    settings = types.SimpleNamespace(layout="padded", target_length=1)
    dataset: Any = types.SimpleNamespace(
        settings=settings, target=target_of(target, ["a"]), splits={"validation": None}
    )
    for key, value in (("label_smoothing", 0.1), ("z_loss", 0.01)):
        with raises(UsageError, "setting.inapplicable", str(key), str(value), str(target)):
            checks.check_data(train_config.build({key: value}), [dataset])
    checks.check_data(train_config.build({"z_loss": 0.0}), [dataset])
    checks.check_data(train_config.build({}), [dataset])

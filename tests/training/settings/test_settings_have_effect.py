"""Every setting of `train` changes what is computed, or is refused, for each kind of target: none is accepted and ignored.

By hand, each setting for each kind: T5PREP_SEEDS=1 pytest -m '' tests/training/settings/test_settings_have_effect.py
"""

import json
from typing import Any

import numpy as np
import pytest
import random_seeds
import tensorflow as tf
from raised import raises

from t5prep.errors import UsageError
from t5prep.training.data.device_feed import reading_of
from t5prep.training.data.open_datasets import open_splits
from t5prep.training.model.lora import adapter_layouts, trained_layouts
from t5prep.training.model.weights import draw
from t5prep.training.settings import checks
from t5prep.training.settings.padding import Padding
from t5prep.training.settings.train_config import FIELDS, FREE, build
from t5prep.training.step.step import TrainStep, dtype_of, optimizer_of, schedule_of
from t5prep.training.trainer import first_weights
from tests import encoders, toy_runs, two_classes
from tests.small_corpora import prepared
from tests.training.test_encoder_runs import SHAPE
from tests.training.test_masked_language import lines
from tests.training.test_target_runs import KINDS as OPTIONS
from tests.training.test_target_runs import rows

KINDS = ("text", "class", "masked", *OPTIONS)
INPUT_LENGTH, STEPS = 32, 2  # the second step is the first that moments, decays and schedules change
ADAMW, POLYNOMIAL, LORA = {"optimizer": "adamw"}, {"schedule": "polynomial"}, {"lora": 2}
# What each setting is changed to, and the settings that both runs have.
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    **{"rates": (0.5, {}), "temperature": (2.0, {}), "cap": (8, {}), "split": ("validation", {})},
    **{"batch": (4, {}), "steps": (1, {}), "epochs": (0.01, {}), "accumulate": (2, {}), "seed": (1, {})},
    **{"lora": (2, {}), "lora_alpha": (4.0, LORA), "optimizer": ("adamw", {}), "learning_rate": (0.1, {})},
    **{
        "schedule": ("linear", {}),
        "warmup": (2, POLYNOMIAL),
        "power": (2.0, POLYNOMIAL),
        "end_rate": (1e-4, POLYNOMIAL),
    },
    **{"parameter_scale": (False, {}), "decay_rate": (0.5, {}), "weight_decay": (0.5, ADAMW), "beta1": (0.5, ADAMW)},
    **{"beta2": (0.9, ADAMW), "epsilon": (1e-2, ADAMW), "clip_norm": (1e-3, ADAMW), "dropout": (0.5, {})},
    **{"label_smoothing": (0.1, {}), "z_loss": (1e-2, {}), "dtype": ("bfloat16", {})},
}
# What is trained, on what; and remat, which changes memory and time alone.
EXCLUDED_SETTINGS = {"data", "model", "weights", "out", "tokenizer", "buckets", "remat"}
# What a kind of target computes by itself: its loss, its model with and without adapters. The batches, the optimizer and the
# schedule are those of every kind, so each of these settings is changed for texts and for one other kind.
OF_EACH_KIND = {"dropout", "dtype", "label_smoothing", "lora", "lora_alpha", "seed", "z_loss"}
# Settings of mixtures, here of one dataset; and of a softmax, which the losses of labels and numbers have not.
REFUSED = {"rates", "temperature", "cap"}
REFUSED_BY_KIND = {"labels": {"label_smoothing", "z_loss"}, "number": {"label_smoothing", "z_loss"}}


@pytest.fixture(scope="module", params=KINDS)
def kind_and_settings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    """A kind of target, and the settings of its shortest run."""
    kind, folder = request.param, tmp_path_factory.mktemp("settings")
    data, words = folder / "data", encoders.bert(folder / "bert")
    (words / "config.json").write_text(json.dumps(SHAPE))
    model = str(words)
    if kind == "masked":
        prepared(lines(folder), data, task="masked_language", tokenizer=words, input_length=INPUT_LENGTH)
    elif kind in OPTIONS:
        table = folder / "rows.jsonl"
        table.write_text("".join(json.dumps(row) + "\n" for row in rows(120)))
        options = {"task": "text2text", "options": OPTIONS[kind], "target": kind, "input_length": INPUT_LENGTH}
        prepared(table, data, tokenizer=words, **options)
    else:
        tokenizer = "sample:" if kind == "text" else words
        model = toy_runs.shape(folder / "t5") if kind == "text" else model
        prepared(
            two_classes.write(folder / "rows.tsv"), data, tokenizer=tokenizer, task="sst2", input_length=INPUT_LENGTH
        )
    settings = {"data": (str(data),), "model": model, "out": str(folder / "run"), "weights": "random"}
    return kind, {**settings, "batch": 8, "steps": STEPS}


def train(settings: dict[str, Any], changed: dict[str, Any]) -> np.ndarray:
    """Return all weights after a run, whose steps TensorFlow executes. Raises UsageError."""
    config = build(settings, changed)
    opened = open_splits(config.data, config.split)
    manifest = opened[0].manifest
    checks.check_data(config, [manifest])
    shape, first = first_weights(config, opened[0].dataset.tokenizer, [manifest])
    weights = {name: tf.constant(np.asarray(array)) for name, array in first.items()}
    weights |= {name: tf.constant(array) for name, array in draw(adapter_layouts(shape), seed=config.seed).items()}
    optimizer = optimizer_of(config)
    slots = {
        name: {slot: tf.zeros(size) for slot, size in optimizer.slot_shapes(layout).items()}
        for name, layout in trained_layouts(shape).items()
    }
    step = TrainStep(shape, optimizer, config, dtype_of(config.dtype, platform="cpu"), Padding.of_dataset(manifest))
    steps = checks.steps_of(config, in_epoch=-(-opened[0].facts.records // config.batch))
    rate = schedule_of(config, steps=steps)
    for number, batch in zip(range(steps), reading_of(opened, config).batches(), strict=False):
        rows = {name: tf.constant(values) for name, values in batch.items() if values.dtype == np.int32}
        copies = step.copies_of(weights)
        gradients, sums = step.gradients(weights, rows, tf.constant(number), copies)
        now, learning_rate = tf.constant(number), tf.constant(rate(number), tf.float32)
        weights, slots, _, _ = step.update(weights, slots, gradients, sums, now, learning_rate, copies)
    return np.concatenate([np.ravel(array) for array in weights.values()])


def weights_or_refusal(settings: dict[str, Any], changed: dict[str, Any]) -> np.ndarray | str:
    """Return all weights after a run, or why it is refused."""
    try:
        return train(settings, changed)
    except UsageError as error:
        return str(error)


def changed_for(kind: str) -> list[str]:
    """Return the settings that are changed for a kind of target: all, or in CI those of each kind and a share of the others."""
    shared = [name for name in CHANGES if name not in OF_EACH_KIND | REFUSED]
    other_kinds = [*KINDS[1:]]
    share = shared if random_seeds.ARE_GIVEN or kind == "text" else shared[other_kinds.index(kind) :: len(other_kinds)]
    return [name for name in CHANGES if name in {*OF_EACH_KIND, *REFUSED, *share}]


def test_the_table_has_every_setting_that_decides_the_weights() -> None:
    assert CHANGES.keys() == FIELDS.keys() - FREE - EXCLUDED_SETTINGS - {"eval_rows", "eval_batch"}


@pytest.mark.slow
def test_every_setting_changes_the_weights_or_is_refused(kind_and_settings: tuple[str, dict[str, Any]]) -> None:
    """Each setting of training, for each kind of target, changes the weights or is refused by name."""
    kind, settings = kind_and_settings
    unchanged: dict[str, np.ndarray] = {}
    refused = set()
    for name in changed_for(kind):
        value, both = CHANGES[name]
        key = json.dumps(both)
        if key not in unchanged:
            unchanged[key] = train({**settings, **both}, {})
        outcome = weights_or_refusal({**settings, **both}, {name: (value,) if name == "rates" else value})
        if isinstance(outcome, str):
            assert name in outcome
            refused.add(name)
        else:
            assert not np.array_equal(outcome, unchanged[key]), f"{name} is accepted and ignored"
    assert refused == REFUSED | REFUSED_BY_KIND.get(kind, set())


def test_settings_of_generated_answers_are_refused_where_none_are_generated(
    kind_and_settings: tuple[str, dict[str, Any]],
) -> None:
    kind, settings = kind_and_settings
    manifest = open_splits(settings["data"], "train")[0].manifest
    if kind == "text":
        checks.check_data(build(settings, {"generate": True, "beams": 2}), [manifest])
        return
    with raises(UsageError, "setting.inapplicable"):
        checks.check_data(build(settings, {"generate": True}), [manifest])
    with raises(UsageError, "setting.inapplicable", "2", "beams"):
        build(settings, {"beams": 2})
    with raises(UsageError, "setting.unavailable-metric", "bleu"):
        checks.check_data(build(settings, {"metric": "bleu"}), [manifest])

"""Settings and recipes: every built-in recipe loads, and every mistake is met by a sentence."""

import dataclasses
import json
import typing
from pathlib import Path

import pytest
import toy_dataset
from click.testing import CliRunner
from raised import assert_error, raises

from t5prep.cli import main
from t5prep.errors import UsageError
from t5prep.training.settings import checks, train_config


def test_every_recipe_is_a_configuration_with_a_header() -> None:
    assert set(train_config.recipes()) >= {
        "so_quality",
        "sst2",
        "causal_qa",
        "diacritics_ro",
        "span_corruption",
        "tiny",
    }
    for name, header in train_config.recipes().items():
        config = train_config.build(train_config.read_recipe(name), {"data": ("d",), "out": "o"})
        assert config.model, name
        assert config.steps or config.epochs, name
        assert len(header) > 40, name


def test_the_numbers_of_the_seeds() -> None:
    quality = train_config.build(train_config.read_recipe("so_quality"))
    assert (quality.batch, quality.epochs, quality.learning_rate, quality.warmup) == (32, 50, 1e-5, 0.1)
    assert (quality.optimizer, quality.weight_decay, quality.epsilon, quality.clip_norm) == ("adamw", 0.01, 1e-6, 1.0)
    romanian = train_config.build(train_config.read_recipe("diacritics_ro"))
    assert (romanian.optimizer, romanian.learning_rate, romanian.parameter_scale) == ("adafactor", 1e-4, False)
    assert train_config.build(train_config.read_recipe("span_corruption")).warmup == 10_000
    translation = train_config.build(train_config.read_recipe("translate_en_ro"))
    assert (translation.batch, translation.epochs, translation.learning_rate, translation.seed) == (64, 6, 5e-5, 122)
    assert (translation.schedule, translation.generate, translation.metric) == ("linear", True, "bleu")


def test_later_settings_win_and_text_is_read_by_type() -> None:
    config = train_config.build(
        {"batch": 8, "remat": True}, train_config.read_settings(["batch=16", "rates=0.5,2", "data=a,b"])
    )
    assert (config.batch, config.remat, config.rates, config.data) == (16, True, (0.5, 2.0), ("a", "b"))
    assert train_config.build({"steps": "1e4", "remat": "no"}) == train_config.build({"steps": 10_000})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batchsize": "3"}, ("setting.unknown", '"batchsize"', '"batch"')),
        ({"learning-rate": "1"}, ("setting.unknown", '"learning-rate"', '"learning_rate"')),
        ({"batch": "many"}, ("setting.malformed", "batch", "many")),
        ({"batch": "1.5"}, ("setting.malformed", "batch", "1.5")),
        ({"batch": True}, ("setting.malformed", "batch", "True")),
        ({"remat": "maybe"}, ("setting.malformed", "remat", "maybe")),
        ({"optimizer": "adafacto"}, ("setting.unknown-choice", '"adafacto"', '"adafactor"')),
        ({"dropout": 1.0}, ("setting.out-of-range", "dropout", "1.0")),
        ({"metric": "acuracy"}, ("setting.unknown-choice", '"acuracy"', '"accuracy"')),
        ({"epochs": "nan"}, ("setting.malformed", "epochs", "nan")),
        ({"epochs": float("inf")}, ("setting.malformed", "epochs", "inf")),
        ({"data": "a,b", "rates": "1,inf"}, ("setting.malformed", "rates", "1,inf")),
        ({"data": "a,b", "rates": "1,0"}, ("setting.invalid-rates", "1.0, 0.0")),
        ({"seed": "-1"}, ("setting.out-of-range", "seed", "-1")),
        ({"seed": 2**31}, ("setting.out-of-range", "seed", "2147483648")),
        ({"steps": -1}, ("setting.out-of-range", "steps", "-1")),
        ({"batch": 0}, ("setting.out-of-range", "batch", "0")),
        ({"batch": 6, "accumulate": 4}, ("device.indivisible-batch", "6", "4")),
        ({"steps": 5, "epochs": 1}, ("setting.conflict", "steps", "epochs")),
        ({"data": "a,b", "rates": "1"}, ("setting.invalid-rates", "1 rates", "2 datasets")),
        ({"lr": "3e-4"}, ("setting.unknown", "lr", "--set learning_rate=3e-4")),
        ({"num_train_epochs": 3}, ("setting.unknown", "num_train_epochs", "--set epochs=3")),
        ({"report_to": "wandb"}, ("setting.unknown", "report_to", "tensorboard")),
        (
            {"gradient_accumulation_steps": "4"},
            ("setting.unknown", "gradient_accumulation_steps", "--set accumulate=4"),
        ),
        ({"per_device_train_batch_size": "8"}, ("setting.unknown", "per_device_train_batch_size", "batch")),
        ({"eval_steps": "500"}, ("setting.unknown", "eval_steps", "--set eval_every=500")),
        ({"save_steps": "500"}, ("setting.unknown", "save_steps", "--set save_every=500")),
        ({"fp16": "true"}, ("setting.unknown", "fp16", "--set dtype=bfloat16")),
        ({"bf16": True}, ("setting.unknown", "bf16", "--set dtype=bfloat16")),
        ({"bf16": "false"}, ("setting.unknown", "bf16", "--set dtype=float32")),
        ({"warmup_ratio": "0.1"}, ("setting.unknown", "warmup_ratio", "--set warmup=0.1")),
        ({"evaluation_strategy": "epoch"}, ("setting.unknown", "evaluation_strategy", "--set eval_every=0")),
        (
            {"lr_scheduler_type": "constant_with_warmup"},
            ("setting.unknown", "lr_scheduler_type", "--set schedule=warmup_constant"),
        ),
        ({"schedule": "warmuplinear"}, ("setting.unknown-choice", "warmuplinear", "--set schedule=linear")),
        ({"dtype": "fp16"}, ("setting.unknown-choice", "fp16", "bfloat16")),
        ({"schedule": "polynomial", "power": 0}, ("setting.out-of-range", "power", "0.0")),
        ({"schedule": "polynomial", "end_rate": 1}, ("setting.out-of-range", "end_rate", "1.0", "learning_rate")),
        ({"learning_rate": -1}, ("setting.out-of-range", "learning_rate", "-1.0")),
        ({"weight_decay": -0.1, "optimizer": "adamw"}, ("setting.out-of-range", "weight_decay", "-0.1")),
        ({"z_loss": -1e-4}, ("setting.out-of-range", "z_loss", "-0.0001")),
        ({"label_smoothing": 1}, ("setting.out-of-range", "label_smoothing", "1.0")),
        ({"beta1": 1, "optimizer": "adamw"}, ("setting.out-of-range", "beta1", "1.0")),
        ({"beta2": -1, "optimizer": "adamw"}, ("setting.out-of-range", "beta2", "-1.0")),
        ({"epsilon": 0, "optimizer": "adamw"}, ("setting.out-of-range", "epsilon", "0.0")),
        ({"data": "a,b", "temperature": 0.001}, ("setting.out-of-range", "temperature", "0.001", "0.05")),
        ({"decay_rate": 0}, ("setting.out-of-range", "decay_rate", "0.0")),
    ],
)
def test_mistakes(values: dict, message: tuple[str, ...]) -> None:
    with raises(UsageError, *message):
        train_config.build(values)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", float("nan"), float("inf")])
def test_no_setting_is_a_number_that_is_none(value: object) -> None:
    names = [name for name, kind in typing.get_type_hints(train_config.TrainConfig).items() if kind is float]
    assert names
    for name in names:
        with raises(UsageError, "setting.malformed", name, str(value)):
            train_config.build({name: value})
    if isinstance(value, str):
        with raises(UsageError, "setting.malformed", "rates"):
            train_config.build({"data": "a,b", "rates": f"1,{value}"})


def test_every_name_of_other_trainers_is_answered_with_a_setting_of_ours() -> None:
    ours = {field.name for field in dataclasses.fields(train_config.TrainConfig)}
    assert not ours & train_config.OTHER_NAMES.keys()
    assert len(train_config.OTHER_NAMES) == 61
    for key, field in train_config.FIELDS.items():
        for theirs, value in field.metadata["synonyms"].items():
            assert getattr(train_config.build({key: value}), key) == value, theirs


def test_the_command_line_lists_each_setting_with_its_help() -> None:
    output = CliRunner().invoke(main, ["train", "--settings"], catch_exceptions=False).output
    listed = [line for line in output.splitlines() if " = " in line]
    assert [line.split()[0] for line in listed] == list(train_config.FIELDS)
    assert output.index("\nOptimizer:\n  optimizer = ") > output.index("\nBatch and length:\n  batch = ")
    assert f"  batch = 128                 {train_config.FIELDS['batch'].metadata['help']}" in output
    assert all(len(field.metadata["help"]) > 8 for field in train_config.FIELDS.values())


def test_the_command_line_lists_the_values_of_a_recipe() -> None:
    """It printed the defaults, whatever the recipe was."""
    values = {**train_config.read_recipe("translate_en_ro"), "batch": 7}
    for arguments in (["--settings", "--recipe", "translate_en_ro"], ["--recipe", "translate_en_ro", "--settings"]):
        output = CliRunner().invoke(main, ["train", *arguments, "--set", "batch=7"], catch_exceptions=False).output
        listed = dict(line.strip().split(" = ", 1) for line in output.splitlines() if " = " in line)
        config = train_config.build(values)
        for name in values:
            assert listed[name].split()[0] == str(getattr(config, name))
    assert "rougeLsum_f1" in output  # the names that `metric` can have
    refused = CliRunner().invoke(main, ["train", "--settings", "--recipe", "none"])
    assert refused.exit_code == 1
    assert_error(refused.stderr, "recipe.unknown", '"none"')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = " + "[" * 60_000, ("recipe.invalid-toml",)),
        ("a" + ".a" * 60_000 + " = 1", ("recipe.invalid-toml",)),  # 5 GB in tomllib
        ("".join(f"k{number}.a = 1\n" for number in range(20_000)), ("recipe.invalid-toml",)),
        ("steps = " + "9" * 5_000, ("recipe.invalid-toml",)),
        (None, ("recipe.unreadable",)),  # a device that has no end
    ],
)
def test_a_recipe_that_costs_memory_is_refused(content: str | None, message: tuple[str, ...], tmp_path: Path) -> None:
    recipe = tmp_path / "bomb.toml"
    if content is None:
        recipe.symlink_to("/dev/zero")
    else:
        recipe.write_text(content)
    with raises(UsageError, *message):
        train_config.read_recipe(str(recipe))


@pytest.mark.parametrize(
    ("line", "code", "value"),
    [
        ("batch = 0x" + "f" * 100_000, "setting.malformed", "batch"),  # Python prints no number of so many digits
        ("seed = 0o" + "7" * 100_000, "setting.malformed", "seed"),
        (f'shard = "{"9" * 5000}"', "setting.malformed", "shard"),
        ('shard = "²"', "setting.malformed", "²"),
        ('model = "a\\u0000b"', "setting.malformed", "model"),
        ("learning_rate = 1e" + "9" * 100_000, "setting.malformed", "learning_rate"),
        (f'"{"k" * 100_000}" = 1', "setting.unknown", "--settings"),
        (f'optimizer = "{"x" * 100_000}"', "setting.unknown-choice", "adamw"),
    ],
    ids=["hex", "oct", "digits", "superscript", "nul", "float", "key", "value"],
)
def test_a_recipe_with_a_huge_value_is_a_sentence(tmp_path: Path, line: str, code: str, value: str) -> None:
    (tmp_path / "r.toml").write_text(line, encoding="utf-8")
    result = CliRunner().invoke(main, ["train", "--recipe", str(tmp_path / "r.toml"), "--data", "d", "--out", "r"])
    assert isinstance(result.exception, SystemExit), result.exception
    assert_error(result.stderr, code, value)
    assert len(result.stderr) < 5000


def test_unknown_recipes_files_and_settings(tmp_path) -> None:
    with raises(UsageError, "recipe.unknown", "so_qualty", "so_quality"):
        train_config.read_recipe("so_qualty")
    with raises(UsageError, "recipe.unreadable", "none.toml"):
        train_config.read_recipe(str(tmp_path / "none.toml"))
    for text in ("batch = ", f"batch = {'[' * 100_000}"):
        (tmp_path / "own.toml").write_text(text)
        with raises(UsageError, "recipe.invalid-toml"):
            train_config.read_recipe(str(tmp_path / "own.toml"))
    (tmp_path / "own.toml").write_text("batch = 7")
    assert train_config.build(train_config.read_recipe(str(tmp_path / "own.toml"))).batch == 7
    (tmp_path / "own.toml").write_text("batch = 7", encoding="utf-8-sig")  # as an editor on Windows may save it
    assert train_config.build(train_config.read_recipe(str(tmp_path / "own.toml"))).batch == 7
    (tmp_path / "own.toml").write_text('data = "é"', encoding="cp1252")
    with raises(UsageError, "recipe.invalid-toml"):
        train_config.read_recipe(str(tmp_path / "own.toml"))
    with raises(UsageError, "setting.missing-value"):
        train_config.read_settings(["batch"])


def test_what_may_change_between_two_starts() -> None:
    stored = json.loads(train_config.dumps(train_config.build({"steps": 10, "schedule": "linear", "out": "a"})))
    changed = train_config.build({"steps": 20, "schedule": "linear", "out": "b", "keep": 9, "seed": 1})
    assert train_config.differing(changed, stored) == {
        "seed": (0, 1)
    }  # `checks.describe_new_length` compares the length
    of_an_older_version = {name: value for name, value in stored.items() if name not in ("cap", "buckets", "lora")}
    assert train_config.differing(changed, of_an_older_version) == {"seed": (0, 1)}
    assert train_config.differing(train_config.build({"steps": 20, "cap": 7}), of_an_older_version)["cap"] == (0, 7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weight_decay": 0.1}, ("weight_decay", "0.1", "--set optimizer=adamw")),
        ({"beta1": 0.5}, ("beta1", "0.5", "--set optimizer=adamw")),
        ({"beta2": 0.5}, ("beta2", "0.5")),
        ({"epsilon": 1e-6}, ("epsilon", "1e-06")),
        ({"optimizer": "adamw", "parameter_scale": False}, ("parameter_scale=false", "--set optimizer=adafactor")),
        ({"optimizer": "adamw", "decay_rate": 0.5}, ("decay_rate", "0.5", "--set optimizer=adafactor")),
        ({"warmup": 10}, ("warmup", "10", "--set schedule=linear")),
        ({"power": 2}, ("power", "2", "--set schedule=polynomial")),
        ({"beams": 4}, ("beams", "4", "--set generate=true")),
        ({"data": "a", "rates": "1"}, ("rates", "1.0")),
    ],
)
def test_settings_that_do_nothing_are_refused(values: dict, message: tuple[str, ...]) -> None:
    with raises(UsageError, "setting.inapplicable", *message):
        train_config.build(values)


def test_another_optimizer_than_the_recipes_takes_its_settings_away() -> None:
    recipe = train_config.read_recipe("so_quality")
    assert recipe["weight_decay"]
    config = train_config.build(recipe, {"optimizer": "adafactor"})
    assert config.weight_decay == 0
    assert train_config.build(recipe, {"schedule": "constant"}).warmup == 0
    with raises(UsageError, "setting.inapplicable", "0.1", "weight_decay"):
        train_config.build(recipe, {"optimizer": "adafactor", "weight_decay": "0.1"})


@pytest.mark.parametrize(
    ("values", "splits", "change", "message"),
    [
        ({"patience": 3}, ["train"], {}, ("setting.inapplicable", "patience", "3", "validation")),
        ({"generate": True}, ["train"], {}, ("setting.inapplicable", "generate", "True")),
        ({"metric": "loss"}, ["train"], {}, ("setting.inapplicable", "metric", "loss")),
        ({"eval_rows": 9}, ["train"], {}, ("setting.inapplicable", "eval_rows", "9")),
        ({"eval_split": "validatoin"}, ["train", "validation"], {}, ("split.unknown", '"validatoin"', '"validation"')),
        ({"eval_split": "train"}, ["train"], {}, ()),
        (
            {"generate": True},
            ["train", "validation"],
            {"layout": "packed"},
            ("setting.inapplicable", "--set generate=false"),
        ),
        (
            {"generate": True},
            ["train", "validation"],
            {"target_length": 2},
            ("setting.inapplicable", "--set generate=false"),
        ),
        ({"generate": True}, ["train", "validation"], {}, ()),
        ({"eval_every": 5}, ["train"], {}, ()),
    ],
)
def test_settings_that_do_nothing_with_the_data_are_refused(
    tmp_path, values: dict, splits: list, change: dict, message: tuple[str, ...]
) -> None:
    manifest = toy_dataset.write(tmp_path, {split: [4] for split in splits})
    manifest = dataclasses.replace(manifest, settings=dataclasses.replace(manifest.settings, **change))
    config = train_config.build(values)
    if not message:
        checks.check_data(config, [manifest])
        return
    with raises(UsageError, *message):
        checks.check_data(config, [manifest])


@pytest.mark.parametrize(
    ("metric", "task", "longest", "generate", "message"),
    [
        (
            "em",
            ["squad"],
            8,
            False,
            ("setting.unavailable-metric", "em", "loss, perplexity, token_accuracy"),
        ),
        ("em", ["squad"], 8, True, ()),
        ("bleu", ["squad"], 8, True, ()),  # computed beside the task's own
        ("chrf", [], 8, True, ()),
        ("bleu", ["squad"], 8, False, ("setting.unavailable-metric", "--set generate=true")),
        ("mse", ["squad"], 8, True, ("setting.unavailable-metric", "mse")),
        ("accuracy", ["classification"], 8, False, ("setting.unavailable-metric", "--set generate=true")),
        ("accuracy", ["classification"], 4, False, ()),  # perhaps of one token
        ("em", ["token_accuracy"], 8, True, ("setting.unavailable-metric", "loss, perplexity, token_accuracy")),
        ("rougeL_f1", [], 8, True, ()),
        ("word_accuracy", ["diacritics"], 8, True, ()),
        ("loss", ["squad"], 8, False, ()),
        ("auto", ["squad"], 8, False, ()),
    ],
)
def test_a_metric_that_no_evaluation_will_have_is_refused(
    tmp_path, metric: str, task: list, longest: int, generate: bool, message: tuple[str, ...]
) -> None:
    manifest = toy_dataset.write(tmp_path, {"train": [4], "validation": [4]})
    split = dataclasses.replace(manifest.splits["validation"], lengths={"step": [16, 4], "joint": [[16, longest, 4]]})
    manifest = dataclasses.replace(
        manifest,
        task=dataclasses.replace(manifest.task, metrics=task),
        settings=dataclasses.replace(manifest.settings, target_length=8),
        splits={**manifest.splits, "validation": split},
    )
    config = train_config.build({"metric": metric, "generate": generate})
    if not message:
        checks.check_data(config, [manifest])
        return
    with raises(UsageError, *message):
        checks.check_data(config, [manifest])


@pytest.mark.parametrize("value", [10**400, "1e300", 2**63, -(2**63)])
def test_a_whole_number_has_64_bits(value: object) -> None:
    """A recipe may hold any; the schedule of 10^400 steps overflowed."""
    with raises(UsageError, "setting.malformed", "steps") as caught:
        train_config.build({"steps": value})
    assert len(str(caught.value)) < 200

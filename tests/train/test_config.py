"""Settings and recipes: every built-in recipe loads, and every mistake is met by a sentence."""

import json

import pytest

from t5prep.errors import UsageError
from t5prep.train import config as configs


def test_every_recipe_is_a_configuration_with_a_header() -> None:
    assert set(configs.recipes()) >= {"so_quality", "sst2", "causal_qa", "diacritics_ro", "span_corruption", "tiny"}
    for name, said in configs.recipes().items():
        config = configs.build(configs.read_recipe(name), {"data": ("d",), "out": "o"})
        assert config.model, name
        assert config.steps or config.epochs, name
        assert len(said) > 40, name


def test_the_numbers_of_the_seeds() -> None:
    quality = configs.build(configs.read_recipe("so_quality"))
    assert (quality.batch, quality.epochs, quality.learning_rate, quality.warmup) == (32, 50, 1e-5, 0.1)
    assert (quality.optimizer, quality.weight_decay, quality.epsilon, quality.clip_norm) == ("adamw", 0.01, 1e-6, 1.0)
    romanian = configs.build(configs.read_recipe("diacritics_ro"))
    assert (romanian.optimizer, romanian.learning_rate, romanian.parameter_scale) == ("adafactor", 1e-4, False)
    assert configs.build(configs.read_recipe("span_corruption")).warmup == 10_000


def test_later_settings_win_and_text_is_read_by_type() -> None:
    config = configs.build({"batch": 8, "remat": True}, configs.read_settings(["batch=16", "rates=0.5,2", "data=a,b"]))
    assert (config.batch, config.remat, config.rates, config.data) == (16, True, (0.5, 2.0), ("a", "b"))
    assert configs.build({"steps": "1e4", "remat": "no"}) == configs.build({"steps": 10_000})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"batchsize": "3"}, 'no setting "batchsize". Did you mean "batch"?'),
        ({"learning-rate": "1"}, 'Did you mean "learning_rate"?'),
        ({"batch": "many"}, "batch is 'many', and should be a whole number"),
        ({"batch": "1.5"}, "should be a whole number"),
        ({"batch": True}, "should be a whole number"),
        ({"remat": "maybe"}, "should be true or false"),
        ({"optimizer": "adafacto"}, 'Did you mean "adafactor"?'),
        ({"dropout": 1.0}, "below 1"),
        ({"metric": "acuracy"}, 'metric is "acuracy". Did you mean "accuracy"? It can be auto, loss, '),
        ({"epochs": "nan"}, "epochs is 'nan', and should be a number"),
        ({"epochs": float("inf")}, "should be a number"),
        ({"data": "a,b", "rates": "1,inf"}, "should be a list"),
        ({"data": "a,b", "rates": "1,0"}, "must each be above 0"),
        ({"seed": "-1"}, "seed is -1, and must be at least 0"),
        ({"seed": 2**31}, "below 2,147,483,648"),
        ({"steps": -1}, "cannot be negative"),
        ({"batch": 0}, "at least 1"),
        ({"batch": 6, "accumulate": 4}, "4 equal parts"),
        ({"steps": 5, "epochs": 1}, "Both steps and epochs"),
        ({"data": "a,b", "rates": "1"}, "one for each"),
    ],
)
def test_mistakes(values: dict, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        configs.build(values)
    assert said in str(raised.value)


def test_unknown_recipes_files_and_settings(tmp_path) -> None:
    with pytest.raises(UsageError, match='Did you mean "so_quality"'):
        configs.read_recipe("so_qualty")
    with pytest.raises(UsageError, match="cannot be read"):
        configs.read_recipe(str(tmp_path / "none.toml"))
    (tmp_path / "own.toml").write_text("batch = ")
    with pytest.raises(UsageError, match="is not TOML"):
        configs.read_recipe(str(tmp_path / "own.toml"))
    (tmp_path / "own.toml").write_text("batch = 7")
    assert configs.build(configs.read_recipe(str(tmp_path / "own.toml"))).batch == 7
    with pytest.raises(UsageError, match="has no value"):
        configs.read_settings(["batch"])


def test_what_may_change_between_two_starts() -> None:
    stored = json.loads(configs.dumps(configs.build({"steps": 10, "schedule": "linear", "out": "a"})))
    changed = configs.build({"steps": 20, "schedule": "linear", "out": "b", "keep": 9, "seed": 1})
    assert configs.differing(changed, stored) == {"seed": (0, 1), "steps": (10, 20)}
    # A constant rate has no end: the longer run begins as the shorter one did.
    stored = json.loads(configs.dumps(configs.build({"steps": 10})))
    assert configs.differing(configs.build({"steps": 20}), stored) == {}

"""Mixtures: how often each dataset is drawn, what padding costs, and what an evaluation says of each."""

import pytest
from raised import raises

from t5prep.errors import UsageError
from t5prep.training.data import device_feed
from t5prep.training.evaluate import validation
from t5prep.training.settings import train_config

# Records of the tasks of GLUE, and what seqio's rate_num_examples gives for them.
GLUE = [8_551, 392_702, 3_668, 104_743, 363_849, 2_490, 67_349, 5_749, 635]


def test_rates_are_those_of_seqio():
    def seqio(count, temperature, maximum):
        return min(count, maximum) ** (1 / temperature)

    for temperature, cap in ((1.0, 0), (2.0, 0), (1.0, 65_536), (4.0, 65_536)):
        ours = device_feed.rates(GLUE, temperature=temperature, cap=cap)
        theirs = [seqio(count, temperature, cap or max(GLUE)) for count in GLUE]
        assert ours == pytest.approx([rate / sum(theirs) for rate in theirs])
    assert device_feed.rates(GLUE[:2], explicit_rates=(3, 1)) == [0.75, 0.25]


def test_a_high_temperature_draws_all_equally():
    assert device_feed.rates(GLUE, temperature=1e6) == pytest.approx([1 / 9] * 9, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "a", "temperature": 2}, ("setting.inapplicable", "temperature", "2.0")),
        ({"data": "a", "cap": 5}, ("setting.inapplicable", "cap", "5")),
        ({"data": "a,b", "rates": "1,2", "temperature": 2}, ("setting.inapplicable",)),
        ({"data": "a,b", "temperature": 0}, ("setting.out-of-range", "temperature", "0.0")),
        ({"data": "a,b", "cap": -1}, ("setting.out-of-range", "cap", "-1")),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with raises(UsageError, *message):
        train_config.build(settings)


def test_an_evaluation_of_several_has_each_and_their_mean():
    scores = [{"loss": 1.0, "accuracy": 0.5, "records": 10.0}, {"loss": 3.0, "em": 0.2, "records": 1000.0}]
    assert validation.joined(["cola", "squad"], scores) == {
        "loss": 2.0,
        "records": 1010.0,
        **{"cola/loss": 1.0, "cola/accuracy": 0.5, "cola/records": 10.0},
        **{"squad/loss": 3.0, "squad/em": 0.2, "squad/records": 1000.0},
    }
    assert validation.joined(["cola"], scores[:1]) == scores[0]


def test_names_of_datasets_are_short_and_differ():
    assert validation.names_of(["data/cola", "gs://b/sst2/"]) == ["cola", "sst2"]
    assert validation.names_of(["x/cola/v1", "x/sst2/v1"]) == ["cola-v1", "sst2-v1"]
    assert validation.names_of(["same", "same"]) == ["same-0", "same-1"]

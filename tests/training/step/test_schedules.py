import pytest
from raised import raises

from t5prep.errors import UsageError
from t5prep.training.settings import train_config
from t5prep.training.step.schedules import NAMES, schedule
from t5prep.training.step.step import schedule_of


@pytest.mark.parametrize(
    ("name", "warmup", "rates"),
    [
        ("constant", 0, [2, 2, 2, 2, 2, 2, 2, 2]),
        ("constant", 4, [2, 2, 2, 2, 2, 2, 2, 2]),
        ("warmup_constant", 0, [2, 2, 2, 2, 2, 2, 2, 2]),
        ("warmup_constant", 4, [0.5, 1, 1.5, 2, 2, 2, 2, 2]),
        ("linear", 0, [2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25]),
        ("linear", 4, [0.5, 1, 1.5, 2, 2, 1.5, 1, 0.5]),
        ("linear", 8, [0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2]),
        ("cosine", 4, [0.5, 1, 1.5, 2, 2, 1.7071, 1, 0.2929]),
        ("inverse_sqrt", 4, [2, 2, 2, 2, 1.7889, 1.6330, 1.5119, 1.4142]),
        ("warmup_inverse_sqrt", 4, [0.5, 1, 1.5, 2, 1.7889, 1.6330, 1.5119, 1.4142]),
        ("constantlinear", 4, [2, 2, 2, 2, 2, 1.5, 1, 0.5]),
        ("polynomial", 4, [0.5, 1, 1.5, 2, 2, 1.5, 1, 0.5]),
    ],
)
def test_rates(name, warmup, rates):
    rate = schedule(name, learning_rate=2.0, total_steps=8, warmup_steps=warmup)
    assert [float(rate(step)) for step in range(8)] == pytest.approx(rates, abs=1e-4)


@pytest.mark.parametrize(("power", "end"), [(1.0, 0.0), (2.0, 0.1), (0.5, 1.0)])
def test_polynomial_is_that_of_transformers(power, end):
    """`get_polynomial_decay_schedule_with_warmup`, which counts the updates made: ours counts the one to make."""
    rate = schedule("polynomial", learning_rate=2.0, total_steps=12, warmup_steps=3, power=power, end_rate=end)
    for updates in range(3, 12):
        theirs = (2.0 - end) * (1 - (updates - 3) / (12 - 3)) ** power + end
        assert rate(updates) == pytest.approx(theirs)
    assert [rate(step) for step in range(3)] == pytest.approx([2 / 3, 4 / 3, 2.0])
    assert rate(12) == pytest.approx(end)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warmup", [0, 1, 7, 100])
def test_no_rate_is_zero_or_above_the_full_one_and_none_is_negative_after_the_end(name, warmup):
    rate = schedule(name, learning_rate=1.0, total_steps=100, warmup_steps=warmup)
    rates = [float(rate(step)) for step in range(100)]
    assert 0 < min(rates) <= max(rates) <= 1.0
    assert max(rates) == pytest.approx(1.0)
    assert float(rate(150)) >= 0.0


def test_pretraining_of_t5_begins_at_a_hundredth_and_falls_with_the_root_of_the_step():
    rate = schedule("inverse_sqrt", learning_rate=0.01, total_steps=524_288, warmup_steps=10_000)
    assert float(rate(0)) == pytest.approx(0.01)
    assert float(rate(524_287)) == pytest.approx(524_288**-0.5)


def test_an_unknown_name_is_refused():
    with raises(UsageError, "setting.unknown-choice"):
        schedule("warmupcostant", learning_rate=1.0, total_steps=10)


@pytest.mark.parametrize(
    ("warmup", "steps", "peak"), [(50, 6, 0), (50, 50, 49), (50, 49, 4), (0.5, 6, 2), (50, 200, 49)]
)
def test_a_warmup_above_the_steps_becomes_a_tenth_of_them(warmup: float, steps: int, peak: int):
    rate = schedule_of(train_config.build({"schedule": "warmup_constant", "warmup": warmup}), steps=steps)
    assert next(step for step in range(steps) if rate(step) == 1e-3) == peak

import pytest

from t5prep.train.due import Due
from t5prep.train.settings import config as configs


@pytest.mark.parametrize(
    ("settings", "evaluates", "expected"),
    [
        ({}, True, (5, 5)),  # after each epoch
        ({}, False, (0, 5)),
        ({"eval_every": 3}, True, (3, 3)),
        ({"eval_every": 3}, False, (0, 5)),
        ({"eval_every": 3, "save_every": 2}, True, (3, 2)),
    ],
)
def test_a_run_evaluates_after_each_epoch_and_saves_when_it_evaluates(
    settings: dict[str, int], evaluates: bool, expected: tuple[int, int]
) -> None:
    due = Due.by(configs.build(settings), steps=12, in_epoch=5, evaluates=evaluates)
    assert (due.evaluate_every, due.save_every) == expected


def test_an_epoch_longer_than_the_run_ends_with_it() -> None:
    due = Due.by(configs.build({}), steps=12, in_epoch=100, evaluates=True)
    assert [step for step in range(1, 13) if due.evaluate(step)] == [12]


def test_everything_happens_after_the_last_step() -> None:
    due = Due(steps=10, evaluate_every=4, save_every=3, log_every=7)
    assert [step for step in range(1, 11) if due.evaluate(step)] == [4, 8, 10]
    assert [step for step in range(1, 11) if due.save(step)] == [3, 6, 9, 10]
    assert [step for step in range(1, 11) if due.log(step)] == [7, 10]
    assert not Due(steps=10, evaluate_every=0, save_every=3, log_every=7).evaluate(10)

"""A run in length buckets: a program for each shape, and the same losses after it was stopped and started again."""

import dataclasses

import pytest
import small_corpora
import toy_runs
from raised import raises
from small_corpora import write_csv

from t5prep.errors import UsageError
from t5prep.training import trainer


@pytest.fixture(scope="module")
def sentences(toys):
    """Sixty short and twenty long questions."""
    rows = [{"q": "is it so " * (1 if n % 4 else 6) + str(n), "a": "yes" if n % 2 else "no"} for n in range(80)]
    write_csv(toys / "rows.csv", rows)
    choices = {"task": "text2text", "options": {"inputs_column": "q", "targets_column": "a"}, "splits": {"train": 1.0}}
    small_corpora.prepared(
        toys / "rows.csv", toys / "sentences", tokenizer="sample:", input_length=48, target_length=4, **choices
    )
    return str(toys / "sentences")


@pytest.mark.slow
def test_a_run_in_buckets_goes_on_with_the_same_losses(toys, sentences, shape):
    """A program for each length in one run, stopped and resumed."""
    config = toy_runs.config(sentences, shape, toys / "whole", buckets=("16x4", "48x4"))
    trainer.train(config)
    expected_losses = toy_runs.losses(config.out)
    parts = dataclasses.replace(config, out=str(toys / "parts"))
    trainer.train(dataclasses.replace(parts, steps=5))
    trainer.train(parts)
    assert toy_runs.losses(parts.out) == expected_losses
    assert sorted(expected_losses) == list(range(1, 13))


def test_buckets_that_hold_no_row_are_refused_before_the_model_is_read(toys, sentences, tmp_path):
    with raises(UsageError, "setting.oversized-bucket", "4", "99"):
        trainer.train(toy_runs.config(sentences, "nothing", tmp_path / "run", buckets=("99x4",)))
